"""Run cases with PyTorch on one GPU, within the free memory, which is released after each case."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.measure.bench.case import BusyCallback, CannotRun, OperatorCase, PreparedStep, Timing
from whichgpu.measure.bench.eager_models import transformer
from whichgpu.measure.bench.fused_models import Decoder
from whichgpu.measure.bench.gpu_timer import GpuTimer
from whichgpu.measure.bench.operators import TIMERS
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.measure.bench.vision_models import vision_model
from whichgpu.workload.shapes import Mlp, TracedShape, Transformer, as_transformer
from whichgpu.workload.workload import Workload

FREE_SHARE = 0.95  # Share of the memory free at the start that cases may use.
HALVES = {"bf16": "bfloat16", "fp16": "float16"}
Run = Callable[[], Any]


def open_bench() -> TorchBench:
    """Return a benchmark runner with PyTorch on the first visible GPU; raise NoAnswer if that is not possible."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # Number GPUs as the driver does.
    try:
        torch = import_module("torch")
    except Exception as problem:  # Importing torch fails in many ways if it or its libraries are missing.
        raise NoAnswer("no-torch", msg("error.measure-no-torch"), msg("hint.measure-torch")) from problem
    if not torch.cuda.is_available() or torch.cuda.device_count() < 1:
        raise NoAnswer("no-gpu-here", msg("error.measure-torch-no-gpu", version=torch.__version__), msg("hint.doctor"))
    return TorchBench(torch)


class TorchBench:
    """Implementation of `Bench` that runs the cases with PyTorch."""

    def __init__(self, torch: Any, device: str = "cuda") -> None:
        self._torch, self._device = torch, device
        if device != "cuda":
            return
        torch.cuda.set_device(0)
        free, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(min(1.0, FREE_SHARE * free / total))

    @property
    def name(self) -> str:
        """Return the GPU's name from the driver."""
        return str(self._torch.cuda.get_device_name(0))

    def about(self) -> Mapping[str, str]:
        built = self._torch.version
        versions = {"torch": self._torch.__version__, "cuda": built.cuda, "rocm": getattr(built, "hip", None)}
        cudnn = self._torch.backends.cudnn.version() if self._torch.backends.cudnn.is_available() else None
        return {name: str(value) for name, value in {**versions, "cudnn": cudnn}.items() if value}

    def free_bytes(self) -> int:
        """Return the bytes of GPU memory available: those free on the device plus those that PyTorch's allocator holds unused."""
        cuda = self._torch.cuda
        return int(FREE_SHARE * cuda.mem_get_info()[0]) + int(cuda.memory_reserved() - cuda.memory_allocated())

    def micro(self, case: OperatorCase, watch: BusyCallback) -> Timing:
        with self._case():
            return TIMERS[case.kind](self._torch, case, GpuTimer(self._torch, watch), "cuda")

    def step(self, plan: PreparedStep, watch: BusyCallback) -> Timing:
        why = why_not_runnable(plan.workload, plan.shape)
        if why is not None:
            raise CannotRun(why)
        with self._case():
            return self._timed(plan, GpuTimer(self._torch, watch))

    def _timed(self, plan: PreparedStep, clock: GpuTimer) -> Timing:
        """Time a step in its own scope, so that the model is freed before the allocator's cache is emptied."""
        self._numerics(plan.workload)
        run = self._training(plan) if plan.workload.training else self._inference(plan, clock)
        return clock.step(run)

    @contextlib.contextmanager
    def _case(self) -> Iterator[None]:
        """Context of one case: an out-of-memory error becomes CannotRun, and GPU memory is freed afterwards."""
        torch = self._torch
        try:
            yield
        except torch.cuda.OutOfMemoryError:
            raise CannotRun(msg("measure.out-of-memory")) from None
        finally:
            torch.cuda.synchronize()
            dynamo = sys.modules.get("torch._dynamo")  # `torch._dynamo` as an attribute would import the module, which is slow.
            if dynamo is not None:
                dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()

    def _numerics(self, workload: Workload) -> None:
        backends = self._torch.backends
        backends.cuda.matmul.allow_tf32 = workload.precision == "tf32"
        backends.cudnn.allow_tf32 = workload.precision != "fp32"
        backends.cudnn.benchmark = not workload.training
        self._torch.manual_seed(0)

    def _training(self, plan: PreparedStep) -> Run:
        torch, workload = self._torch, plan.workload
        model = self._model(plan).train()
        inputs, targets = self._inputs(plan), self._targets(plan)
        optimizer = self._optimizer(workload, model)
        mixed = self._autocast(workload)
        scaler = torch.amp.GradScaler(self._device) if workload.precision == "amp-fp16" else None
        text = plan.shape.is_transformer

        def loss_of() -> Any:
            with mixed():
                out = model(inputs)
                out = getattr(out, "logits", out)
                out = out.float().view(-1, out.shape[-1]) if text else out.float()
                return torch.nn.functional.cross_entropy(out, targets)

        forward = self._compile(loss_of) if self._compiles(workload) else loss_of

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss = forward()
            (scaler.scale(loss) if scaler else loss).backward()
            if not workload.include_optimizer_step:
                return
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()

        return step

    def _inference(self, plan: PreparedStep, clock: GpuTimer) -> Run:
        workload = plan.workload
        generating = plan.shape.is_transformer and workload.traits.step in ("prefill", "decode")
        if generating and not engine_record(workload.engine).eager:
            return self._generating(plan, clock)
        torch, model, inputs = self._torch, self._model(plan).eval(), self._inputs(plan)
        mixed = self._autocast(workload)
        last = {"last_only": True} if workload.traits.step == "prefill" else {}

        def forward() -> Any:
            with torch.inference_mode(), mixed():
                return model(inputs, **last)

        if self._compiles(workload):
            return self._compile(forward)
        return clock.graph(forward) if engine_record(workload.engine).captures_graphs else forward

    def _generating(self, plan: PreparedStep, clock: GpuTimer) -> Run:
        """Return a function that runs prefill or decode with fused GEMMs and compiled layers, maybe as a CUDA graph."""
        torch, workload, shape = self._torch, plan.workload, as_transformer(plan.shape)
        batch, length = workload.local_batch, workload.seq_in or 1
        decoder = Decoder(torch, shape, batch, length, self._dtype(workload), self._device)
        self._compilable()
        decoder.compiled()
        tokens = 1 if workload.traits.step == "decode" else length
        ids = torch.randint(0, shape.vocab, (batch, tokens), device=self._device)

        def run() -> Any:
            with torch.no_grad():
                return decoder.decode(ids) if workload.traits.step == "decode" else decoder.prefill(ids)

        return clock.graph(run) if engine_record(workload.engine).captures_graphs else run

    def _compiles(self, workload: Workload) -> bool:
        return engine_record(workload.engine).fusion == "inductor"

    def _model(self, plan: PreparedStep) -> Any:
        torch, shape, workload = self._torch, plan.shape, plan.workload
        with torch.device(self._device), self._default_dtype(workload):
            if isinstance(shape, Mlp):
                pairs = zip(shape.units, shape.units[1:], strict=False)
                layers = [part for a, b in pairs for part in (torch.nn.Linear(a, b), torch.nn.ReLU())]
                model = torch.nn.Sequential(*layers[:-1])
            elif isinstance(shape, Transformer):
                model = transformer(torch, shape, workload.checkpointing == "full")
            else:
                model = vision_model(torch, shape.name)
        if isinstance(shape, TracedShape) and workload.memory_format == "channels_last":
            model = model.to(memory_format=torch.channels_last)
        return model

    @contextlib.contextmanager
    def _default_dtype(self, workload: Workload) -> Iterator[None]:
        """Context in which torch creates weights in the precision of the step, so that no more memory is used than needed."""
        before = self._torch.get_default_dtype()
        self._torch.set_default_dtype(self._dtype(workload))
        try:
            yield
        finally:
            self._torch.set_default_dtype(before)

    def _inputs(self, plan: PreparedStep) -> Any:
        torch, shape, workload = self._torch, plan.shape, plan.workload
        batch, dtype = workload.local_batch, self._dtype(workload)
        if isinstance(shape, Transformer):
            return torch.randint(0, shape.vocab, (batch, workload.seq_in or 1), device=self._device)
        if isinstance(shape, Mlp):
            return torch.randn(batch, shape.units[0], device=self._device, dtype=dtype)
        side = workload.image or 224
        images = torch.randn(batch, 3, side, side, device=self._device, dtype=dtype)
        return images.contiguous(memory_format=torch.channels_last) if workload.memory_format == "channels_last" else images

    def _targets(self, plan: PreparedStep) -> Any:
        shape, workload = plan.shape, plan.workload
        batch = workload.local_batch
        if isinstance(shape, Transformer):
            return self._torch.randint(0, shape.vocab, (batch * (workload.seq_in or 1),), device=self._device)
        classes = shape.units[-1] if isinstance(shape, Mlp) else 1000
        return self._torch.randint(0, classes, (batch,), device=self._device)

    def _optimizer(self, workload: Workload, model: Any) -> Any:
        optim, fused = self._torch.optim, {"fused": True} if workload.optimizer_fused else {}
        if workload.optimizer in ("adamw", "adam"):
            return (optim.AdamW if workload.optimizer == "adamw" else optim.Adam)(model.parameters(), lr=1e-5, **fused)
        return optim.SGD(model.parameters(), lr=1e-4, momentum=0.9 if workload.optimizer == "sgd-momentum" else 0.0)

    def _dtype(self, workload: Workload) -> Any:
        return getattr(self._torch, HALVES.get(workload.precision or "", "float32"))

    def _autocast(self, workload: Workload) -> Callable[[], Any]:
        kind, _, half = (workload.precision or "").partition("-")
        if kind != "amp":
            return contextlib.nullcontext
        return lambda: self._torch.autocast(self._device, dtype=getattr(self._torch, HALVES[half]))

    def _compile(self, run: Run) -> Run:
        self._compilable()
        compiled: Run = self._torch.compile(run, dynamic=False)
        return compiled

    def _compilable(self) -> None:
        """Raise CannotRun without Triton, which TorchInductor needs."""
        try:
            import_module("triton")
        except Exception:
            raise CannotRun(msg("measure.no-compiler")) from None
