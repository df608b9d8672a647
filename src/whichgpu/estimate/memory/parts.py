"""A memory estimate: named parts that add up, two totals, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message

# Parts in display order. The parts before `context` are allocated by the framework's allocator.
PARTS = (
    "weights",
    "text_encoders",  # weights of a picture model's text encoders
    "vae",  # weights of a picture model's autoencoder
    "master_weights",
    "adapters",
    "gradients",
    "optimizer",
    "cast_weights",  # 16-bit copies that autocast makes of fp32 weights
    "activations",
    "kv_cache",
    "temporary",  # tensors that live only at the peak: logits, recomputed blocks, gradients in flight, gathered shards
    "workspace",  # cuBLAS, cuDNN and other libraries, allocated through the framework
    "cuda_graphs",
    "context",  # CUDA context and loaded kernels
    "slack",  # reserved by the allocator but not allocated: rounding, fragmentation, cached blocks
)
OUTSIDE_ALLOCATOR = ("context", "slack")


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Peak memory on the fullest GPU. `allocated` is inside the framework's allocator, `device` is what nvidia-smi shows."""

    allocated: Figure
    device: Figure
    parts: Mapping[str, Figure]
    warnings: tuple[Message, ...] = ()


def build_estimate(
    parts: Mapping[str, int],
    spread_allocated: tuple[float, float],
    spread_device: tuple[float, float],
    basis: Basis = "calibrated",
    sources: tuple[str, ...] = (),
    warnings: tuple[Message, ...] = (),
) -> MemoryEstimate:
    """Sum parts (bytes) into the totals `allocated` and `device`; their spreads are 90% ranges as factors."""

    def figure(value: float, spread: tuple[float, float]) -> Figure:
        return Figure(value, value * spread[0], value * spread[1], "byte", basis, sources)

    allocated = sum(size for name, size in parts.items() if name not in OUTSIDE_ALLOCATOR)
    figures = {name: figure(parts[name], spread_allocated) for name in PARTS if parts.get(name)}
    device = figure(sum(parts.values()), spread_device)
    return MemoryEstimate(figure(allocated, spread_allocated), device, figures, warnings)
