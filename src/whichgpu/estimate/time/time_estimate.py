"""Time of a workload on a GPU as figures with ranges: device, host and wall time, and the bound of the step."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import msgspec

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import Calibration, load_calibration
from whichgpu.estimate.time.fallbacks import precision_warnings
from whichgpu.estimate.time.grid import TimeGrid, evaluate_grid
from whichgpu.estimate.time.software_age import age_warnings
from whichgpu.estimate.time.step_confidence import step_confidence
from whichgpu.workload.denoisers import counts_steps, makes_videos, pipeline_of
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

CALIBRATION_SOURCE = "speed-calibration"


class TimeEstimate(msgspec.Struct, frozen=True):
    """Seconds of a step. `tier` says how close the nearest measurements are, `new_on` on which axes there are none.

    `calibrated` is the date of the fit.
    """

    time: Figure
    time_device: Figure
    time_host: Figure
    throughput: Figure
    ttft: Figure | None
    tpot: Figure | None
    bound: str
    tier: str
    new_on: tuple[str, ...]
    calibrated: str
    warnings: tuple[Message, ...] = ()


def estimate_time(workload: Workload, shape: Shape, gpu: Gpu, calibration: Calibration | None = None) -> TimeEstimate:
    """Estimate the time of one step, pass or token on a GPU. `workload` has its defaults filled in."""
    return estimate_times(workload, shape, [gpu], calibration)[0]


def estimate_times(
    workload: Workload, shape: Shape, gpus: Sequence[Gpu], calibration: Calibration | None = None
) -> list[TimeEstimate]:
    """Estimate the time of one step, pass or token on each of several GPUs in one call."""
    calibration = calibration or load_calibration()
    grid = evaluate_grid(workload, shape, gpus, calibration=calibration)
    return [_estimate(workload, shape, gpu, grid, place, calibration) for place, gpu in enumerate(gpus)]


def _estimate(workload: Workload, shape: Shape, gpu: Gpu, grid: TimeGrid, place: int, calibration: Calibration) -> TimeEstimate:
    """Return the figures of the GPU at index `place` of a grid of times."""
    bound = grid.bound(place, 0)
    confidence = step_confidence(workload, shape, gpu, grid.kind, bound, calibration)
    low, high, basis = confidence.low, confidence.high, confidence.basis
    sources = (CALIBRATION_SOURCE, *calibration.sources_of(grid.engine, gpu.id))

    def figure(value: float, floor: float = 0.0) -> Figure:
        return Figure(value, min(value, max(value * exp(low), floor)), value * exp(high), "s", basis, sources)

    work, unit = work_per_step(workload, shape)
    floor = float(grid.floor[place, 0])
    time = figure(float(grid.seconds.wall[place, 0]), floor)
    return TimeEstimate(
        time=time,
        time_device=figure(float(grid.seconds.device[place, 0]), floor),
        time_host=figure(float(grid.seconds.host[place, 0])),
        throughput=Figure(work / time.value, work / time.high, work / time.low, unit, basis, sources),
        ttft=figure(float(grid.ttft[place, 0])) if workload.serving and grid.ttft is not None else None,
        tpot=time if workload.serving else None,
        bound=bound,
        tier=confidence.tier,
        new_on=confidence.new_on,
        calibrated=str(calibration.provenance["date"]),
        warnings=(*precision_warnings(workload, gpu), *age_warnings(workload, gpu), *grid.notes),
    )


def work_per_step(workload: Workload, shape: Shape) -> tuple[float, str]:
    """Return the samples, tokens, pictures or denoising steps of a step over all GPUs, and the rate's unit, such as samples/s."""
    batch = float(workload.batch or 1)
    if shape.is_language_model:
        if workload.traits.decoding and shape.causal:
            return batch, "output tokens/s"
        if workload.traits.step == "prefill" or workload.training:
            return batch * (workload.seq_in or 1), "input tokens/s"
    if pipeline_of(workload, shape):
        return batch, "videos/s" if makes_videos(shape) else "pictures/s"
    return batch, "denoising steps/s" if counts_steps(workload, shape) else "samples/s"
