"""Ranges that hold: quantiles of log(measured / predicted) where the prediction never saw the group it is about.

Split-conformal by tier of evidence and kind of task: `gpu` (this GPU measured, other models), `generation` (its kin measured, not
this GPU), `other` (no GPU of its architecture measured). An engine's kind of task with few examples borrows from the task's under
all engines, and that from the tier's whole. A tier farther from the measurements is never the narrower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

COVERED = 0.9
ENOUGH = 30  # examples below which a kind's own quantiles are blended with those of its tier


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
    found = {"any": [round(number, 4) for number in quantiles(residuals, weights)]}
    tasks = np.array([kind.rpartition("/")[2] for kind in kinds])
    for names, wider in ((tasks, lambda _: "any"), (np.array(kinds), lambda kind: kind.rpartition("/")[2])):
        for kind in sorted(set(names)):
            chosen = names == kind
            own, common = quantiles(residuals[chosen], weights[chosen]), found[wider(kind)]
            share = min(1.0, chosen.sum() / ENOUGH)
            found[str(kind)] = [round(share * mine + (1 - share) * all_, 4) for mine, all_ in zip(own, common, strict=True)]
    return found


def widening(tiers: Mapping[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """The same tables, nearest tier first, with no range narrower than that of the tier before."""
    found: dict[str, dict[str, list[float]]] = {}
    before: dict[str, list[float]] = {}
    for tier, table in tiers.items():
        found[tier] = {
            kind: [min(low, before.get(kind, [0.0, 0.0])[0]), max(high, before.get(kind, [0.0, 0.0])[1])]
            for kind, (low, high) in table.items()
        }
        before = found[tier]
    return found


def coverage(residuals: np.ndarray, kinds: Sequence[str], table: dict[str, list[float]]) -> float:
    """Share of residuals inside the ranges of such a table."""
    inside = [
        low <= residual <= high
        for residual, (low, high) in zip(residuals, (table.get(kind, table["any"]) for kind in kinds), strict=True)
    ]
    return float(np.mean(inside))
