"""The verb `accuracy`: predicted against measured times, by GPU, task or source, and the largest errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, quantiles
from typing import Any

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.request.evidence import AccuracyRequest
from whichgpu.api.request.read import read
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.names import squash, unknown_word
from whichgpu.catalog.evidence_search.search import engine_of
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.host import Source
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.accuracy_pairs import KEYS, AccuracyPair, accuracy_pairs
from whichgpu.estimate.time.left_out import left_out_table

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


class AccuracyAnswer(Displayable, msgspec.Struct, frozen=True):
    """Left-out errors and coverage of 90% ranges in total and by group, worst group first, and the worst single cases."""

    by: str
    total: Score
    scores: tuple[Score, ...]
    worst: tuple[AccuracyPair, ...]
    sources: tuple[Source, ...]
    fitted: str  # day on which the predictions were made


def accuracy(request: AccuracyRequest, context: Context) -> AccuracyAnswer:
    """Return left-out errors and coverage of the predictions that pass a request's filters."""
    values = read(AccuracyRequest, request, context.spell)
    pairs = matching_pairs(values, context.catalog)
    return accuracy_answer(pairs, values.get("by", "gpu"), values.get("worst", WORST_ROWS), context.catalog)


def matching_pairs(filters: Mapping[str, Any], catalog: Catalog) -> list[AccuracyPair]:
    """Return pairs of measured and predicted times of the named GPUs, engines, models, tasks and sources; all without a name."""
    all_pairs = accuracy_pairs(filters.get("left_out"))
    engines = {engine_of(name): name for name in filters.get("engine", ())}
    models = [squash(name) for name in filters.get("model", ())]
    _words("engine", engines, all_pairs)
    if unknown := next((name for name, key in zip(filters.get("model", ()), models, strict=True) if not _is_model(key)), None):
        raise unknown_word("model", unknown, _values("model", all_pairs))
    names = {
        "gpu": {gpu.id for name in filters.get("gpu", ()) for gpu in find_gpus(catalog, name)},
        "engine": set(engines),
        "task": _words("measured-task", filters.get("task", ()), all_pairs),
        "source": _words("measured-source", filters.get("source", ()), all_pairs),
    }
    matches = [pair for pair in all_pairs if all(not chosen or getattr(pair, key) in chosen for key, chosen in names.items())]
    matches = [pair for pair in matches if not models or any(model in squash(pair.model) for model in models)]
    if count := filters.get("gpus"):
        matches = [pair for pair in matches if count[0] <= pair.gpus <= count[1]]
    if not matches:
        raise NoAnswer("no-pairs", msg("error.no-pairs", n=len(all_pairs)), msg("hint.loosen"))
    return matches


def accuracy_answer(pairs: Sequence[AccuracyPair], by: str, worst: int, catalog: Catalog) -> AccuracyAnswer:
    """Return the errors of pairs grouped `by` one of KEYS, and the `worst` of them."""
    if by not in KEYS:
        raise unknown_word("group", by, KEYS)
    groups: dict[str, list[AccuracyPair]] = defaultdict(list)
    for pair in pairs:
        groups[str(getattr(pair, by))].append(pair)
    scores = sorted((_score(name, rows) for name, rows in groups.items()), key=lambda one: (-one.median, one.group))
    return AccuracyAnswer(
        by=by,
        total=_score("", pairs),
        scores=tuple(scores),
        worst=tuple(sorted(pairs, key=lambda pair: -pair.distance)[:worst]),
        sources=catalog.cited_sources(tuple(pair.source for pair in pairs)),
        fitted=left_out_table().date,
    )


def _is_model(key: str) -> bool:
    return bool(key) and any(key in squash(pair.model) for pair in accuracy_pairs())


def _values(key: str, pairs: Iterable[AccuracyPair]) -> list[str]:
    return sorted({getattr(pair, key) for pair in pairs})


def _words(what: str, words: Iterable[str], all_pairs: Sequence[AccuracyPair]) -> set[str]:
    """Return the words; raise if one is no value of the pairs' field `what`."""
    values = _values(what.removeprefix("measured-"), all_pairs)
    for word in words:
        if word not in values:
            raise unknown_word(what, word, values)
    return set(words)


def _score(name: str, rows: Sequence[AccuracyPair]) -> Score:
    errors = [abs(pair.error) for pair in rows]
    late = quantiles(errors, n=10, method="inclusive")[-1] if len(errors) > 1 else errors[0]
    figures = (fmean(errors), median(errors), late, median(pair.error for pair in rows), fmean(pair.inside for pair in rows))
    return Score(name, len(rows), *(round(number, 4) for number in figures))
