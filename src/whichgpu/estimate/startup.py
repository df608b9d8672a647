"""Seconds from the start of a serving engine to its first request: reading weights, compilation, capture of CUDA graphs."""

from __future__ import annotations

from whichgpu.base.figure import Figure
from whichgpu.catalog.engines.record import EngineStart
from whichgpu.estimate.memory.engine_memory import engine_of
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

READ_BANDWIDTH = 2e9  # bytes per second from a local disk through the host to the GPU (assumed)
READ_RANGE = (0.25, 4.0)  # factors: from weights in the page cache to a network disk (assumed)
# Measured starts of five models are 0.75 to 1.35 times those of `start_seconds`; hosts with slower CPUs take longer (assumed).
START_RANGE = (0.6, 2.0)


def engine_startup(workload: Workload, shape: Transformer, weights: float) -> Figure | None:
    """Return the seconds until a serving engine is ready, None if no start was measured; `weights`: bytes on one GPU."""
    start = engine_of(workload).start
    if not start.fixed:
        return None
    read = weights * workload.parallel.tp * workload.parallel.pp / READ_BANDWIDTH
    own = start_seconds(start, shape.layers, shape.experts is not None)
    low, high = (own * START_RANGE[end] + read * READ_RANGE[end] for end in (0, 1))
    return Figure(own + read, low, high, "s", "calibrated", ("truth-h200",))


def start_seconds(start: EngineStart, layers: int, moe: bool) -> float:
    """Return the seconds a serving engine takes to compile and capture CUDA graphs at its start, without reading weights.

    >>> start_seconds(EngineStart(fixed=59.0, compile_per_layer=0.5, capture=0.25, capture_moe=0.44, graph_sizes=52), 32, False)
    88.0
    """
    return start.fixed + start.compile_per_layer * layers + (start.capture_moe if moe else start.capture) * start.graph_sizes
