"""Fit the terms of the 90% ranges: how far measurements lie from estimates by fits that never saw their level of an axis.

Each prediction of a fit without a GPU, an engine's year, a model family, … is new on some axes to the rows that this fit saw.
Predictions that are new on none (of fits without the model or the source) give the spread of each kind of step, a product of
factors; all others then give the term of each axis, by which that spread is wider. Terms minimise the interval score, which is
the sum of the pinball losses of the two ends, so that each end has its quantile. Last all are widened by one factor, so that
ranges fitted without a source cover nine in ten of its rows.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Any

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix, hstack  # type: ignore[import-untyped]

from calibration.coverage import COVERED, Widths, logs_of, source_folds, weights_of, write_coverage
from calibration.fit_groups import GroupLeaveOut
from calibration.left_out_table import update_left_out
from calibration.residuals import Residual, group_residuals, step_residuals
from calibration.scores import all_folds, held_out, source_of
from whichgpu.estimate.confidence.axes import Axes
from whichgpu.estimate.confidence.novelty import MEASURED_FILE, Measured
from whichgpu.estimate.confidence.spread import (
    ANY_STEP,
    PARAMETERS_FILE,
    SIDES,
    Terms,
    kind_names,
    spread,
)

SMOOTH = 0.01  # in log: width over which the pinball loss is rounded off, so that it has a slope everywhere
# Ridges on the logs of factors and on the terms of axes, per unit of weight: by the interval score of sources left out.
FACTOR_RIDGE, AXIS_RIDGE = 3e-3, 5e-4
FIRST_SPREAD = 0.3  # in log: where the fit starts
FITTED_ON = "predictions of rows left out"
ROUNDS = 400
MEANINGS = {
    "engine": "an engine never measured at this task",
    "version": "each year (up to three) between the software and the nearest measured year",
    "gpu": "a GPU not measured under the engine",
    "generation": "a generation of GPUs not measured under the engine",
    "maker": "a maker of GPUs not measured under the engine",
    "family": "a model family not measured under the engine",
    "precision": "a number format not measured under the engine",
    "precision on generation": "a number format not measured on GPUs of the generation",
    "layout": "kinds of parallelism not measured under the engine",
    "regime": "a bound (compute, bandwidth, overhead, interconnect) not measured under the engine",
    "batch": "each doubling (up to four) of the batch beyond the measured span",
    "context": "each doubling (up to four) of the context or image beyond the measured span",
}


def refit() -> str:
    """Fit without each level of each axis, then the terms of the ranges on these predictions; a sentence on the result."""
    fits = GroupLeaveOut()
    single = all_folds(fits.single, fits.full_theta)
    held = held_out(fits.single, single)
    residuals = step_residuals(fits.single, held) + group_residuals(fits, single)
    ends = cross_fitted(residuals)
    scale = widening(residuals, ends)
    terms = fit_terms(residuals, scale)
    write_terms(terms, residuals)
    write_coverage(residuals, (scale * ends[0], scale * ends[1]))
    measured = [(example.axes, source_of(example)) for example in fits.single.examples]
    write_measured([*measured, *((example.axes, example.row.source) for example in fits.examples)])
    changed = update_left_out(residuals, terms)
    return f"{len(residuals):,} predictions of left-out rows, {changed:,} cells of their table changed"


# Log half-widths of residuals at a point, and the function that multiplies a row of numbers by their slopes.
Slopes = tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]


def fit_terms(residuals: Sequence[Residual], scale: float) -> Terms:
    """Terms of the ranges that minimise the interval score, widened by a factor to cover sources that a fit never saw."""
    return {
        side: {name: round(term * (scale if name == ANY_STEP else 1.0), 4) for name, term in own.items()}
        for side, own in narrowest_terms(residuals).items()
    }


def widening(residuals: Sequence[Residual], ends: Widths) -> float:
    """The factor on half-widths (faster, slower) that makes nine in ten measurements lie inside."""
    logs, weights = logs_of(residuals), weights_of(residuals)
    beyond = np.maximum(-logs / ends[0], logs / ends[1])
    order = np.argsort(beyond)
    return float(beyond[order][np.searchsorted(np.cumsum(weights[order]), COVERED)])


def cross_fitted(residuals: Sequence[Residual]) -> Widths:
    """Log half-widths (faster, slower) of each residual by terms fitted without its source."""
    folds = source_folds(residuals)
    ends = np.zeros((2, len(residuals)))
    for fold in sorted(set(folds.tolist())):
        terms = narrowest_terms([one for one, number in zip(residuals, folds, strict=True) if number != fold])
        for place in np.flatnonzero(folds == fold):
            one = residuals[int(place)]
            ends[:, place] = [spread(one.axes, one.new, terms[side]) for side in SIDES]
    return ends[0], ends[1]


def narrowest_terms(residuals: Sequence[Residual]) -> Terms:
    """Terms of the ranges that minimise the interval score."""
    near, far = [one for one in residuals if not one.new], [one for one in residuals if one.new]
    names, kinds = _indicators([dict.fromkeys(kind_names(one.axes), 1.0) for one in near])
    axes, amounts = _indicators([one.new for one in far])
    kinds = hstack([np.ones((len(near), 1)), kinds], format="csr")
    by_kind, by_axis = kinds.T.tocsr(), amounts.T.tocsr()
    terms: dict[str, dict[str, float]] = {}
    for side, sign in zip(SIDES, (-1.0, 1.0), strict=True):

        def of_kinds(point: np.ndarray) -> Slopes:
            width = np.exp(log(FIRST_SPREAD) + kinds @ point)
            return width, lambda pull: by_kind @ (pull * width)

        factors = np.exp(_fit_side(sign * logs_of(near), weights_of(near), of_kinds, np.zeros(kinds.shape[1]), FACTOR_RIDGE))
        own = {ANY_STEP: FIRST_SPREAD * float(factors[0]), **dict(zip(names, factors[1:].tolist(), strict=True))}
        spreads = np.array([spread(one.axes, {}, own) for one in far])

        def of_axes(point: np.ndarray, spreads: np.ndarray = spreads) -> Slopes:
            factor = np.sqrt(1 + amounts @ point**2)
            return spreads * factor, lambda pull: (by_axis @ (pull * (spreads / factor))) * point

        added = _fit_side(sign * logs_of(far), weights_of(far), of_axes, np.full(len(axes), 0.5), AXIS_RIDGE)
        terms[side] = own | {f"new {axis}": abs(term) for axis, term in zip(axes, added.tolist(), strict=True)}
    return terms


def _fit_side(
    logs: np.ndarray, weights: np.ndarray, widths: Callable[[np.ndarray], Slopes], start: np.ndarray, ridge: float
) -> np.ndarray:
    """The point whose half-widths are the 95% quantile of the logs: minimum of the pinball loss, rounded off, with a ridge."""
    tail = (1 - COVERED) / 2

    def cost(point: np.ndarray) -> tuple[float, np.ndarray]:
        width, slopes = widths(point)
        beyond = np.clip((logs - width) / SMOOTH, -500, 500)
        loss = weights @ (tail * width + SMOOTH * np.logaddexp(0.0, beyond)) + ridge * point @ point
        return float(loss), slopes(weights * (tail - 1 / (1 + np.exp(-beyond)))) + 2 * ridge * point

    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS}).x)


def _indicators(rows: Sequence[Mapping[str, float]]) -> tuple[list[str], Any]:
    """Names, sorted, and the sparse matrix of the amount of each in each row."""
    names = sorted({name for row in rows for name in row})
    place = {name: number for number, name in enumerate(names)}
    cells = [(number, place[name], amount) for number, row in enumerate(rows) for name, amount in sorted(row.items())]
    numbers, columns, amounts = zip(*cells, strict=True) if cells else ((), (), ())
    return names, csr_matrix((np.array(amounts, dtype=float), (numbers, columns)), (len(rows), len(names)))


def write_terms(terms: Terms, residuals: Iterable[Residual]) -> None:
    """Write the table of terms with what each means and the rows behind it."""
    counts = Counter(name for one in residuals for name in _names(one))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "value", "unit", "meaning", "status", "rows", "source"))
    for side in SIDES:
        for name, value in terms[side].items():
            unit = "log" if name == ANY_STEP else "factor"
            writer.writerow((f"{name}.{side}", value, unit, _meaning(name, side), "fitted", counts[name], FITTED_ON))
    PARAMETERS_FILE.write_text(text.getvalue(), encoding="utf-8")


def _names(one: Residual) -> Iterator[str]:
    yield ANY_STEP
    yield from kind_names(one.axes)
    yield from (f"new {axis}" for axis in one.new)


def _meaning(name: str, side: str) -> str:
    where = "below" if side == "faster" else "above"
    group, _, rest = name.partition(" ")
    if name == ANY_STEP:
        return f"Half-width of the range {where} the estimate of any step."
    if group != "new":
        return f"Factor on that of any step, {where} the estimate: {group} {rest}."
    axis = rest.removesuffix(" anywhere")
    nowhere = ", nor under any other" if axis != rest else ""
    return f"Share added in quadrature to the half-width {where} the estimate: {MEANINGS[axis]}{nowhere}."


def write_measured(measured: Iterable[tuple[Axes, str]]) -> None:
    """Write the table of what was measured by engine, task and axis."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("engine", "task", "axis", "level", "sources"))
    writer.writerows(Measured.of(measured).rows())
    MEASURED_FILE.write_text(text.getvalue(), encoding="utf-8")
