"""The verb `recommend`: which GPUs, on which offer, in which layout, at what cost, and why."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.verification import verify_command
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message
from whichgpu.catalog.find import find_gpus, gpus_named, join_names
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.build_answer import AnswerBuilder
from whichgpu.decide.answer.near_miss import smaller_fleets
from whichgpu.decide.answer.purchases import best_unsupported, other_purchases
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.answer.safest import measured_alternative
from whichgpu.decide.answer.ties import settle_tie
from whichgpu.decide.candidate import Candidate, build_candidate
from whichgpu.decide.candidates import PORTABLE_ENGINES, Candidates
from whichgpu.decide.modes import mode_of
from whichgpu.decide.own_offers import OWNED
from whichgpu.decide.question import ANY_MODEL, EvaluatedQuestion, Question, trains_adapters
from whichgpu.decide.recommend import Order, rank_candidates
from whichgpu.decide.requirements import Requirements
from whichgpu.decide.shortlist import best_by_quality, distinct, shortlist
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.price.card_prices import whole_machines
from whichgpu.price.filters import split_names
from whichgpu.price.table import Ints
from whichgpu.workload.spelling import ParsedWorkload, from_object

READING_TPOT = 0.19  # Seconds between tokens at which chat appears as fast as people read (Brysbaert 2019: 238 words a minute).
DEFAULT_ROWS = 8  # Default number of candidates in an answer, to fit a terminal (set by judgement).


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
    """Return the GPUs and offer for a task; `fields` are those of a request, `query` has the filters, limits and ranking."""
    spelled = from_object({"task": task, "model": model or ANY_MODEL.name, **fields})
    return recommend_spelled(spelled, query, as_of, lookup_cache(catalog, own=own), overlay, model is not None)


def recommend_spelled(
    spelled: ParsedWorkload, query: Requirements, as_of: date | None, lookups: LookupCache, overlay: Path | None = None,
    modelled: bool = True,
) -> RecommendAnswer:  # fmt: skip
    """Return the recommended GPUs and offer for a parsed request; `modelled` is False if the request names no model."""
    day = as_of or lookups.catalog.as_known or date.today()
    question = Question(spelled, query, day, lookups, overlay, modelled)
    screened = question.evaluated()
    groups, market = screened.groups, screened.selection.market
    by_time = query.buy and query.budget and not query.rank
    by_cost = modelled and (screened.request.workload.serving or trains_adapters(screened.request.workload))
    rank = "time" if by_time else screened.selection.constraints.order(by_cost)
    limit = query.limit or DEFAULT_ROWS
    compared = [gpu.id for name in split_names(query.why_not or ()) for gpu in find_gpus(lookups.catalog, name)]
    compared += [one.gpu for one in screened.selection.constraints.owned if one.gpu not in compared]
    requested = _named_gpus(query, lookups.catalog)
    explained = [*compared, *(id for ids in requested for id in ids)]

    def any_quality(candidates: Candidates) -> Ints:
        return candidates.order(rank, market, ("quality",), cautious=True)

    def any_seller(candidates: Candidates) -> Ints:
        return candidates.order(rank, market, ("seller",), cautious=True)

    def others_shown(candidates: Candidates) -> list[int]:
        steps = best_by_quality(candidates, any_quality(candidates), groups)
        return [*steps.values(), *any_seller(candidates)[:1].tolist()]

    def rows_listed(candidates: Candidates, order: Ints) -> list[int]:
        return [
            *distinct(candidates, order, groups, limit),
            *others_shown(candidates),
            *other_purchases(candidates, order, screened),
        ]

    def rows_shown(candidates: Candidates, order: Ints) -> tuple[int, ...]:
        places = shortlist(candidates, order, groups, market, limit, explained).all
        purchases = (*other_purchases(candidates, order, screened), *best_unsupported(candidates, order, screened))
        return (*places, *measured_alternative(candidates, order, screened), *others_shown(candidates), *purchases)

    serving = modelled and screened.request.workload.serving
    screened = replace(screened, risk=screened.selection.constraints.risk_for(serving))
    if screened.request.workload.rate is not None and serving:
        from whichgpu.decide.plan.one_length.simulated_capacity import (
            keeps_objectives,  # Only services with a load need this import.
        )

        screened = replace(screened, keeps_objectives=keeps_objectives)

    def order(candidates: Candidates) -> Ints:
        return candidates.order(rank, market, cautious=True)

    waived = {"quality": any_quality, "seller": any_seller}
    ranked = rank_candidates(screened, order, rows_listed, rows_shown, waived)
    if not len(ranked.order) and screened.risk == "low":  # Limits that hold at the estimated times only are better than none.
        screened = replace(screened, risk="even")
        ranked = rank_candidates(screened, order, rows_listed, rows_shown, waived)
    if not len(ranked.order):
        from whichgpu.decide.relaxations import no_answer

        raise no_answer(question, screened, ranked)
    tie = settle_tie(ranked.candidates, ranked.order, screened, rank)
    ranked = ranked._replace(order=tie.order, tied_with=tie.over, tie_reason=tie.why)
    answer = AnswerBuilder(question, screened, ranked, rank, verify_command).answer(compared, limit, requested)
    others = (*answer.other_purchases, *_whole_computer(question))
    own_or_to_buy = {one.gpu for one in others}
    if answer.answer.term == OWNED:
        own_or_to_buy |= {one.gpu for one in screened.selection.constraints.owned}
    why_not = {gpu: why for gpu, why in answer.why_not.items() if not any(one.startswith(gpu) for one in own_or_to_buy)}
    fewer = _with_smaller_fleet(answer, screened, order)
    return replace(answer, other_purchases=others, why_not=why_not, left_out=fewer, serve=_serve_command(answer, lookups))


def _with_smaller_fleet(answer: RecommendAnswer, screened: EvaluatedQuestion, order: Order) -> tuple[Message, ...]:
    """Return what is not the answer, for several replicas also what would do without a margin for slow steps."""
    if screened.risk != "low" or answer.answer.copies < 2:
        return answer.left_out
    screened = replace(screened, risk="even")
    ranked = rank_candidates(screened, order)
    if not len(ranked.order):
        return answer.left_out
    at_estimate = build_candidate(int(ranked.order[0]), ranked.candidates, screened)
    return smaller_fleets(answer.answer, at_estimate, answer.left_out)


def _serve_command(answer: RecommendAnswer, lookups: LookupCache) -> str | None:
    """Return the command line that serves one replica of the answer, and a comment on its checkpoint; None for other answers."""
    if answer.kind != "service" or answer.answer.tpot is None:
        return None
    from whichgpu.api.launch.from_answers import candidate_plan
    from whichgpu.catalog.engines.registry import engine_record
    from whichgpu.decide.launch.serve_command import checkpoint_notes, serve_line, serving_engines
    from whichgpu.decide.launch.text import comments

    plan = candidate_plan(answer, lookups)
    if plan.engine not in serving_engines():
        return None
    (options,) = plan.groups
    notes = checkpoint_notes(options, engine_record(plan.engine))
    notes += [options.context_reason] if options.context_reason else []
    note = comments([" ".join(notes)] if notes else [])  # One line, so one comment.
    return f"{serve_line(options, plan.engine)}  {note}".rstrip()


def _whole_computer(question: Question) -> tuple[Candidate, ...]:
    """Return the best computer sold whole, such as a Mac, for one user's chat at home, under the engine that runs on it.

    If the question names GPUs, only computers with one of them, of any memory, are meant.
    """
    query, spelled = question.query, question.spelled
    chats_at_home = query.buy and question.modelled and mode_of(spelled.workload, query) == "me"
    if not chats_at_home or "engine" in spelled.user_fields:
        return ()
    named_gpus = {id for ids in _named_gpus(query, question.lookups.catalog) for id in ids}
    names = [name for name in whole_machines(question.day) if not query.gpu or name.startswith(tuple(named_gpus))]
    if not names:
        return ()
    tpot = spelled.workload.tpot_max or READING_TPOT
    fields = spelled.user_fields | {"engine", "tpot_max"}
    portable = ParsedWorkload(replace(spelled.workload, engine=PORTABLE_ENGINES[0], tpot_max=tpot), fields)
    try:
        answer = recommend_spelled(
            portable, replace(query, gpu=",".join(names)), question.day, question.lookups, question.overlay
        )
    except NoAnswer:
        return ()
    return (answer.answer,)


def _named_gpus(query: Requirements, catalog: Catalog) -> tuple[tuple[str, ...], ...]:
    """Return the ids of each GPU or family that a question with several names names, so that none is left out of its answer."""
    names = join_names(split_names(query.gpu), lambda text: gpus_named(catalog, text)) if query.gpu else ()
    return tuple(tuple(gpu.id for gpu in gpus_named(catalog, name)) for name in names) if len(names) > 1 else ()
