"""Single operators in torch: GEMMs by dtype, copies, attention, kernel launches, transfers between host and GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.measure.bench.case import CannotRun, OperatorCase, Timing
from whichgpu.measure.bench.gpu_timer import GpuTimer

LAUNCHES = 2000  # launches per timed loop (assumed: some 10 ms of host time)
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}


def _gemm(torch: Any, case: OperatorCase, clock: GpuTimer, device: str) -> Timing:
    m, n, k = (case.sizes[name] for name in "mnk")
    torch.backends.cuda.matmul.allow_tf32 = case.dtype == "tf32"
    a, b = (torch.randn(rows, k, device=device, dtype=torch.float32) for rows in (m, n))
    dtype = getattr(torch, DTYPES[case.dtype], None)
    if dtype is None:
        raise CannotRun(msg("measure.no-dtype", dtype=case.dtype))
    a, b = a.to(dtype), b.to(dtype).t()
    if case.dtype == "fp8":
        if m < 16:
            raise CannotRun(msg("measure.no-dtype", dtype=case.dtype))
        one = torch.ones((), device=device)
        return clock.block(lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))
    out = torch.empty(m, n, device=device, dtype=dtype)
    return clock.block(lambda: torch.mm(a, b, out=out))


def _copy(torch: Any, case: OperatorCase, clock: GpuTimer, device: str) -> Timing:
    source = torch.randn(case.sizes["bytes"] // 4, device=device)
    target = torch.empty_like(source)
    # Copies are not captured: in a CUDA graph the copy engine does them, at two thirds of a kernel's bandwidth.
    return clock.block(lambda: target.copy_(source), captured=False)


def _read(torch: Any, case: OperatorCase, clock: GpuTimer, device: str) -> Timing:
    source = torch.randn(case.sizes["bytes"] // 4, device=device)
    return clock.block(lambda: source.sum())


def _attention(torch: Any, case: OperatorCase, clock: GpuTimer, device: str) -> Timing:
    sizes = [case.sizes[name] for name in ("batch", "heads", "tokens", "dim")]
    backward = case.kind == "attention_backward"
    dtype = getattr(torch, DTYPES[case.dtype])
    q, k, v = (torch.randn(*sizes, device=device, dtype=dtype, requires_grad=backward) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    if not backward:
        return clock.block(lambda: attend(q, k, v, is_causal=True))
    out = attend(q, k, v, is_causal=True)
    slope = torch.randn_like(out)
    return clock.block(lambda: torch.autograd.grad(out, (q, k, v), slope, retain_graph=True), captured=False)


def _launch(torch: Any, case: OperatorCase, clock: GpuTimer, device: str) -> Timing:
    x = torch.zeros(case.sizes["elements"], device=device)
    return clock.host(lambda: x.add_(1.0), LAUNCHES)


def _transfer(torch: Any, case: OperatorCase, clock: GpuTimer, device: str) -> Timing:
    """Time transfers between host and GPU through pinned memory, as data loaders do."""
    here = torch.empty(case.sizes["bytes"], dtype=torch.uint8, pin_memory=True)
    there = torch.empty(case.sizes["bytes"], dtype=torch.uint8, device=device)
    source, target = (here, there) if case.kind == "upload" else (there, here)
    return clock.block(lambda: target.copy_(source, non_blocking=True), captured=False)


def _all_reduce(torch: Any, case: OperatorCase, clock: GpuTimer, _: str) -> Timing:
    count = torch.cuda.device_count()
    if count < 2:
        raise CannotRun(msg("measure.one-gpu"))
    nccl = import_module("torch.cuda.nccl")
    parts = [torch.ones(case.sizes["bytes"] // 2, dtype=getattr(torch, DTYPES[case.dtype]), device=i) for i in range(count)]
    return clock.block(lambda: nccl.all_reduce(parts), captured=False)


# Functions that time an operator, by its kind.
TIMERS: dict[str, Callable[[Any, OperatorCase, GpuTimer, str], Timing]] = {
    "gemm": _gemm,
    "copy": _copy,
    "read": _read,
    "attention": _attention,
    "attention_backward": _attention,
    "launch": _launch,
    "upload": _transfer,
    "download": _transfer,
    "all_reduce": _all_reduce,
}
