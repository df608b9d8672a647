"""The 90% range of a configuration's step time, by the evidence tier behind it, as `estimate` reports it."""

from __future__ import annotations

from math import exp

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Basis, Figure
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.confidence.probability import FactorDistribution
from whichgpu.estimate.group.group_answer import GROUP_SOURCE
from whichgpu.estimate.time.step_confidence import step_confidence
from whichgpu.estimate.time.time_estimate import CALIBRATION_SOURCE


class TimeRange(msgspec.Struct, frozen=True):
    """Factors on an estimated time that give the low and high end of its 90% range, and the evidence they rest on."""

    low: float
    high: float
    basis: Basis
    sources: tuple[str, ...]
    tier: str
    new_on: tuple[str, ...]

    @property
    def factor(self) -> FactorDistribution:
        """Return the distribution of the true time over the estimated one."""
        return FactorDistribution(self.low, self.high)

    def seconds(self, value: float) -> Figure:
        """Return a time in seconds with its 90% range."""
        return Figure(value, value * self.low, value * self.high, "s", self.basis, self.sources)

    def rate(self, value: float, unit: str) -> Figure:
        """Return a throughput with its 90% range, the inverse of the range of the step time."""
        return Figure(value, value / self.high, value / self.low, unit, self.basis, self.sources)


def time_range(request: WorkloadRequest, group: Group, one: Configuration) -> TimeRange:
    """Return the 90% range of a configuration's step time on a group of GPUs."""
    gpu, calibration = group.gpu, request.calibration
    spans_nodes = request.workload.training or one.parallel.tp * one.parallel.pp > group.per_machine
    nodes = group.machines if spans_nodes else 1
    workload = replace(request.workload, precision=one.precision, parallel=one.parallel, batch=one.batch, nodes=nodes)
    engine = workload.engine or default_engine()
    several = one.parallel.tp * one.parallel.pp > 1 or (group.gpus > 1 and workload.training)
    confidence = step_confidence(workload, request.shape, gpu, one.kind, one.bound, None if several else calibration)
    sources = (CALIBRATION_SOURCE, *calibration.sources_of(engine, gpu.id), *((GROUP_SOURCE,) if several else ()))
    floor = one.floor / one.seconds if one.seconds else 0.0  # The low end is never below the roofline time.
    low, high = min(1.0, max(exp(confidence.low), floor)), max(1.0, exp(confidence.high))
    return TimeRange(low, high, confidence.basis, tuple(dict.fromkeys(sources)), confidence.tier, confidence.new_on)
