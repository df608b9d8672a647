"""The verb `recommend`: which GPUs, on which offer, in which layout, at what cost, and why."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.verification import verify_command
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.build_answer import Telling
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import GroupResult
from whichgpu.decide.constraints import Rank
from whichgpu.decide.offers import OfferSelection
from whichgpu.decide.question import ANY_MODEL, Question
from whichgpu.decide.refine import settled
from whichgpu.decide.requirements import Requirements
from whichgpu.decide.shortlist import distinct, rows_of
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.price.filters import listed
from whichgpu.price.table import Ints
from whichgpu.workload.spelling import Spelled, from_object

SHOWN = 8


def recommend(
    task: str,
    model: str | Mapping[str, Any] | None = None,
    query: Requirements = Requirements(),  # noqa: B008 - frozen
    as_of: date | None = None,
    catalog: Catalog | None = None,
    overlay: Path | None = None,
    own: bool = True,
    **fields: Any,
) -> RecommendAnswer:
    """The GPUs and offer to use for a task; `fields` are those of a request, `query` the filters, limits and order."""
    spelled = from_object({"task": task, "model": model or ANY_MODEL.name, **fields})
    return recommend_spelled(spelled, query, as_of, lookup_cache(catalog, own=own), overlay, model is not None)


def recommend_spelled(
    spelled: Spelled,
    query: Requirements,
    as_of: date | None,
    lookups: LookupCache,
    overlay: Path | None = None,
    modelled: bool = True,
) -> RecommendAnswer:
    """`recommend` of a request already read; `modelled` where it names a model."""
    day = as_of or lookups.catalog.as_known or date.today()
    sought = Question(spelled, query, day, lookups, overlay, modelled)
    seen = sought.evaluated()
    asked, found, groups = seen.asked, seen.found, seen.groups
    rank = _rank(query, found, modelled and asked.workload.serving)

    def join(known: list[GroupResult]) -> tuple[Candidates, Ints]:
        joined = seen.join(known)
        return joined, joined.order(rank, found.market)

    limit = query.limit or SHOWN
    after = [one.id for name in listed(query.why_not or ()) for one in find_gpus(lookups.catalog, name)]

    def shown(told: Candidates, order: Ints) -> tuple[int, ...]:
        return rows_of(told, order, groups, found.market, limit, after).all

    def listing(told: Candidates, order: Ints) -> list[int]:
        return distinct(told, order, groups, limit)

    told, order, outcomes = settled(asked, groups, list(seen.outcomes), join, found.constraints, listing, shown)
    if not len(order):
        from whichgpu.decide.relaxations import refusal

        raise refusal(seen, told, outcomes, sought)
    return Telling(
        asked, found, groups, outcomes, told, order, rank, seen.work, lookups, modelled, verify_command, overlay
    ).answer(after, limit)


def _rank(query: Requirements, found: OfferSelection, serving: bool) -> Rank:
    return "time" if query.buy and query.budget and not query.rank else found.constraints.order(serving)
