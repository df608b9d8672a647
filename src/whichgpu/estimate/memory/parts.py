"""What an answer about memory is made of: named parts that add up, two totals, and a range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message

# Parts in the order they are shown. Those before `context` are inside the framework's allocator.
PARTS = (
    "weights",
    "master_weights",
    "adapters",
    "gradients",
    "optimizer",
    "cast_weights",  # 16-bit copies that autocast makes of 32-bit weights for one step
    "activations",
    "kv_cache",
    "temporary",  # what lives only at the peak: logits, recomputed blocks, gradients in flight, gathered shards
    "workspace",  # cuBLAS, cuDNN and other libraries, as allocated through the framework
    "cuda_graphs",
    "context",  # CUDA context and loaded kernels: outside the allocator
    "slack",  # allocator rounding, fragmentation and caches: reserved but not allocated
)
OUTSIDE_ALLOCATOR = ("context", "slack")


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Peak on the fullest GPU. `allocated` is what the framework allocates, `device` what the device tool shows in use."""

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
    """Sum parts (bytes) into the two totals; the spreads are the 90% range as factors of the total."""

    def figure(value: float, spread: tuple[float, float]) -> Figure:
        return Figure(value, value * spread[0], value * spread[1], "byte", basis, sources)

    inside = sum(size for name, size in parts.items() if name not in OUTSIDE_ALLOCATOR)
    total = sum(parts.values())
    told = {name: figure(parts[name], spread_allocated) for name in PARTS if parts.get(name)}
    return MemoryEstimate(figure(inside, spread_allocated), figure(total, spread_device), told, warnings)
