"""The 90% range of an estimate: the spread of its kind of step, wider by a term for each axis on which it is new.

Half-widths are in log: one for measured times below the estimate (`faster`), one for those above (`slower`). That of a kind of
step is the spread of any step times factors of its engine, regime, model family, …; terms of new axes are shares of it that add
up in quadrature. All are in `data/parameters.csv`, which `make refit` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import log, prod, sqrt
from pathlib import Path
from typing import Literal

import msgspec

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.figure import Basis
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.confidence.axes import Axes
from whichgpu.estimate.confidence.novelty import Measured, load_measured

PARAMETERS_FILE = Path(__file__).parent / "data" / "parameters.csv"
SIDES = ("faster", "slower")
ANY_STEP = "any step"
ONE_SOURCE_LOG_WIDTH = log(1.25)  # one source alone never gives a narrower range: its machine may be unusual

Terms = Mapping[str, Mapping[str, float]]  # terms of the ranges by side and name
Tier = Literal["here", "measured", "kin", "extrapolated", "specs"]
BASIS_BY_TIER: Mapping[Tier, Basis] = {
    "here": "measured", "measured": "calibrated", "kin": "calibrated", "extrapolated": "modelled", "specs": "modelled",
}  # fmt: skip
NEAR_AXES = {"gpu", "version", "regime", "batch", "context", "gpu anywhere"}  # new on these alone, an estimate is of close kin
SPEC_AXES = {"maker", "generation anywhere"}  # new on one of these, nothing like it was measured


class Confidence(msgspec.Struct, frozen=True):
    """How far an estimated time can be trusted: its tier, the axes on which it is new, and its 90% range as log factors."""

    tier: Tier
    new_on: tuple[str, ...]
    low: float
    high: float

    @property
    def basis(self) -> Basis:
        """Return what the estimate rests on, as figures name it."""
        return BASIS_BY_TIER[self.tier]


def confidence_of(axes: Axes) -> Confidence:
    """Return the tier, the new axes and the 90% range of a step's estimated time."""
    measured, terms = load_measured(), load_terms()
    new = measured.new_on(axes)
    low, high = (log_half_width(axes, new, terms[side], measured) for side in SIDES)
    return Confidence(tier_of(new), named_axes(new), -low, high)


def log_half_width(axes: Axes, new: Mapping[str, float], terms: Mapping[str, float], measured: Measured) -> float:
    """Return half the width of a range in log, no less than one source's if only one measured the family under the engine."""
    width = spread(axes, new, terms)
    return max(width, ONE_SOURCE_LOG_WIDTH) if len(measured.sources(axes, "family")) <= 1 else width


def spread(axes: Axes, new: Mapping[str, float], terms: Mapping[str, float]) -> float:
    """Return the log half-width of a step's range: that of its kind of step, wider by the terms of its new axes."""
    own = terms[ANY_STEP] * prod(terms.get(name, 1.0) for name in kind_names(axes))
    return own * sqrt(1 + sum(terms.get(f"new {axis}", 0.0) ** 2 * amount for axis, amount in new.items()))


def kind_names(axes: Axes) -> tuple[str, ...]:
    """Return the names of the factors on the spread of a step's kind of step."""
    return (
        f"style {axes.task} {engine_record(axes.engine).style}",
        f"engine {axes.task} {axes.engine}",
        f"regime {axes.regime}",
        f"family {axes.family}",
        f"maker {axes.maker}",
        f"precision {axes.precision}",
    )


def tier_of(new: Mapping[str, float]) -> Tier:
    """Return the tier of evidence by the axes on which a question is new."""
    if not new:
        return "measured"
    if new.keys() & SPEC_AXES:
        return "specs"
    return "kin" if new.keys() <= NEAR_AXES else "extrapolated"


def named_axes(new: Mapping[str, float]) -> tuple[str, ...]:
    """Return the axes to name to a user: the widest of GPU, generation and maker, and no axis twice."""
    names = dict.fromkeys(axis.removesuffix(" anywhere").removesuffix(" on generation") for axis in new)
    hidden = {"maker": ("generation", "gpu"), "generation": ("gpu",)}
    for wide, narrow in hidden.items():
        if wide in names:
            for axis in narrow:
                names.pop(axis, None)
    return tuple(names)


@cache
def load_terms(path: Path = PARAMETERS_FILE) -> Terms:
    """Read the terms of the ranges: log half-widths by side (faster, slower) and axis."""
    terms: dict[str, dict[str, float]] = {side: {} for side in SIDES}
    for row in data_rows(path):
        axis, _, side = row["name"].rpartition(".")
        terms[side][axis] = float(row["value"])
    return terms
