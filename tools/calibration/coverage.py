"""How many measurements lie inside the 90% ranges, by tier, new axis, maker and what was left out: docs/evidence/coverage.md.

Every prediction comes from a fit that never saw a level of an axis, every range from terms fitted without the row's source. The
interval score (Gneiting and Raftery 2007) counts the width of a range and, for a measurement outside, twenty times its distance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from calibration.fit import digest
from calibration.residuals import Residual
from whichgpu.estimate.confidence.spread import BASIS_BY_TIER, tier_of

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "coverage.md"
COVERED = 0.9  # share of measurements inside a range
SPREAD_FOLDS = 6  # parts of the sources; the ranges of each are fitted on the others
MIN_COVERAGE_ROWS = 20  # fewer predictions make no line of a table
MIN_EXAMPLES = 30  # with fewer, quantiles of an engine's task are blended with those of the task under all engines
FORMER_AXES = {"same": "model", "kin": "gpu", "far": "generation"}  # what fits left out whose errors gave the former ranges

Widths = tuple[np.ndarray, np.ndarray]  # log half-widths of ranges: below the estimate (faster) and above (slower)
Quantiles = Mapping[str, tuple[float, float]]  # log half-widths by `engine/task`, by task, and of any step (empty name)


def logs_of(residuals: Sequence[Residual]) -> np.ndarray:
    """Return log(measured / predicted) of each residual."""
    return np.array([one.log for one in residuals])


def weights_of(residuals: Sequence[Residual]) -> np.ndarray:
    """Weights with the sum 1: each source counts, for each axis left out, by the square root of its rows."""
    counts = Counter((one.axis, one.source) for one in residuals)
    own = np.array([counts[one.axis, one.source] ** -0.5 for one in residuals])
    return np.asarray(own / own.sum())


def source_folds(residuals: Sequence[Residual]) -> np.ndarray:
    """Return the part of the sources that each residual's source belongs to."""
    return np.array([crc32(one.source.encode()) % SPREAD_FOLDS for one in residuals])


def write_coverage(residuals: Sequence[Residual], ends: Widths) -> None:
    """Write the page; `ends` are log half-widths of the ranges, each fitted without the row's source."""
    PAGE.write_text("\n".join(page(residuals, ends)) + "\n", encoding="utf-8")


def page(residuals: Sequence[Residual], ends: Widths) -> Iterator[str]:
    """Lines of the page."""
    logs = logs_of(residuals)
    ranges = {"these": ends, "former": former_widths(residuals), "one width": one_width(residuals)}
    yield "# Do the 90% ranges hold"
    yield ""
    yield f"Written by `make refit` from {len(residuals):,} predictions of left-out measurements (evidence {digest()[:12]})."
    yield "Each row of the evidence is predicted by fits that never saw its source, GPU, generation, maker, model, model family,"
    yield "number format, engine, engine version or (several GPUs) layout, one at a time; each range comes from terms fitted"
    yield "without the row's source. Nine in ten measurements should lie inside; the half-width says at what price. The minimum"
    yield "of a quarter up or down for what one source alone measured is not applied here."
    yield ""
    yield "The interval score is the width of a range in log, plus twenty times the distance of a measurement outside it: lower"
    yield "is better. *Former*: the ranges before November 2026, by engine and task and by whether the GPU, only its generation"
    yield "or neither was measured. *One width*: the same range for everything."
    yield ""
    yield from _scores(logs, ranges)
    for title, key in GROUPINGS.items():
        yield f"## {title}"
        yield ""
        yield from _table(residuals, logs, ranges, key)


def _newest(one: Residual) -> Sequence[str]:
    return sorted(one.new)


# Titles of the tables with the names of the groups a residual belongs to.
GROUPINGS: Mapping[str, Callable[[Residual], Sequence[str]]] = {
    "By tier": lambda one: (tier_of(one.new),),
    "By the axes on which a row was new to the fit": _newest,
    "By what the fit left out": lambda one: (one.axis,),
    "By maker of the GPU": lambda one: (one.axes.maker,),
    "By maker of the GPU, GPU left out": lambda one: (one.axes.maker,) if one.axis == "gpu" else (),
    "By task and engine, source left out": lambda one: (f"{one.axes.task}, {one.axes.engine}",) if one.axis == "source" else (),
    "By model family, family left out": lambda one: (one.axes.family,) if one.axis == "family" else (),
    "By source, source left out": lambda one: (one.source,) if one.axis == "source" else (),
}


def _scores(logs: np.ndarray, ranges: Mapping[str, Widths]) -> Iterator[str]:
    """Table of the three kinds of ranges on all predictions."""
    ours = interval_score(logs, *ranges["these"])
    yield "| ranges | predictions | inside | median half-width | interval score | these are better by |"
    yield "|---|---|---|---|---|---|"
    for name, (low, high) in ranges.items():
        score, share = interval_score(logs, low, high), inside(logs, low, high).mean()
        better = "" if name == "these" else f"{1 - ours / score:.0%}"
        yield f"| {name} | {len(logs):,} | {share:.1%} | ±{np.median(half_width(low, high)):.0%} | {score:.3f} | {better} |"
    yield ""


def _table(
    residuals: Sequence[Residual], logs: np.ndarray, ranges: Mapping[str, Widths], key: Callable[[Residual], Sequence[str]]
) -> Iterator[str]:
    """Table of groups of predictions, those of at least MIN_COVERAGE_ROWS."""
    members: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(residuals):
        for name in key(one):
            members[name].append(place)
    order = [tier for tier in BASIS_BY_TIER if tier in members] + sorted(members.keys() - BASIS_BY_TIER.keys())
    yield "| | predictions | median error | inside | median half-width | interval score | former | one width |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in order:
        places = members[name]
        if len(places) < MIN_COVERAGE_ROWS:
            continue
        own = logs[places]
        scores = [interval_score(own, low[places], high[places]) for low, high in ranges.values()]
        low, high = (end[places] for end in ranges["these"])
        cells = f"{np.median(np.abs(np.expm1(-own))):.1%} | {inside(own, low, high).mean():.1%}"
        widths = f"±{np.median(half_width(low, high)):.0%}"
        yield f"| {name} | {len(places):,} | {cells} | {widths} | {' | '.join(f'{score:.2f}' for score in scores)} |"
    yield ""


def inside(logs: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether each measurement lies inside its range."""
    return np.asarray((logs >= -low) & (logs <= high))


def half_width(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Half the width of each range as a share of the estimate."""
    return np.asarray(np.expm1((low + high) / 2))


def interval_score(logs: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Mean width of the ranges in log, with a penalty for each row outside."""
    outside = np.maximum(-low - logs, 0.0) + np.maximum(logs - high, 0.0)
    return float(np.mean(low + high + 2 / (1 - COVERED) * outside))


def one_width(residuals: Sequence[Residual]) -> Widths:
    """The same range for every row: the 5% and 95% quantiles over the other sources."""
    logs, folds, ends = logs_of(residuals), source_folds(residuals), np.zeros((2, len(residuals)))
    for fold in sorted(set(folds.tolist())):
        low, high = np.quantile(logs[folds != fold], [(1 - COVERED) / 2, (1 + COVERED) / 2])
        ends[:, folds == fold] = [[-low], [high]]
    return ends[0], ends[1]


def former_widths(residuals: Sequence[Residual]) -> Widths:
    """Half-widths of the ranges before November 2026, from quantiles over the other sources.

    They depended on engine and task, and on whether the GPU, only its generation (or the GPU under another engine), or neither
    was measured. A range farther from the measurements was never narrower.
    """
    folds, ends = source_folds(residuals), np.zeros((2, len(residuals)))
    for fold in sorted(set(folds.tolist())):
        widths: tuple[Quantiles, ...] = ()
        for axis in FORMER_AXES.values():
            own = [one for one, number in zip(residuals, folds.tolist(), strict=True) if number != fold and one.axis == axis]
            widths = (*widths, _quantiles_by_kind(own))
        for place in np.flatnonzero(folds == fold).tolist():
            one = residuals[place]
            upto = widths[: list(FORMER_AXES).index(_nearness(one.new)) + 1]
            ends[:, place] = np.max([_widths(table, one) for table in upto], axis=0)
    return ends[0], ends[1]


def _widths(table: Quantiles, one: Residual) -> tuple[float, float]:
    return table.get(f"{one.axes.engine}/{one.axes.task}", table.get(one.axes.task, table[""]))


def _nearness(new: Mapping[str, float]) -> str:
    if "gpu" not in new and "engine" not in new:
        return "same"
    return "kin" if "generation" not in new or "gpu anywhere" not in new else "far"


def _quantiles_by_kind(residuals: Sequence[Residual]) -> Quantiles:
    """Half-widths of any step, of each task, and of each engine's task; with few rows blended with the wider group's."""
    logs, weights = logs_of(residuals), weights_of(residuals)
    tasks = np.array([one.axes.task for one in residuals])
    kinds = np.array([f"{one.axes.engine}/{one.axes.task}" for one in residuals])
    found = {"": _quantiles(logs, weights)}
    for names, wider in ((tasks, lambda _: ""), (kinds, lambda name: name.rpartition("/")[2])):
        for name in sorted(set(names.tolist())):
            chosen = names == name
            share = min(1.0, chosen.sum() / MIN_EXAMPLES)
            own, common = _quantiles(logs[chosen], weights[chosen]), found[wider(name)]
            found[name] = (share * own[0] + (1 - share) * common[0], share * own[1] + (1 - share) * common[1])
    return found


def _quantiles(logs: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The weighted 5% and 95% quantiles as half-widths, with the finite-sample correction of conformal prediction."""
    order = np.argsort(logs, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    effective = weights.sum() ** 2 / (weights**2).sum()
    tail = (1 - COVERED) / 2 * effective / (effective + 1)
    low, high = (logs[order][min(int(np.searchsorted(shares, point)), len(order) - 1)] for point in (tail, 1 - tail))
    return max(float(-low), 0.0), max(float(high), 0.0)
