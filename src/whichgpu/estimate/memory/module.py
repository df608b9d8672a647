"""Memory of a module traced on the spot, where torch is installed: the user's own factory, or a model of torchvision or timm."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.overhead import context_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload

LIBRARIES = ("torchvision", "timm")
DEFAULT_IMAGE = 224
# Measured over traced, on 48 training steps (H200) and 499 timm models (A100): 90% ranges as factors.
ALLOCATED_RANGE, DEVICE_RANGE = (0.97, 1.05), (0.92, 1.09)


def recognise_module(name: str) -> TracedShape | None:
    """What `python:MODULE:FACTORY`, `torchvision:NAME`, `timm:NAME` or a plain name of either library stands for."""
    kind, colon, rest = name.partition(":")
    if colon and rest and kind in ("python", *LIBRARIES):
        if find_spec("torch") is None:
            raise UsageError("needs-torch", msg("error.needs-torch", name=name[:80]), msg("hint.needs-torch"))
        return TracedShape(rest, name, 0 if kind == "python" else DEFAULT_IMAGE)
    if find_spec("torch") is None:
        return None
    library = next((library for library in LIBRARIES if find_spec(library) and name in _names(library)), None)
    return TracedShape(name, f"{library}:{name}", DEFAULT_IMAGE) if library else None


def module_memory(workload: Workload, shape: TracedShape, gpu: Gpu | None) -> MemoryEstimate:
    """Peak of a step or forward pass of the module, by tracing it for this very request."""
    from whichgpu.estimate.trace import images, trace, trace_factory

    kind, _, rest = shape.table.partition(":")
    options: dict[str, Any] = {
        "precision": workload.precision or "fp32",
        "optimizer": workload.optimizer or "sgd-momentum",
        "fused": workload.optimizer_fused,
        "training": workload.training,
    }
    if kind == "python":
        told = trace_factory(rest, **options).replay()
    else:
        size = workload.image or shape.image
        channels_last = workload.memory_format != "contiguous"
        made = model_factory(kind, rest)
        told = trace(made, images(workload.local_batch, size), channels_last=channels_last, **options).replay()
    parts = {"activations" if label == "input" else label: 0 for label in told.breakdown}
    for label, held in told.breakdown.items():
        parts["activations" if label == "input" else label] += held
    parts["temporary"] = parts.get("temporary", 0) + told.peak_allocated - sum(parts.values())
    parts |= {"workspace": workspace_bytes(gpu), "context": context_bytes(gpu), "slack": told.peak_reserved - told.peak_allocated}
    warnings = (msg("warning.factory-batch", name=rest),) if kind == "python" else ()
    return build_estimate(parts, ALLOCATED_RANGE, DEVICE_RANGE, sources=("h200-training",), warnings=warnings)


def _names(library: str) -> frozenset[str]:
    return frozenset((_torchvision().models if library == "torchvision" else _timm()).list_models())


def model_factory(library: str, name: str) -> Callable[[], Any]:
    """What makes a model of torchvision or timm, without weights."""
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
    _torchvision()  # timm imports it, which on a CPU-only torch needs help
    return import_module("timm")
