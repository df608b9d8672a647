"""Corrections measured on the user's GPU, applied on top of the shipped ones; plain data made from a record of `measure`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import TYPE_CHECKING

import msgspec

from whichgpu.base.figure import Basis
from whichgpu.base.version import __version__
from whichgpu.estimate.confidence.spread import Confidence
from whichgpu.estimate.time.calibration import Calibration, CorrectionKey
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.terms import TERMS

if TYPE_CHECKING:
    import numpy as np

ALL_STEPS = "all"  # name of the most general group of steps, whose multipliers all engines of a record share
MIN_LOG_HALF_WIDTH = log(1.04)  # measured day-to-day difference between runs of one step
ANY_STEP = "any"
FIT_VERSION = 4  # version of `measure.fit`; fits of earlier versions are repeated
MAX_LOG_WIDTH = 1.0  # nearly three times: measurements that scatter more say nothing, and their range is wide enough


class OwnCorrections(msgspec.Struct, frozen=True):
    """Corrections of step times on one GPU from a user's record of measurements."""

    gpu: str
    source: str  # name of the user's record of measurements
    basis: Basis  # measured: on the user's own machine; calibrated: someone else's record
    kinds: tuple[str, ...]  # steps that were measured, as `engine/task`
    multipliers: Mapping[str, Mapping[str, float]]  # log, by group (`all`, `engine`, `engine/task`) and time term (`gemm`)
    spreads: Mapping[str, float]  # half-widths of 90% ranges as log factors, by kind of step
    against: str = ""  # version of the shipped calibration to which the corrections apply

    def log_multiplier(self, engine: str, task: str, term: str) -> float:
        """Return the log multiplier of a time term (e.g. `gemm` seconds): the sum over groups `all`, `engine`, `engine/task`."""
        return sum(self.multipliers.get(group, {}).get(term, 0.0) for group in correction_groups(engine, task))

    def log_factor_range(self, kind: str) -> tuple[float, float]:
        """Return the 90% range of the time of a kind of step (train, decode, …) as log factors."""
        width = max(MIN_LOG_HALF_WIDTH, self.spreads.get(kind, self.spreads.get(ANY_STEP, MIN_LOG_HALF_WIDTH)))
        return -width, width


class OwnCalibration(Calibration, frozen=True):
    """Shipped calibration, corrected on each GPU by the user's own records (`own`, by GPU id, the preferred record first)."""

    own: Mapping[str, tuple[OwnCorrections, ...]] = msgspec.field(default_factory=dict)

    def record_for(self, gpu: str, engine: str, task: str) -> OwnCorrections | None:
        """Return the corrections of the first record that measured this kind of step, else of the first of this engine.

        Records of other engines say nothing of it.
        """
        records = self.own.get(gpu, ())
        with_engine = (one for one in records if any(kind.startswith(f"{engine}/") for kind in one.kinds))
        return next((one for one in records if f"{engine}/{task}" in one.kinds), None) or next(with_engine, None)

    def own_confidence(self, engine: str, gpu: str, kind: str) -> Confidence | None:
        """Return the confidence of a kind of step that the user measured on a GPU; None if it was not measured."""
        own = self.record_for(gpu, engine, kind)
        if own is None or f"{engine}/{kind}" not in own.kinds:
            return None
        low, high = own.log_factor_range(kind)
        return Confidence(
            "here" if own.basis == "measured" else "measured", (), max(low, -MAX_LOG_WIDTH), min(high, MAX_LOG_WIDTH)
        )

    def sources_of(self, engine: str, gpu: str = "") -> tuple[str, ...]:
        """Return the names of the user's records used for an engine, followed by the sources of the shipped calibration."""
        used = (self.record_for(gpu, engine, kind.partition("/")[2]) for kind in self._kinds(gpu, engine))
        names = dict.fromkeys(one.source for one in used if one)
        return (*names, *Calibration.sources_of(self, engine, gpu))

    def _kinds(self, gpu: str, engine: str) -> tuple[str, ...]:
        """Return the measured kinds of steps of an engine on a GPU; a kind nobody measured if there is none."""
        measured = [kind for one in self.own.get(gpu, ()) for kind in one.kinds if kind.startswith(f"{engine}/")]
        return tuple(dict.fromkeys(measured)) or (f"{engine}/",)

    def factors(self, keys: Sequence[CorrectionKey]) -> np.ndarray:
        """Return the shipped times the user's multipliers of each time term (class of operator or host work), [terms, keys]."""
        multipliers = Calibration.factors(self, keys)
        for place, key in enumerate(keys):
            if own := self.record_for(key.gpu, key.engine, key.task):
                multipliers[:, place] *= [exp(own.log_multiplier(key.engine, key.task, term)) for term in TERMS]
        return multipliers


def with_own_corrections(calibration: Calibration, own: Mapping[str, tuple[OwnCorrections, ...]]) -> Calibration:
    """Return the calibration with the user's own corrections of each GPU (by id) on top; unchanged if there are none."""
    if not own:
        return calibration
    return OwnCalibration(**{name: getattr(calibration, name) for name in Calibration.__struct_fields__}, own=own)


def calibration_version(calibration: Calibration) -> str:
    """Return a digest of the shipped fit and the program's version; a user's own corrections apply to one such version only."""
    content = json.dumps([__version__, FIT_VERSION, calibration.multipliers, parameters()], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def correction_groups(engine: str, task: str) -> tuple[str, str, str]:
    """Return the keys under which a step's own corrections are stored, the most general first.

    >>> correction_groups("pytorch", "train")
    ('all', 'pytorch', 'pytorch/train')
    """
    return ALL_STEPS, engine, f"{engine}/{task}"
