"""The smallest change to a question that gives a plan; each change is tried before it is proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.find import find_gpu
from whichgpu.decide.plan.inputs import PlanSources, served_models
from whichgpu.decide.plan.question import PlanQuestion, RequestedModel, to_document
from whichgpu.decide.plan.refusal import (
    Refusal,
    Relaxation,
    budget_of,
    no_answer,
    owned_of,
    quota_of,
    rate_of,
)
from whichgpu.decide.plan.search import SolvedPlan, search_plan
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.relax import rounded_up

# Factors on the smallest objectives at which every bucket has a capacity; at 1 the simulated queue may still miss them.
LOOSENING = (1.0, 1.15, 1.4, 2.0, 4.0)
LIMIT_STEPS = (1.5, 2.5)  # Factors on the smallest limits (GPUs, or one over the rate) with which the solver finds a plan.
FILTERS = (
    "gpu",
    "instance",
    "provider",
    "region",
    "max_latency",
    "min_memory",
    "needs",
    "term",
)  # Each is dropped alone, in this order.
MAX_TRIALS = 12  # At most this many single changes are tried for one refusal.
MAX_PAIRS = 2  # At most this many first changes are combined with a second one.
TRIAL_SECONDS = 5.0  # Solver seconds in one trial.
MAX_PLANS = 24  # At most this many plans are tried in all: a number, so that every machine proposes the same change.
TOGETHER = "plan.relax-together"


class RelaxationTrials(msgspec.Struct, frozen=True):
    """A question without a plan, and the models and prices with which changed questions are planned."""

    question: PlanQuestion
    models: Sequence[ServedModel]
    sources: PlanSources
    numbers: Iterator[int]  # one of these is taken by each plan that is tried

    def attempt(self, question: PlanQuestion) -> Refusal | bool:
        """Plan another question: return True if answered, False if its simulation misses the objectives, else the refusal."""
        try:
            plan = search_plan(question, self.sources)
        except WhichGpuError:
            return False
        return plan if isinstance(plan, Refusal) else plan.trial.holds_as_estimated


Change = tuple[Message, Mapping[str, Any], PlanQuestion]  # A change in words, as request fields, and the changed question.


def relaxed_refusal(
    question: PlanQuestion, refusal: Refusal, sources: PlanSources, command: Callable[[PlanQuestion], str | None]
) -> NoAnswer:
    """Return the error of a refused question, with the first change that gives a plan, if any; this solves a few more plans.

    `command` returns the command line of a question, or None if flags cannot express it.
    """
    models = served_models(question, sources.lookups)
    trials = RelaxationTrials(question, models, sources, iter(range(MAX_PLANS)))
    change = _first_change(refusal, trials)
    if change is None:
        return no_answer(refusal)
    words, values, changed = change
    moves = [one.message for one in refusal.relaxations if one.message is not None]
    others = moves[moves.index(words) + 1 :] if words in moves else []  # Those before it were tried and give no answer.
    relaxation = {"change": values, "request": to_document(changed), "command": command(changed)}
    return no_answer(refusal, msg("hint.relax", ways=(words, *others)), relaxation)


def _first_change(refusal: Refusal, trials: RelaxationTrials, pairs: bool = True) -> Change | None:
    """Return the first change to the question that gives a plan; with `pairs`, else the first two that do together; else None."""
    failed: list[tuple[Change, Refusal]] = []
    for change in islice(_changes(refusal, trials), MAX_TRIALS):
        if next(trials.numbers, None) is None:
            return None
        outcome = trials.attempt(replace(change[2], curve=False, time_limit=min(TRIAL_SECONDS, change[2].time_limit)))
        if outcome is True:
            return change
        if isinstance(outcome, Refusal):
            failed.append((change, outcome))
    for (words, values, question), outcome in failed[:MAX_PAIRS] if pairs else ():
        second = _first_change(outcome, replace(trials, question=question), pairs=False)
        if second is not None:
            return _together([words, second[0]]), {**values, **second[1]}, second[2]
    return None


def _changes(refusal: Refusal, trials: RelaxationTrials) -> Iterator[Change]:
    """Yield changed questions: objectives relaxed step by step, limits moved, then filters dropped."""
    for one in refusal.relaxations:
        if one.part == "goals":
            for factor in LOOSENING:
                yield _loosened(one.values, factor, trials)
        else:
            yield _moved(one, trials)
    limits = [_further(one, trials) for one in refusal.relaxations if one.part != "goals"]
    yield from (_moved(step, trials) for step in chain.from_iterable(zip_longest(*limits)) if step is not None)
    question = trials.question
    if "seller" in refusal.rejected:
        yield _with_any(question, "sellers")
    for name in FILTERS:
        if question.filters.get(name):
            filters = {other: value for other, value in question.filters.items() if other != name}
            flag = f"--{name.replace('_', '-')}"
            yield msg("relax.without", flag=flag), {name: None}, replace(question, filters=filters)
    if question.only_owned:
        yield msg("relax.without", flag="--only-owned"), {"only_owned": False}, replace(question, only_owned=False)
    if question.spare:
        yield msg("relax.without", flag="--spare"), {"spare": False}, replace(question, spare=False)
    for name in ("quality", "sellers"):
        if question.filters.get(name) != "any" and not (name == "sellers" and "seller" in refusal.rejected):
            yield _with_any(question, name)


def _further(one: Relaxation, trials: RelaxationTrials) -> Iterator[Relaxation]:
    """Yield a limit moved further: with the least that the solver needs, a simulated queue may miss the objectives."""
    if one.part == "budget":
        filters = {name: value for name, value in trials.question.filters.items() if name != "budget"}
        plan = search_plan(replace(trials.question, filters=filters, curve=False), trials.sources)
        if isinstance(plan, SolvedPlan) and plan.trial.holds_as_estimated:
            yield budget_of(plan.bill, plan.inputs.constraints.currency)
    for factor in LIMIT_STEPS:
        if one.part == "rate":
            yield rate_of(one.values["share"] / factor)
        elif one.part in ("quota", "owned"):
            ((name, gpus),) = one.values.items()
            yield (quota_of if one.part == "quota" else owned_of)(name, ceil(gpus * factor))


def _with_any(question: PlanQuestion, name: str) -> Change:
    """Return the change that allows sellers of any kind, or precisions of any quality."""
    words = msg("relax.seller") if name == "sellers" else msg("relax.quality")
    return words, {name: "any"}, replace(question, filters={**question.filters, name: "any"})


def _loosened(needed: Mapping[str, Mapping[str, float]], factor: float, trials: RelaxationTrials) -> Change:
    """Return the change that sets each model's objectives to `factor` times the `needed` seconds of its replicas."""
    models, words, changed = list(trials.question.models), [], {}
    for place, one in enumerate(trials.models):
        if one.name not in needed:
            continue
        limits = {name: rounded_up(seconds * factor) for name, seconds in needed[one.name].items()}
        texts = {f"{name}_max": _duration(seconds) for name, seconds in limits.items()}
        models[place] = _with_objectives(models[place], limits, texts)
        changed[one.name] = texts
        for name, seconds in limits.items():
            value = {"flag": f"--{name}", "value": _duration(seconds)}
            words.append(
                msg("plan.relax-goal", **value) if len(models) == 1 else msg("plan.relax-goal-model", model=one.name, **value)
            )
    change: Mapping[str, Any] = changed if len(models) > 1 else next(iter(changed.values()))
    return _together(words), change, replace(trials.question, models=tuple(models))


def _together(words: Sequence[Message]) -> Message:
    """Return one message for several changes that are all needed."""
    flat: list[Message] = []
    for one in words:
        parts: Any = one.values["changes"] if one.id == TOGETHER else (one,)
        flat += parts
    return flat[0] if len(flat) == 1 else msg(TOGETHER, changes=tuple(flat))


def _with_objectives(model: RequestedModel, limits: Mapping[str, float], texts: Mapping[str, str]) -> RequestedModel:
    fields = {**model.fields, **{name: text for name, text in texts.items() if name != "latency_max"}}
    return replace(model, fields=fields, latency_max=limits.get("latency", model.latency_max))


def _duration(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _moved(one: Relaxation, trials: RelaxationTrials) -> Change:
    """Return the change of one limit (budget, quota, ...) that is moved."""
    assert one.message is not None
    return one.message, *_with_limit(one, trials)


def _with_limit(one: Relaxation, trials: RelaxationTrials) -> tuple[Mapping[str, Any], PlanQuestion]:
    """Return the changed fields of the request, and the changed question, for one limit that is moved."""
    question, values = trials.question, one.values
    match one.part:
        case "headroom":
            return values, replace(question, headroom=values["headroom"])
        case "budget" | "max_latency":
            return values, replace(question, filters={**question.filters, **values})
        case "quota":
            changed = replace(question, quotas={**question.quotas, **{name: float(limit) for name, limit in values.items()}})
        case "owned":
            ids = [find_gpu(trials.sources.lookups.catalog, each.gpu).id for each in question.owned]
            owned = (replace(each, gpus=values.get(id, each.gpus)) for id, each in zip(ids, question.owned, strict=True))
            changed = replace(question, owned=tuple(owned))
        case "deadline":
            jobs = (replace(job, deadline=values.get(job.name, job.deadline / 3600.0) * 3600.0) for job in question.jobs)
            changed = replace(question, jobs=tuple(jobs))
        case _:  # The rate: each model's mean is multiplied by the servable share, rounded down to three digits.
            rates = [float(f"{each.traffic.mean * values['share'] * 0.995:.3g}") for each in trials.models]
            texts = {each.name: f"{rate:g}/s" for each, rate in zip(trials.models, rates, strict=True)}
            pairs = zip(question.models, texts.values(), strict=True)
            models = (replace(model, fields={**model.fields, "rate": text}) for model, text in pairs)
            return {"rate": texts}, replace(question, models=tuple(models))
    return {one.part: dict(values)}, changed
