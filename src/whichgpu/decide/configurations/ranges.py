"""How sure a way's seconds are: the range of its evidence, as `estimate` tells it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from whichgpu.base.figure import Basis, Figure
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.group.group_answer import GROUP_SOURCE, OTHER_KINDS
from whichgpu.estimate.group.group_calibration import load_group_calibration
from whichgpu.estimate.time.time_estimate import BASIS_BY_TIER, CALIBRATION_SOURCE


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Factors of the low and high end of a time, and what stands behind it."""

    low: float
    high: float
    basis: Basis
    sources: tuple[str, ...]
    tier: str

    def seconds(self, value: float) -> Figure:
        """A time with its range."""
        return Figure(value, value * self.low, value * self.high, "s", self.basis, self.sources)

    def rate(self, value: float, unit: str) -> Figure:
        """A speed with its range."""
        return Figure(value, value / self.high, value / self.low, unit, self.basis, self.sources)


def time_range(asked: WorkloadRequest, group: Group, way: Configuration) -> TimeRange:
    """Of one way on one group."""
    engine, gpu, fitted = asked.workload.engine or default_engine(), group.gpu, asked.calibration
    alone_tier = fitted.tier(engine, gpu, way.kind, asked.workload.precision or "")
    tier: str = alone_tier
    low, high = fitted.log_range(alone_tier, way.kind, gpu.id, engine)
    basis: Basis = BASIS_BY_TIER.get(alone_tier, "modelled")
    sources = (CALIBRATION_SOURCE, *fitted.sources_of(engine, gpu.id))
    if way.parallel.tp * way.parallel.pp > 1 or (group.gpus > 1 and asked.workload.training):
        groups = load_group_calibration()
        alone = (low, high) if tier in OTHER_KINDS else None
        tier = together = groups.tier(engine, gpu)
        low, high = groups.log_range(together, way.kind)
        if alone:
            low, high = min(low, alone[0]), max(high, alone[1])
        basis = "modelled" if together == "group-other" else "calibrated"
        sources = (*sources, GROUP_SOURCE)
    least = way.floor / way.seconds if way.seconds else 0.0  # no time beats physics, however wide its range
    return TimeRange(min(1.0, max(exp(low), least)), max(1.0, exp(high)), basis, tuple(dict.fromkeys(sources)), tier)
