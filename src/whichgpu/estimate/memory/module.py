"""Memory of a module traced during the request, if torch is installed: the user's factory, or a torchvision or timm model."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.overhead import LOADED_KERNELS, context_bytes, device_range, kernel_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.workload.models import trace_command
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload

LIBRARIES = ("torchvision", "timm")
DEFAULT_IMAGE = 224  # pixels a side, the usual size of ImageNet models
# 90% ranges of the ratio of measured to traced memory, from 48 training steps (H200) and 499 timm models (A100).
ALLOCATED_RANGE, DEVICE_RANGE = (0.97, 1.05), (0.92, 1.09)


def recognise_module(name: str) -> TracedShape | None:
    """Return the model of `python:MODULE:FACTORY`, `torchvision:NAME`, `timm:NAME` or a bare name in either library, or None."""
    kind, colon, rest = name.partition(":")
    if colon and rest and kind in ("python", *LIBRARIES):
        if find_spec("torch") is None:
            raise UsageError(
                "needs-torch", msg("error.needs-torch", name=name[:80]), msg("hint.needs-torch", command=trace_command(name))
            )
        return TracedShape(rest, name, 0 if kind == "python" else DEFAULT_IMAGE)
    if find_spec("torch") is None:
        return None
    library = next((library for library in LIBRARIES if find_spec(library) and name in _names(library)), None)
    return TracedShape(name, f"{library}:{name}", DEFAULT_IMAGE) if library else None


def module_memory(workload: Workload, shape: TracedShape, gpu: Gpu | None) -> MemoryEstimate:
    """Return the peak memory of a training step or forward pass of the module, traced for this request."""
    from whichgpu.estimate.trace import images, trace, trace_factory

    kind, _, rest = shape.table.partition(":")
    options: dict[str, Any] = {
        "precision": workload.precision or "fp32",
        "optimizer": workload.optimizer or "sgd-momentum",
        "fused": workload.optimizer_fused,
        "training": workload.training,
    }
    if kind == "python":
        replay = trace_factory(rest, **options).replay()
    else:
        inputs = images(workload.local_batch, workload.image or shape.image)
        channels_last = workload.memory_format != "contiguous"
        replay = trace(model_factory(kind, rest), inputs, channels_last=channels_last, **options).replay()
    parts = dict(replay.breakdown)
    parts["activations"] = parts.get("activations", 0) + parts.pop("input", 0)
    parts["temporary"] = parts.get("temporary", 0) + replay.peak_allocated - sum(parts.values())
    slack = replay.peak_reserved - replay.peak_allocated
    kernels = kernel_bytes(engine_record(workload.engine, workload.year).memory, gpu, convolutions=kind != "python")
    parts |= {"workspace": workspace_bytes(gpu), "context": context_bytes(gpu, kernels), "slack": slack}
    spread = device_range(DEVICE_RANGE, parts, kernels, LOADED_KERNELS)
    warnings = (msg("warning.factory-batch", name=rest),) if kind == "python" else ()
    return build_estimate(parts, ALLOCATED_RANGE, spread, sources=("h200-training",), warnings=warnings)


def _names(library: str) -> frozenset[str]:
    return frozenset((_torchvision().models if library == "torchvision" else _timm()).list_models())


def model_factory(library: str, name: str) -> Callable[[], Any]:
    """Return a function that makes a model of torchvision or timm without pretrained weights."""
    if name not in _names(library):
        message = msg("error.unknown-model", name=f"{library}:{name}")
        raise UsageError("unknown-model", message, msg("hint.model"))
    if library == "torchvision":
        return lambda: _torchvision().models.get_model(name, weights=None)
    return lambda: _timm().create_model(name, pretrained=False)


def _torchvision() -> Any:
    from whichgpu.estimate.trace.framework import load_torchvision

    return load_torchvision()


def _timm() -> Any:
    _torchvision()  # The import order matters: timm imports torchvision, which needs our loader on a CPU-only torch.
    return import_module("timm")
