"""The time of a workload on one GPU, as figures with ranges: what the device needs, what the host needs, what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import Calibration, load_calibration
from whichgpu.estimate.time.fallbacks import precision_warnings
from whichgpu.estimate.time.grid import evaluate
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

SOURCE = "speed-calibration"
BASES: dict[str, Basis] = {"measured": "measured", "imported": "calibrated", "gpu": "calibrated", "generation": "calibrated"}
GENERATING = ("serve", "batch")


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Seconds as the contract names them; `tier` says how near the measurements behind it are."""

    time: Figure
    time_device: Figure
    time_host: Figure
    throughput: Figure
    ttft: Figure | None
    tpot: Figure | None
    bound: str
    tier: str
    warnings: tuple[Message, ...] = ()


def time_of(workload: Workload, shape: Shape, gpu: Gpu, calibration: Calibration | None = None) -> TimeEstimate:
    """Time of one step, pass or token. `workload` has its defaults filled in."""
    calibration = calibration or load_calibration()
    grid = evaluate(workload, shape, [gpu], calibration=calibration)
    tier = calibration.tier(grid.engine, gpu, grid.kind)
    low, high = calibration.spread(tier, grid.kind, gpu.id)
    basis = BASES.get(tier, "modelled")
    sources = (SOURCE, *calibration.sources_of(grid.engine, gpu.id))

    def figure(value: float, floor: float = 0.0) -> Figure:
        return Figure(value, min(value, max(value * exp(low), floor)), value * exp(high), "s", basis, sources)

    wall = float(grid.seconds.wall[0, 0])
    done, unit = work(workload, shape)
    time = figure(wall, float(grid.floor[0, 0]))
    return TimeEstimate(
        time=time,
        time_device=figure(float(grid.seconds.device[0, 0]), float(grid.floor[0, 0])),
        time_host=figure(float(grid.seconds.host[0, 0])),
        throughput=Figure(done / time.value, done / time.high, done / time.low, unit, basis, sources),
        ttft=figure(float(grid.first[0, 0])) if workload.task == "serve" and grid.first is not None else None,
        tpot=time if workload.task == "serve" else None,
        bound=str(grid.bound(0, 0)),
        tier=tier,
        warnings=(*precision_warnings(workload, gpu), *grid.notes),
    )


def work(workload: Workload, shape: Shape) -> tuple[float, str]:
    """What one step gets done, over all GPUs, and in which unit."""
    batch = float(workload.batch or 1)
    if isinstance(shape, Transformer) and shape.patches is None:
        if workload.task in (*GENERATING, "decode") and shape.causal:
            return batch, "output tokens/s"
        if workload.task == "prefill" or workload.training:
            return batch * (workload.seq_in or 1), "input tokens/s"
    return batch, "samples/s"
