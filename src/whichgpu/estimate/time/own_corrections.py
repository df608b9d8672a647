"""Corrections measured on one GPU itself, on top of those fitted for all: plain data, made from a record of `measure`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import exp, log
from typing import TYPE_CHECKING

from whichgpu.base.figure import Basis
from whichgpu.base.version import __version__
from whichgpu.estimate.time.calibration import Calibration, CorrectionKey, Tier
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.terms import TERMS

if TYPE_CHECKING:
    import numpy as np

    from whichgpu.catalog.gpu import Gpu

# Groups of steps that may have their own multipliers on this GPU, the most general first.
ALL_STEPS = "all"
MIN_LOG_HALF_WIDTH = log(1.04)  # no range is narrower: runs of one step differ by this much from day to day
ANY_STEP = "any"
FIT_VERSION = 2  # of `measure.fit`: fits made by earlier rules are made anew
OWN_TIERS = ("measured", "imported")


@dataclass(frozen=True, slots=True)
class OwnCorrections:
    """Log multipliers by group (`all`, an engine, `engine/task`) and term; half-widths of 90% ranges in log, by kind of step."""

    gpu: str
    source: str  # names the record
    basis: Basis  # measured on the user's own machine, calibrated by someone else's record
    kinds: tuple[str, ...]  # that were measured, as `engine/task`
    multipliers: Mapping[str, Mapping[str, float]]
    spreads: Mapping[str, float]
    against: str = ""  # the version of the calibration it corrects

    def log_multiplier(self, engine: str, task: str, term: str) -> float:
        """The sum over the groups of a step; engines that were not measured share what all have in common."""
        return sum(self.multipliers.get(group, {}).get(term, 0.0) for group in correction_groups(engine, task))

    def log_range(self, kind: str) -> tuple[float, float]:
        """The 90% range as log factors."""
        width = max(MIN_LOG_HALF_WIDTH, self.spreads.get(kind, self.spreads.get(ANY_STEP, MIN_LOG_HALF_WIDTH)))
        return -width, width


@dataclass(frozen=True, slots=True)
class OwnCalibration(Calibration):
    """The shipped calibration with a user's own measurements on top, by GPU."""

    own: Mapping[str, OwnCorrections] = field(default_factory=dict)

    def tier(self, engine: str, gpu: Gpu, kind: str = "", precision: str = "") -> Tier:
        """Where this kind of step was measured on this GPU under this engine, nothing is nearer."""
        own = self.own.get(gpu.id)
        if own and f"{engine}/{kind}" in own.kinds:
            return "measured" if own.basis == "measured" else "imported"
        return Calibration.tier(self, engine, gpu, kind, precision)

    def log_range(self, tier: Tier, kind: str, gpu: str = "", engine: str = "") -> tuple[float, float]:
        """What was measured on a GPU itself has its own range, never wider than that of a GPU of which nothing is known."""
        if tier not in OWN_TIERS:
            return Calibration.log_range(self, tier, kind, gpu, engine)
        low, high = self.own[gpu].log_range(kind)
        lowest, highest = Calibration.log_range(self, "none", kind)
        return max(low, lowest), min(high, highest)

    def sources_of(self, engine: str, gpu: str = "") -> tuple[str, ...]:
        """The record first."""
        own = self.own.get(gpu)
        return (*((own.source,) if own else ()), *Calibration.sources_of(self, engine))

    def factors(self, settings: Sequence[CorrectionKey]) -> np.ndarray:
        """Both corrections together."""
        found = Calibration.factors(self, settings)
        for place, setting in enumerate(settings):
            if own := self.own.get(setting.gpu):
                found[:, place] *= [exp(own.log_multiplier(setting.engine, setting.task, term)) for term in TERMS]
        return found


def with_own_corrections(calibration: Calibration, own: Mapping[str, OwnCorrections]) -> Calibration:
    """A calibration with these measurements on top; the same one where there are none."""
    if not own:
        return calibration
    return OwnCalibration(**{one.name: getattr(calibration, one.name) for one in fields(Calibration)}, own=own)


def calibration_version(calibration: Calibration) -> str:
    """What tells one fit from another: own measurements are corrections of one fit, as one version of the program applies it."""
    told = json.dumps([__version__, FIT_VERSION, calibration.multipliers, parameters()], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def correction_groups(engine: str, task: str) -> tuple[str, str, str]:
    """The groups a step belongs to.

    >>> correction_groups("pytorch", "train")
    ('all', 'pytorch', 'pytorch/train')
    """
    return ALL_STEPS, engine, f"{engine}/{task}"
