"""Constants fitted on a random half of the timm models, and errors on the other half."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any

GOAL_MEDIAN, GOAL_P90 = 0.04, 0.12
Row = tuple[str, int, list[float]]  # model, measured MiB, terms


def shuffled(names: Iterable[str], seed: int = 2015) -> list[str]:
    """Names in a random order that depends only on the seed."""
    order = sorted(names)
    random.Random(seed).shuffle(order)
    return order


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def timm(results: Mapping[str, Any], measured: Mapping[str, Mapping[int, int]]) -> tuple[list[str], bool]:
    """Device memory as a sum: the allocator's reserve, a constant, a share of the weights, a share of the largest workspace."""
    good = [name for name in results if "error" not in results[name]]
    lines = [f"{len(good)} models traced, {len(results) - len(good)} not"]
    lines += [f"  {name}: {result['error']}" for name, result in results.items() if "error" in result]
    rows = [_row(name, results[name], batch, value) for name in good for batch, value in measured[name].items()]
    chosen = set(shuffled(good)[::2])
    fitted, left = [row for row in rows if row[0] in chosen], [row for row in rows if row[0] not in chosen]
    if len(fitted) < 10 or len(left) < 10:
        return [*lines, "too few to fit and score"], False
    constants = fit([(value, terms) for _, value, terms in fitted])
    names = ("context and libraries, MiB", "weights, share", "convolution workspace, share")
    lines += [f"{name}: {value:.3g}" for name, value in zip(names, constants, strict=True)]
    errors = [abs(predicted(constants, terms) / value - 1) for _, value, terms in left]
    score = median(errors), quantile(errors, 0.9)
    lines.append(f"{len(errors)} rows left out: median {score[0]:.2%}, p90 {score[1]:.2%}, mean {mean(errors):.2%}")
    above = mean(predicted(constants, terms) > value for _, value, terms in left)
    lines.append(f"estimates above the measurement: {above:.0%}")
    return lines, score[0] <= GOAL_MEDIAN and score[1] <= GOAL_P90 and len(good) >= 150


def _row(name: str, result: Mapping[str, Any], batch: int, value: int) -> Row:
    peaks = result["batches"][str(batch)]
    return name, value, [peaks["reserved"], 1.0, result["parameters"] * 4 / 2**20, peaks["workspace"]]


def predicted(constants: Sequence[float], terms: Sequence[float]) -> float:
    """Sum of the first term and the others times their constants."""
    return terms[0] + sum(constant * term for constant, term in zip(constants, terms[1:], strict=True))


def fit(rows: Sequence[tuple[float, Sequence[float]]], rounds: int = 50) -> list[float]:
    """Least relative absolute deviations by reweighting, so that rows that failed without being marked have little influence."""
    weights = [1 / value for value, _ in rows]
    constants: list[float] = []
    for _ in range(rounds):
        size = len(rows[0][1]) - 1
        normal = [[0.0] * (size + 1) for _ in range(size)]
        for weight, (value, terms) in zip(weights, rows, strict=True):
            row = [weight * term for term in terms[1:]] + [weight * (value - terms[0])]
            for i in range(size):
                for j in range(size + 1):
                    normal[i][j] += row[i] * row[j]
        constants = _solved(normal)
        weights = [1 / value / max(abs(predicted(constants, terms) / value - 1), 0.001) ** 0.5 for value, terms in rows]
    return constants


def _solved(normal: list[list[float]]) -> list[float]:
    """Solve a small positive definite system by Gauss-Jordan elimination."""
    size = len(normal)
    for i in range(size):
        lead = normal[i][i] or 1e-12
        normal[i] = [value / lead for value in normal[i]]
        for k in range(size):
            if k != i:
                factor = normal[k][i]
                normal[k] = [a - factor * b for a, b in zip(normal[k], normal[i], strict=True)]
    return [row[-1] for row in normal]
