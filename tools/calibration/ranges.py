"""Ranges that hold: quantiles of log(measured / predicted) where the prediction never saw the group it is about.

Split-conformal by tier of evidence and kind of task: `gpu` (this GPU measured, other models), `generation` (its kin measured, not
this GPU), `other` (no GPU of its architecture measured). Tiers with few examples of a kind borrow from the tier's whole.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Log factors (low, high) by kind, and for any kind under `any`."""
    whole = quantiles(residuals, weights)
    found = {"any": [round(number, 4) for number in whole]}
    names = np.array(kinds)
    for kind in sorted(set(kinds)):
        chosen = names == kind
        own = quantiles(residuals[chosen], weights[chosen])
        share = min(1.0, chosen.sum() / ENOUGH)
        found[kind] = [round(share * mine + (1 - share) * common, 4) for mine, common in zip(own, whole, strict=True)]
    return found


def coverage(residuals: np.ndarray, kinds: Sequence[str], table: dict[str, list[float]]) -> float:
    """Share of residuals inside the ranges of such a table."""
    inside = [
        low <= residual <= high
        for residual, (low, high) in zip(residuals, (table.get(kind, table["any"]) for kind in kinds), strict=True)
    ]
    return float(np.mean(inside))
