"""The 90% range of a configuration's step time, by the evidence tier behind it, as `estimate` reports it."""

from __future__ import annotations

from math import exp

import msgspec

from whichgpu.base.figure import Basis, Figure
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.group.group_answer import GROUP_SOURCE, OTHER_KINDS, UNMEASURED_GROUPS
from whichgpu.estimate.group.group_calibration import load_group_calibration
from whichgpu.estimate.time.software_age import widened
from whichgpu.estimate.time.time_estimate import BASIS_BY_TIER, CALIBRATION_SOURCE


class TimeRange(msgspec.Struct, frozen=True):
    """Factors on an estimated time that give the low and high end of its 90% range, and the evidence they rest on."""

    low: float
    high: float
    basis: Basis
    sources: tuple[str, ...]
    tier: str

    def seconds(self, value: float) -> Figure:
        """Return a time in seconds with its 90% range."""
        return Figure(value, value * self.low, value * self.high, "s", self.basis, self.sources)

    def rate(self, value: float, unit: str) -> Figure:
        """Return a throughput with its 90% range, the inverse of the range of the step time."""
        return Figure(value, value / self.high, value / self.low, unit, self.basis, self.sources)


def time_range(request: WorkloadRequest, group: Group, one: Configuration) -> TimeRange:
    """Return the 90% range of a configuration's step time on a group of GPUs."""
    engine, gpu, calibration = request.workload.engine or default_engine(), group.gpu, request.calibration
    gpu_tier = calibration.tier(engine, gpu, one.kind, request.workload.precision or "")
    tier: str = gpu_tier
    low, high = calibration.log_factor_range(gpu_tier, one.kind, gpu.id, engine)
    basis: Basis = BASIS_BY_TIER.get(gpu_tier, "modelled")
    sources = (CALIBRATION_SOURCE, *calibration.sources_of(engine, gpu.id))
    if one.parallel.tp * one.parallel.pp > 1 or (group.gpus > 1 and request.workload.training):
        groups = load_group_calibration()
        tier = group_tier = groups.tier(engine, gpu, one.kind)
        group_low, group_high = groups.log_factor_range(group_tier, one.kind, gpu.id)
        # A group of GPUs of an unmeasured kind is at least as uncertain as one such GPU.
        wider = gpu_tier in OTHER_KINDS
        low, high = (min(group_low, low), max(group_high, high)) if wider else (group_low, group_high)
        basis = "modelled" if group_tier in UNMEASURED_GROUPS else "calibrated"
        sources = (*sources, GROUP_SOURCE)
    low, high = widened((low, high), request.workload, gpu)
    floor = one.floor / one.seconds if one.seconds else 0.0  # The low end is never below the roofline time.
    return TimeRange(min(1.0, max(exp(low), floor)), max(1.0, exp(high)), basis, tuple(dict.fromkeys(sources)), tier)
