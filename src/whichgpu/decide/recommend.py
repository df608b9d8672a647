"""The search of `recommend`: screen all groups of GPUs, rank the candidates, refine the leaders until they stay the leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import Configuration, GroupResult
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.refine import Leaders, Refiner, refiner_for
from whichgpu.decide.risk import with_slow_steps
from whichgpu.price.table import Ints

Order = Callable[[Candidates], Ints]  # A function that returns indices of the candidates that pass, best first.


class RankedCandidates(NamedTuple):
    """All candidates, the indices of those that pass, best first, and the result of every group of GPUs."""

    candidates: Candidates
    order: Ints
    results: list[GroupResult]
    waived: Mapping[str, Ints] = {}  # indices of those that pass without one limit, best first, by the limit's name
    tied_with: int | None = None  # index of the candidate that the first was preferred to, although it costs up to 3% less
    tie_reason: str = ""  # measured or roomier


def leader(_: Candidates, order: Ints) -> Iterable[int]:
    """Return the first index of a ranking: by default only the best candidate is evaluated exactly."""
    return (int(order[0]),)


def rank_candidates(
    screened: EvaluatedQuestion, sort: Order, listed: Leaders = leader, displayed: Leaders = leader,
    waived: Mapping[str, Order] | None = None,
) -> RankedCandidates:  # fmt: skip
    """Return the ranked candidates of a question, after exact evaluation of the leaders' groups until the leaders stay the same.

    A screen is cheap and covers all groups: training times are interpolated, serving rates bounded by queueing formulas, offline
    batches taken from a grid. The workload's refiner evaluates the leaders exactly; a changed result may bring up others. Most
    refiners make one pass over the rows in `listed`; that of services makes a second over all rows in `displayed`.
    """
    refiner = refiner_for(screened)
    for ranked in _rankings(screened, refiner, sort, listed, displayed):
        candidates, results = ranked.candidates, ranked.results
    order = refiner.comparable(candidates, ranked.order)
    others = {name: refiner.comparable(candidates, sort_waived(candidates)) for name, sort_waived in (waived or {}).items()}
    rows = list(displayed(candidates, order)) if len(order) else []
    completed = refiner.completed(dict.fromkeys(candidates.group[rows].tolist()))
    if completed:
        results = [completed.get(group, result) for group, result in enumerate(results)]
        configurations = tuple(one if isinstance(one, Configuration) else None for one in results)
        candidates = replace(candidates, configurations=configurations)
    return RankedCandidates(candidates, order, results, others)


def any_passes(screened: EvaluatedQuestion, sort: Order) -> bool:
    """Return whether any candidate passes; the search ends at the first that passes after its exact evaluation."""
    refiner = refiner_for(screened)
    for ranked in _rankings(screened, refiner, sort, leader, leader):
        if not refiner.done.keys().isdisjoint(ranked.candidates.group[ranked.order].tolist()):
            return True
    return len(refiner.comparable(ranked.candidates, ranked.order)) > 0


def _rankings(
    screened: EvaluatedQuestion, refiner: Refiner, sort: Order, listed: Leaders, displayed: Leaders
) -> Iterator[RankedCandidates]:
    """Yield the ranking after every refinement of its leaders; the last is the one whose leaders are all refined."""
    for starting, leaders in refiner.passes(listed, displayed):
        results = starting
        while True:
            candidates = screened.join(results)
            if screened.risk == "low":
                candidates = with_slow_steps(candidates, screened)
            order = sort(candidates)
            yield RankedCandidates(candidates, order, results)
            first = candidates.group[list(leaders(candidates, order))].tolist() if len(order) else refiner.nearest(candidates)
            refined = refiner.refine(dict.fromkeys(first), candidates.group[order])
            if not refined:  # Every leader is refined, so the shortlist no longer changes.
                break
            results = [refined.get(group, result) for group, result in enumerate(results)]
