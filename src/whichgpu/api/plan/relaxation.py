"""Where there is no plan: the refusal with a changed request that is answered, each change tried before it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from time import monotonic
from typing import Any

from whichgpu.api.plan.request import ModelAsked, PlanRequest, to_mapping
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message, msg
from whichgpu.decide.plan.refusal import Refusal, Relaxation, rounded_up
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.requirements import Requirements

# Factors on the objectives with which every bucket just has a capacity: at that limit the simulated queue may still miss them.
LOOSER = (1.0, 1.15, 1.4, 2.0, 4.0)
FILTERS = ("gpu", "instance", "provider", "region", "min_memory", "needs", "term")  # Left out one at a time, in this order.
MOST_TRIALS = 8  # plans tried for one refusal
MOST_PAIRS = 2  # first changes that a second one is tried with
TRIAL_SECONDS = 5.0  # of the solver, in one trial
ALL_SECONDS = 20.0  # after which no further trial begins
TOGETHER = "plan.relax-together"
USUAL = {one.name: one.default for one in fields(Requirements)}


@dataclass(frozen=True, slots=True)
class Refused:
    """A request without a plan.

    `attempt` plans another request: True where it is answered, False where its simulation misses the objectives, else why there
    is no plan. `command` says how a shell asks for it.
    """

    request: PlanRequest
    served: Sequence[ServedModel]
    gpu_id: Callable[[str], str]
    attempt: Callable[[PlanRequest], Refusal | bool]
    command: Callable[[PlanRequest], str]
    until: float  # of the monotonic clock, after which no other request is tried


Change = tuple[Message, Mapping[str, Any], PlanRequest]  # in words, as fields, and the request with it


def no_plan(found: Refusal, refused: Refused | None) -> NoAnswer:
    """The refusal for people and programs; changes are tried only where `refused` says of which request."""
    message = msg("error.no-plan")
    if found.reasons:
        message = msg("error.because", what=message, why=found.reasons)
    tried = _first(found, refused) if refused is not None else None
    if tried is None or refused is None:
        hint = msg("hint.advice", what=found.advice) if found.advice else msg("hint.relax-filters")
        return NoAnswer("no-plan", message, hint, rejected=found.rejected)
    words, change, request = tried
    others = [one.message for one in found.relaxations if one.message is not None and one.message != words]
    relaxation = {"change": change, "request": to_mapping(request), "command": _command(refused, request)}
    return NoAnswer("no-plan", message, msg("hint.relax", ways=(words, *others)), rejected=found.rejected, relaxation=relaxation)


def _first(found: Refusal, refused: Refused, pairs: bool = True) -> Change | None:
    """The first change that gives a plan; with `pairs`, else the first two that do together."""
    failed: list[tuple[Change, Refusal]] = []
    for change in islice(_changes(found, refused), MOST_TRIALS):
        if monotonic() > refused.until:
            return None
        outcome = refused.attempt(replace(change[2], curve=False, time_limit=min(TRIAL_SECONDS, change[2].time_limit)))
        if outcome is True:
            return change
        if isinstance(outcome, Refusal):
            failed.append((change, outcome))
    for (words, values, request), outcome in failed[:MOST_PAIRS] if pairs else ():
        second = _first(outcome, replace(refused, request=request), pairs=False)
        if second is not None:
            return _together([words, second[0]]), {**values, **second[1]}, second[2]
    return None


def _changes(found: Refusal, refused: Refused) -> Iterator[Change]:
    """Objectives loosened step by step, limits moved, then filters left out."""
    for one in found.relaxations:
        if one.part == "goals":
            for factor in LOOSER:
                yield _loosened(one.values, factor, refused)
        else:
            assert one.message is not None
            yield one.message, _fields(one, refused), _moved(one, refused)
    request = refused.request
    for name in FILTERS:
        if getattr(request.query, name):
            usual: Any = USUAL[name]
            query = replace(request.query, **{name: usual})
            flag = f"--{name.replace('_', '-')}"
            yield msg("relax.without", flag=flag), {name: None}, replace(request, query=query)
    if request.only_owned:
        yield msg("relax.without", flag="--only-owned"), {"only_owned": False}, replace(request, only_owned=False)


def _loosened(goals: Mapping[str, Mapping[str, float]], factor: float, refused: Refused) -> Change:
    """All models' objectives at so many times what their replicas need."""
    models, words, changed = list(refused.request.models), [], {}
    for place, one in enumerate(refused.served):
        if one.name not in goals:
            continue
        limits = {name: rounded_up(seconds * factor) for name, seconds in goals[one.name].items()}
        texts = {f"{name}_max": _duration(seconds) for name, seconds in limits.items()}
        models[place] = _with_goals(models[place], limits, texts)
        changed[one.name] = texts
        for name, seconds in limits.items():
            value = {"flag": f"--{name}", "value": _duration(seconds)}
            words.append(
                msg("plan.relax-goal", **value) if len(models) == 1 else msg("plan.relax-goal-model", model=one.name, **value)
            )
    change: Mapping[str, Any] = changed if len(models) > 1 else next(iter(changed.values()))
    return _together(words), change, replace(refused.request, models=tuple(models))


def _together(words: Sequence[Message]) -> Message:
    """Changes that are enough only all at once, in one message."""
    flat: list[Message] = []
    for one in words:
        parts: Any = one.values["changes"] if one.id == TOGETHER else (one,)
        flat += parts
    return flat[0] if len(flat) == 1 else msg(TOGETHER, changes=tuple(flat))


def _with_goals(one: ModelAsked, limits: Mapping[str, float], texts: Mapping[str, str]) -> ModelAsked:
    fields = {**one.fields, **{name: text for name, text in texts.items() if name != "latency_max"}}
    return replace(one, fields=fields, latency_max=limits.get("latency", one.latency_max))


def _duration(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _fields(one: Relaxation, refused: Refused) -> Mapping[str, Any]:
    """A change of limits as fields of the request."""
    match one.part:
        case "budget" | "headroom":
            return dict(one.values)
        case "rate":
            return {"rate": {name: f"{rate:g}/s" for name, rate in _rates(one, refused).items()}}
        case _:
            return {one.part: dict(one.values)}


def _rates(one: Relaxation, refused: Refused) -> dict[str, float]:
    """What is left of each model's mean rate, rounded down to three digits."""
    return {each.name: float(f"{each.traffic.mean * one.values['share'] * 0.995:.3g}") for each in refused.served}


def _moved(one: Relaxation, refused: Refused) -> PlanRequest:
    """The request with a limit moved."""
    request, values = refused.request, one.values
    match one.part:
        case "headroom":
            return replace(request, headroom=values["headroom"])
        case "budget":
            return replace(request, query=replace(request.query, budget=values["budget"]))
        case "quota":
            return replace(request, quotas={**request.quotas, **{name: float(most) for name, most in values.items()}})
        case "owned":
            owned = tuple(replace(each, gpus=values.get(refused.gpu_id(each.gpu), each.gpus)) for each in request.owned)
            return replace(request, owned=owned)
        case "deadline":
            jobs = tuple(replace(job, deadline=values.get(job.name, job.deadline / 3600.0) * 3600.0) for job in request.jobs)
            return replace(request, jobs=jobs)
    rates = _rates(one, refused)
    models = tuple(
        replace(model, fields={**model.fields, "rate": f"{rates[each.name]:g}/s"})
        for model, each in zip(request.models, refused.served, strict=True)
    )
    return replace(request, models=models)


def _command(refused: Refused, request: PlanRequest) -> str | None:
    """The command line of the changed request; None where flags cannot say it, since a file or several models were asked for."""
    asked = refused.request
    if asked.file is not None:
        same = (request.models, request.jobs) == (asked.models, asked.jobs)
        return refused.command(request) if same else None
    alike = len({repr(replace(one, model="")) for one in request.models}) == 1 and not request.jobs
    return refused.command(request) if alike else None
