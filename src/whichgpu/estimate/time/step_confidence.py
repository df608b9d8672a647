"""Confidence in the time of a step on a device: from the user's own measurements, those of an accelerator, or those of GPUs."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.confidence.axes import axes_of
from whichgpu.estimate.confidence.spread import Confidence, confidence_of
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.rooflines import roofline_measured, roofline_row
from whichgpu.estimate.time.software_age import widened
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

UNMEASURED_LOG_RANGE = (-0.7, 1.0)  # assumed where no such chip was measured: from half to nearly three times


def step_confidence(
    workload: Workload, shape: Shape, gpu: Gpu, kind: str, bound: str, calibration: Calibration | None = None
) -> Confidence:
    """Return the confidence in a step's time. `calibration` holds the user's own measurements on one GPU, if there are any."""
    family = architecture_of(gpu).roofline
    confidence = (
        roofline_confidence(family, gpu.id, kind) if family else confidence_of(axes_of(workload, shape, gpu, kind, bound))
    )
    low, high = widened((confidence.low, confidence.high), workload, gpu)
    own = calibration.own_confidence(workload.engine or default_engine(), gpu.id, kind) if calibration else None
    if own is not None:  # A few measurements, or scattered ones, never make a range wider than it is without them.
        return replace(own, low=max(own.low, low), high=min(own.high, high))
    return replace(confidence, low=low, high=high)


def roofline_confidence(family: str, gpu: str, kind: str) -> Confidence:
    """Return the confidence in a step's time on an accelerator that is no GPU.

    >>> [roofline_confidence("tpu", *one).tier for one in (("tpu-v5p", "train"), ("tpu-v6e", "train"), ("tpu-v5p", "decode"))]
    ['measured', 'extrapolated', 'specs']
    """
    if row := roofline_row(gpu, kind):
        return Confidence("measured" if row.rows else "kin", () if row.rows else ("gpu",), row.low, row.high)
    measured = roofline_measured(family, kind)
    return Confidence("extrapolated" if measured else "specs", ("gpu" if measured else "maker",), *UNMEASURED_LOG_RANGE)
