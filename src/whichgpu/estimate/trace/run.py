"""Trace of a module on tensors with shapes but no data, which gives the allocations that a GPU would make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import patch

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.trace.framework import gpu_kernels, load_torch
from whichgpu.estimate.trace.prepare import InputFactory, build_module, move_to_cpu, to_meta
from whichgpu.estimate.trace.recorder import StorageTracker, recorder, tensors_of
from whichgpu.estimate.trace.step import Loss, TracedOptimizer, default_loss
from whichgpu.estimate.trace.trace_log import ModuleTrace, TraceLog

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16")


def trace(
    factory: Callable[[], Any],
    inputs: InputFactory | None = None,
    *,
    precision: str = "fp32",
    optimizer: str = "sgd-momentum",
    fused: bool = True,
    training: bool = True,
    loss: Loss | None = None,
    channels_last: bool = False,
    steps: int = 2,
) -> ModuleTrace:
    """Trace `steps` steps of the module that `factory` returns; from the second on, optimizer states exist at the start.

    `factory` returns a module, or a module and its example inputs; it is called on the meta device. Mixed precision
    runs on fake tensors, since autocast does not support meta; everything else on meta tensors.
    """
    torch = load_torch()
    if precision not in PRECISIONS:
        raise UsageError("bad-value", msg("error.precision_not_traced", name=precision), choices=PRECISIONS)
    kind = precision.removeprefix("amp-")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(kind, torch.float32)
    amp = precision.startswith("amp-")
    ledger = TraceLog()
    storages = StorageTracker(ledger)
    with torch.device("meta"):
        module, example = build_module(torch, factory, inputs)
        if not amp and dtype is not torch.float32:
            module.to(dtype)
        if channels_last:
            module.to(memory_format=torch.channels_last)
        module.train(training)
        example = to_meta(torch, example, None if amp else dtype, channels_last)
    with ExitStack() as stack:
        stack.enter_context(_shapes_only(torch, fake=amp))
        if amp:
            example = move_to_cpu(torch, module, example)
        storages.label([*module.parameters(), *module.buffers()], "weights")
        storages.label(tensors_of(example, torch.Tensor), "input")
        stack.enter_context(gpu_kernels(torch))
        stack.enter_context(recorder(torch, ledger, storages))
        cast = (lambda: torch.autocast("cpu", dtype=dtype)) if amp else nullcontext
        if training:
            _train(torch, module, example, TracedOptimizer(torch, optimizer, fused), loss, cast, steps, ledger, storages)
        else:
            _infer(torch, module, example, cast, steps, ledger)
        counted = [(p.numel(), p.requires_grad) for p in module.parameters()]
        return ModuleTrace(
            tuple(ledger.events),
            dict(ledger.labels),
            dict(ledger.makers),
            tuple(operator for operator in ledger.operators if operator.step == steps - 1),
            sum(count for count, _ in counted),
            sum(count for count, trainable in counted if trainable),
            dict(ledger.marks),
        )


class _NoTensor:
    """Replaces torch's class FakeTensor in `isinstance` checks; no tensor is an instance."""


@contextmanager
def _shapes_only(torch: Any, *, fake: bool) -> Iterator[None]:
    if fake:
        mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True)
        # Code that checks for compilation (transformers then builds masks) must behave as in a normal run.
        with mode, patch.object(torch._subclasses, "FakeTensor", _NoTensor):
            yield
    else:
        with torch.device("meta"):
            yield


def _call(module: Any, example: Any) -> Any:
    if isinstance(example, dict):
        return module(**example)
    return module(*example) if isinstance(example, tuple) else module(example)


def _train(
    torch: Any,
    module: Any,
    example: Any,
    optimizer: TracedOptimizer,
    loss: Loss | None,
    cast: Callable[[], Any],
    steps: int,
    ledger: TraceLog,
    storages: StorageTracker,
) -> None:
    trained = [p for p in module.parameters() if p.requires_grad]
    for step in range(steps):
        module.zero_grad(set_to_none=True)
        ledger.begin("forward", step)
        with cast():
            output = _call(module, example)
            value = loss(output) if loss else default_loss(torch, output)
        del output  # A training loop that keeps the logits during backward needs more memory.
        ledger.begin("backward", step)
        value.backward()
        del value
        storages.label([p.grad for p in trained if p.grad is not None], "gradients")
        ledger.begin("optimizer", step)
        with torch.no_grad():
            optimizer.step(trained)
        storages.label(optimizer.states, "optimizer")


def _infer(torch: Any, module: Any, example: Any, cast: Callable[[], Any], steps: int, ledger: TraceLog) -> None:
    for step in range(steps):
        ledger.begin("forward", step)
        with torch.no_grad(), cast():
            output = _call(module, example)
        del output
