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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log
from zlib import crc32

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]

from calibration.fit_groups import GroupLeaveOut
from calibration.left_out_table import update_left_out
from calibration.residuals import Residual, group_residuals, step_residuals
from calibration.scores import all_folds, held_out, source_of
from whichgpu.estimate.confidence.axes import Axes
from whichgpu.estimate.confidence.novelty import MEASURED_FILE, Measured
from whichgpu.estimate.confidence.spread import (
    ANY_STEP,
    BASIS_BY_TIER,
    PARAMETERS_FILE,
    SIDES,
    Terms,
    kind_names,
    spread,
    tier_of,
)

COVERED = 0.9  # share of measurements inside a range
SMOOTH = 0.01  # in log: width over which the pinball loss is rounded off, so that it has a slope everywhere
# Ridges on the logs of factors and on the terms of axes, per unit of weight: by the interval score of sources left out.
FACTOR_RIDGE, AXIS_RIDGE = 3e-3, 1e-4
FIRST_SPREAD = 0.3  # in log: where the fit starts
FITTED_ON = "predictions of rows left out"
ROUNDS = 400
MIN_COVERAGE_ROWS = 20  # fewer predictions make no line of the coverage table
SPREAD_FOLDS = 6  # parts of the sources; the terms of each are fitted on the others to see how many rows ranges then cover
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
    held = held_out(fits.single, fits.full_theta, single)
    residuals = step_residuals(fits.single, held) + group_residuals(fits, single)
    terms = fit_terms(residuals)
    write_terms(terms, residuals)
    measured = [(example.axes, source_of(example)) for example in fits.single.examples]
    write_measured([*measured, *((example.axes, example.row.source) for example in fits.examples)])
    changed = update_left_out(residuals, terms)
    return f"{len(residuals):,} predictions of left-out rows, {changed:,} cells of their table changed"


Widths = tuple[np.ndarray, np.ndarray]  # log half-widths of residuals, and their slopes by the terms


def fit_terms(residuals: Sequence[Residual]) -> Terms:
    """Terms of the ranges that minimise the interval score, widened to cover sources that a fit never saw."""
    scale = widening(residuals, cross_fitted(residuals))
    return {
        side: {name: round(term * (scale if name == ANY_STEP else 1.0), 4) for name, term in own.items()}
        for side, own in narrowest_terms(residuals).items()
    }


def widening(residuals: Sequence[Residual], ends: tuple[np.ndarray, np.ndarray]) -> float:
    """The factor on half-widths (faster, slower) that makes nine in ten measurements lie inside."""
    logs, weights = _logs(residuals), _weights(residuals)
    beyond = np.maximum(-logs / ends[0], logs / ends[1])
    order = np.argsort(beyond)
    return float(beyond[order][np.searchsorted(np.cumsum(weights[order]), COVERED)])


def cross_fitted(residuals: Sequence[Residual]) -> tuple[np.ndarray, np.ndarray]:
    """Log half-widths (faster, slower) of each residual by terms fitted without its source."""
    folds = np.array([crc32(one.source.encode()) % SPREAD_FOLDS for one in residuals])
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
    kinds = np.column_stack([np.ones(len(near)), kinds])
    terms: dict[str, dict[str, float]] = {}
    for side, sign in zip(SIDES, (-1.0, 1.0), strict=True):

        def of_kinds(point: np.ndarray) -> Widths:
            width = np.exp(log(FIRST_SPREAD) + kinds @ point)
            return width, width[:, None] * kinds

        factors = np.exp(_fit_side(sign * _logs(near), _weights(near), of_kinds, np.zeros(kinds.shape[1]), FACTOR_RIDGE))
        own = {ANY_STEP: FIRST_SPREAD * float(factors[0]), **dict(zip(names, factors[1:].tolist(), strict=True))}
        spreads = np.array([spread(one.axes, {}, own) for one in far])

        def of_axes(point: np.ndarray, spreads: np.ndarray = spreads) -> Widths:
            factor = np.sqrt(1 + amounts @ point**2)
            return spreads * factor, (spreads / factor)[:, None] * amounts * point

        added = _fit_side(sign * _logs(far), _weights(far), of_axes, np.full(len(axes), 0.5), AXIS_RIDGE)
        terms[side] = own | {f"new {axis}": abs(term) for axis, term in zip(axes, added.tolist(), strict=True)}
    return terms


def _fit_side(
    logs: np.ndarray, weights: np.ndarray, widths: Callable[[np.ndarray], Widths], start: np.ndarray, ridge: float
) -> np.ndarray:
    """The point whose half-widths are the 95% quantile of the logs: minimum of the pinball loss, rounded off, with a ridge."""
    tail = (1 - COVERED) / 2

    def cost(point: np.ndarray) -> tuple[float, np.ndarray]:
        width, slopes = widths(point)
        beyond = np.clip((logs - width) / SMOOTH, -500, 500)
        loss = weights @ (tail * width + SMOOTH * np.logaddexp(0.0, beyond)) + ridge * point @ point
        return float(loss), slopes.T @ (weights * (tail - 1 / (1 + np.exp(-beyond)))) + 2 * ridge * point

    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS}).x)


def _logs(residuals: Sequence[Residual]) -> np.ndarray:
    return np.array([one.log for one in residuals])


def _indicators(rows: Sequence[Mapping[str, float]]) -> tuple[list[str], np.ndarray]:
    """Names, sorted, and the amount of each in each row."""
    names = sorted({name for row in rows for name in row})
    place = {name: number for number, name in enumerate(names)}
    amounts = np.zeros((len(rows), len(names)))
    for number, row in enumerate(rows):
        for name, amount in row.items():
            amounts[number, place[name]] = amount
    return names, amounts


def _weights(residuals: Sequence[Residual]) -> np.ndarray:
    """Each axis left out counts alike, and in it each source by the square root of its rows; the sum is 1."""
    counts = Counter((one.axis, one.source) for one in residuals)
    own = np.array([counts[one.axis, one.source] ** -0.5 for one in residuals])
    totals: dict[str, float] = defaultdict(float)
    for one, weight in zip(residuals, own, strict=True):
        totals[one.axis] += float(weight)
    return np.asarray(own / np.array([totals[one.axis] for one in residuals]) / len(totals))


def coverage_lines(residuals: Sequence[Residual]) -> Iterator[str]:
    """Lines of the coverage table: by tier and by new axis, of ranges whose terms were fitted without the row's source."""
    low, high = cross_fitted(residuals)
    scale = widening(residuals, (low, high))
    logs, tiers = _logs(residuals), np.array([tier_of(one.new) for one in residuals])
    inside = (logs >= -scale * low) & (logs <= scale * high)
    width = np.exp(scale * (low + high) / 2) - 1
    groups: dict[str, np.ndarray] = {f"tier: {tier}": tiers == tier for tier in BASIS_BY_TIER if (tiers == tier).any()}
    for axis in sorted({name for one in residuals for name in one.new}):
        groups[f"new on: {axis}"] = np.array([axis in one.new for one in residuals])
    groups["all"] = np.ones(len(residuals), dtype=bool)
    yield "| rows | predictions | inside the 90% range | median half-width |"
    yield "|---|---|---|---|"
    for name, chosen in groups.items():
        if chosen.sum() >= MIN_COVERAGE_ROWS:
            yield f"| {name} | {chosen.sum():,} | {inside[chosen].mean():.1%} | ±{np.median(width[chosen]):.0%} |"
    yield ""
    score, one_width = (interval_score(logs, *ends) for ends in ((scale * low, scale * high), _one_width(logs)))
    yield f"Interval score (lower is better) {score:.3f}; of one width for all rows {one_width:.3f}."
    yield ""


def interval_score(logs: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Mean width of the ranges in log, with a penalty for each row outside (Gneiting and Raftery 2007)."""
    outside = np.maximum(-low - logs, 0.0) + np.maximum(logs - high, 0.0)
    return float(np.mean(low + high + 2 / (1 - COVERED) * outside))


def _one_width(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.quantile(logs, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return np.full(len(logs), -low), np.full(len(logs), high)


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
