"""The verb `accuracy`: predicted against measured times, by GPU, task or source, and the largest errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median, quantiles

import msgspec

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.host import Source
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.accuracy_pairs import AccuracyPair, accuracy_pairs
from whichgpu.estimate.time.calibration import load_calibration

KEYS = ("gpu", "task", "source", "engine", "precision", "field")
WORST_ROWS = 15  # Default number of rows listed as the worst (set by judgement).


class Score(msgspec.Struct, frozen=True):
    """Errors of a group's predictions as shares of the measured time; `inside` is the share within the predicted 90% range."""

    group: str
    rows: int
    mean: float
    median: float
    p90: float
    bias: float
    inside: float


class AccuracyAnswer(msgspec.Struct, frozen=True):
    """Pairs of measured and predicted time that match a request, their errors in total and by group, and the worst pairs."""

    by: str
    total: Score
    scores: tuple[Score, ...]
    worst: tuple[AccuracyPair, ...]
    pairs: tuple[AccuracyPair, ...]
    sources: tuple[Source, ...]
    fitted: str  # Day on which the predictions were made.


def accuracy(
    gpu: Sequence[str] = (),
    task: Sequence[str] = (),
    source: Sequence[str] = (),
    by: str = "gpu",
    worst: int = WORST_ROWS,
    catalog: Catalog | None = None,
) -> AccuracyAnswer:
    """Return measured and predicted times (all, unless GPUs, tasks or sources are named), errors grouped `by` one of KEYS."""
    catalog, all_pairs = catalog or Catalog(), accuracy_pairs()
    if by not in KEYS:
        raise unknown_word("group", by, KEYS)
    filters = {
        "gpu": {matches.id for name in gpu for matches in find_gpus(catalog, name)},
        "task": _words("task", task, all_pairs),
        "source": _words("source", source, all_pairs),
    }
    matches = [pair for pair in all_pairs if all(not names or getattr(pair, key) in names for key, names in filters.items())]
    if not matches:
        raise NoAnswer("no-pairs", msg("error.no-pairs", n=len(all_pairs)), msg("hint.loosen"))
    groups: dict[str, list[AccuracyPair]] = defaultdict(list)
    for pair in matches:
        groups[getattr(pair, by)].append(pair)
    scores = sorted((_score(name, rows) for name, rows in groups.items()), key=lambda one: (-one.rows, one.group))
    return AccuracyAnswer(
        by=by,
        total=_score("", matches),
        scores=tuple(scores),
        worst=tuple(sorted(matches, key=lambda pair: -pair.distance)[:worst]),
        pairs=tuple(matches),
        sources=catalog.cited_sources(tuple(pair.source for pair in matches)),
        fitted=str(load_calibration().provenance["date"]),
    )


def _words(key: str, words: Iterable[str], all_pairs: Sequence[AccuracyPair]) -> set[str]:
    values = sorted({getattr(pair, key) for pair in all_pairs})
    for word in words:
        if word not in values:
            raise unknown_word(f"measured-{key}", word, values)
    return set(words)


def _score(name: str, rows: Sequence[AccuracyPair]) -> Score:
    errors = [abs(pair.error) for pair in rows]
    late = quantiles(errors, n=10, method="inclusive")[-1] if len(errors) > 1 else errors[0]
    figures = (fmean(errors), median(errors), late, median(pair.error for pair in rows), fmean(pair.inside for pair in rows))
    return Score(name, len(rows), *(round(number, 4) for number in figures))
