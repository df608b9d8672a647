"""Measurements and their predictions by fits that never saw their level of an axis: what ranges and errors are made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import isfinite

import msgspec
import numpy as np
from msgspec.structs import replace

from calibration.examples import model_of
from calibration.fit_groups import GroupLeaveOut
from calibration.fit_steps import Design, Fold
from calibration.group_examples import GroupExample
from calibration.scores import AXES, HeldOut, gpu_of, model_fold, model_group, source_of
from whichgpu.catalog.evidence import Measurement
from whichgpu.estimate.confidence.axes import Axes
from whichgpu.estimate.confidence.novelty import Measured

Known = tuple[Axes, str]  # a measured axes and its source
GROUP_AXES: Mapping[str, Callable[[GroupExample], str]] = {
    "source": lambda example: example.row.source,
    "gpu": lambda example: example.axes.gpu,
    "family": lambda example: example.axes.family,
    "version": lambda example: f"{example.axes.engine} {example.axes.year}",
    "layout": lambda example: example.axes.layout,
}


class Residual(msgspec.Struct, frozen=True):
    """A measurement and its prediction by a fit that never saw one level of one axis."""

    log: float  # of measured over predicted seconds
    axis: str  # the axis whose level was left out
    source: str
    axes: Axes
    new: Mapping[str, float]  # axes on which it is new to the rows that the fit saw
    row: Measurement


def step_residuals(design: Design, held: HeldOut) -> list[Residual]:
    """Residuals of single-GPU steps."""
    axes = {**AXES, "gpu": gpu_of, "model": model_group(design.examples)}
    known = [(example.axes, source_of(example)) for example in design.examples]
    rows = [example.row for example in design.examples]
    found: list[Residual] = []
    for axis, level in axes.items():
        levels = [level(example) for example in design.examples]
        found += _residuals(axis, -design.errors(getattr(held, axis)), rows, known, levels)
    return found


def group_residuals(fits: GroupLeaveOut, single: Mapping[str, Mapping[str, Fold]]) -> list[Residual]:
    """Residuals of steps on several GPUs; single GPUs of other levels count as measured, in their layout."""
    alone = fits.single.examples
    known = [*((one.axes, one.row.source) for one in fits.examples), *((one.axes, source_of(one)) for one in alone)]
    rows = [example.row for example in fits.examples]
    found: list[Residual] = []
    fold_of = model_fold(alone)
    axes: dict[str, Callable[[GroupExample], str]] = {**GROUP_AXES, "model": lambda example: fold_of(model_of(example.row))}
    for axis, level in axes.items():
        own = [level(example) for example in fits.examples]
        of_single = {**AXES, "gpu": gpu_of, "model": model_group(alone)}.get(axis, lambda _: "")
        predicted = np.full(len(rows), np.nan)
        for fold in fits.folds(own, single.get(axis, {})).values():
            predicted[fold.places] = fold.predicted
        found += _residuals(axis, fits.design.actual - predicted, rows, known, [*own, *map(of_single, alone)])
    return found


class _KnownRows:
    """Measured rows grouped by all axes but sizes, so that what remains without some of them is found quickly."""

    def __init__(self, known: Sequence[Known]) -> None:
        kinds: dict[Axes, int] = {}
        numbers = [kinds.setdefault(replace(axes, batch=0, context=0), len(kinds)) for axes, _ in known]
        self.kinds, self.numbers = list(kinds), np.array(numbers)
        self.sizes = np.array([(axes.batch, axes.context) for axes, _ in known])

    def without(self, left: Sequence[int]) -> Measured:
        """What the other rows measured; spans of sizes are the same from the least and the largest of each kind."""
        kept = np.ones(len(self.numbers), dtype=bool)
        kept[left] = False
        numbers, sizes = self.numbers[kept], self.sizes[kept]
        low, high = np.full((len(self.kinds), 2), sizes.max(initial=0)), np.zeros((len(self.kinds), 2), dtype=int)
        np.minimum.at(low, numbers, sizes)
        np.maximum.at(high, numbers, sizes)
        ends = ((self.kinds[number], side[number].tolist()) for number in np.unique(numbers).tolist() for side in (low, high))
        return Measured.of((replace(kind, batch=batch, context=context), "") for kind, (batch, context) in ends)


def _residuals(
    axis: str, logs: np.ndarray, rows: Sequence[Measurement], known: Sequence[Known], levels: Sequence[str]
) -> list[Residual]:
    """Residuals of the rows, which come first in `known` and `levels`: each is new to what the other levels measured."""
    members: dict[str, list[int]] = defaultdict(list)
    for place, level in enumerate(levels):
        members[level].append(place)
    found, measured = [], _KnownRows(known)
    for left in members.values():
        own = [place for place in left if place < len(rows) and isfinite(logs[place])]
        if own:
            seen = measured.without(left)
            for place in own:
                axes, source = known[place]
                found.append(Residual(float(logs[place]), axis, source, axes, seen.new_on(axes), rows[place]))
    return found
