"""90% ranges: quantiles of log(measured / predicted) over predictions of fits that never saw the predicted group.

Split-conformal by tier of evidence and kind of task: `gpu` (this GPU measured, other models), `generation` (GPUs of its
generation measured, not this one), `other` (no GPU of its architecture measured). The range of an engine's task with few
examples is blended with that of the task under all engines, and this with that of the whole tier. A tier farther from the
measurements is never narrower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

COVERED = 0.9  # share of measurements inside a range
MIN_EXAMPLES = 30  # assumed: with fewer, a kind's quantiles are blended with those of its tier


def quantiles(residuals: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The 5% and 95% points, with the finite-sample correction of conformal prediction."""
    order = np.argsort(residuals)
    shares = np.cumsum(weights[order]) / weights.sum()
    effective = weights.sum() ** 2 / (weights**2).sum()
    tail = (1 - COVERED) / 2 * effective / (effective + 1)
    low = residuals[order][np.searchsorted(shares, tail)]
    high = residuals[order][min(np.searchsorted(shares, 1 - tail), len(order) - 1)]
    return float(min(low, 0.0)), float(max(high, 0.0))


def ranges(residuals: np.ndarray, kinds: Sequence[str], weights: np.ndarray) -> dict[str, list[float]]:
    """Log factors (low, high) by engine and task (`engine/task`, as the kinds are spelled), by task, and under `any` for all."""
    table = {"any": [round(number, 4) for number in quantiles(residuals, weights)]}
    tasks = np.array([kind.rpartition("/")[2] for kind in kinds])
    for names, wider in ((tasks, lambda _: "any"), (np.array(kinds), lambda kind: kind.rpartition("/")[2])):
        for kind in sorted(set(names)):
            chosen = names == kind
            own, common = quantiles(residuals[chosen], weights[chosen]), table[wider(kind)]
            share = min(1.0, chosen.sum() / MIN_EXAMPLES)
            table[str(kind)] = [round(share * mine + (1 - share) * all_, 4) for mine, all_ in zip(own, common, strict=True)]
    return table


def widening(tiers: Mapping[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """Tables of ranges, nearest tier first, widened so that none is narrower than that of the tier before."""
    widened: dict[str, dict[str, list[float]]] = {}
    before: dict[str, list[float]] = {}
    for tier, table in tiers.items():
        widened[tier] = {
            kind: [min(low, before.get(kind, [0.0, 0.0])[0]), max(high, before.get(kind, [0.0, 0.0])[1])]
            for kind, (low, high) in table.items()
        }
        before = widened[tier]
    return widened


def coverage(residuals: np.ndarray, kinds: Sequence[str], table: dict[str, list[float]]) -> float:
    """Share of residuals inside the ranges of a table by kind."""
    inside = [
        low <= residual <= high
        for residual, (low, high) in zip(residuals, (table.get(kind, table["any"]) for kind in kinds), strict=True)
    ]
    return float(np.mean(inside))
