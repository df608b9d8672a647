"""The command line that reproduces a plan."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from shlex import join
from typing import Any

from msgspec.structs import replace

from whichgpu.api.plan.plan_file import DECLARED, read_plan
from whichgpu.base.errors import WhichGpuError
from whichgpu.decide.plan.question import SETTINGS, PlanQuestion, RequestedModel

APART = ("profiles", "rate", "workers", "ray")  # `_flags` skips these; `workers` and `ray` do not change the answer.
UNITS = {"horizon": "h", "time_limit": "s"}  # Units in which these settings are written as flags.


def reproduce(question: PlanQuestion, day: date, overlay: Path | None = None, own_measurements: bool = True) -> str:
    """Return the command line that repeats a plan as of `day`; it names a plan file if flags alone cannot express the plan."""
    last = [f"--prices={overlay}"] if overlay else []
    last += [] if own_measurements else ["--no-own-measurements"]
    last.append(f"--as-of={day.isoformat()}")
    words, usual = ["whichgpu", "plan"], PlanQuestion()
    if question.profiles is not None:
        words += ["--profiles", str(question.profiles)] + ([f"--rate={question.rate:g}/s"] if question.rate else [])
    elif question.file is None and _is_flat(question):
        words += [model.spelling for model in question.models] + _model_flags(question.models[0])
    else:
        words.append(question.file or "FILE.toml")
        usual = _question_in_file(question)
    return join([*words, *_flags(question, usual), *last])


def relaxed_command(question: PlanQuestion, day: date, overlay: Path | None, own_measurements: bool) -> str | None:
    """Return the command line of a plan with relaxed constraints; None if flags cannot express it."""
    expressible = _is_flat(question) if question.file is None else _extends_file(question)
    return reproduce(question, day, overlay, own_measurements) if expressible else None


def _is_flat(question: PlanQuestion) -> bool:
    """Return whether flags can express a plan request: all models have the same traffic and fields, and there are no jobs."""
    return len({repr(replace(one, model="")) for one in question.models}) == 1 and not question.jobs


def _extends_file(question: PlanQuestion) -> bool:
    """Return whether the plan file plus flags can express a plan request; flags cannot remove settings or change models."""
    usual = _question_in_file(question)
    removed = any(
        getattr(usual, name) and (value is None or (value is False and not DECLARED[name].has_negative))
        for name in SETTINGS
        if name not in APART and (value := getattr(question, name)) != getattr(usual, name)
    )
    same = (question.models, question.jobs) == (usual.models, usual.jobs)
    return same and not removed and usual.filters.keys() <= question.filters.keys()


def _model_flags(model: RequestedModel) -> list[str]:
    """Return the command-line flags of a model's workload and traffic, which all models of the plan share."""
    texts: dict[str, Any] = dict(model.fields)
    texts |= {"trace": model.trace, "hourly": ",".join(f"{rate:g}" for rate in model.hourly)}
    texts |= {name: f"{spread:g}" for name in ("in_spread", "out_spread") if (spread := getattr(model, name))}
    for name in ("in_histogram", "out_histogram"):
        texts[name] = ",".join(f"{length:g}:{weight:g}" for length, weight in getattr(model, name).items())
    texts["latency"] = f"{model.latency_max:g}s" if model.latency_max else ""
    return [_flag(name, text) for name, text in texts.items() if text or name in model.fields]


def _flag(name: str, text: Any) -> str:
    return f"--{name.replace('_', '-')}={text}"


def _question_in_file(question: PlanQuestion) -> PlanQuestion:
    """Return a plan request as its plan file states it, before flags changed settings; `question` if the file is unreadable."""
    try:
        return read_plan(Path(question.file)) if question.file else question
    except WhichGpuError:
        return question


def _flags(question: PlanQuestion, usual: PlanQuestion) -> list[str]:
    """Return the flags of the settings in which a plan request differs from `usual` (the defaults or the plan file)."""
    filter_texts = usual.filter_texts
    words = [_flag(name, text) for name, text in question.filter_texts.items() if filter_texts.get(name) != text]
    if question.owned != usual.owned:
        words.append("--owned=" + ",".join(f"{one.gpus}x{one.gpu}" for one in question.owned))
    if question.quotas != usual.quotas:
        words.append("--quota=" + ",".join(f"{name}={limit:g}" for name, limit in question.quotas.items()))
    for name in sorted(SETTINGS, key=lambda one: (DECLARED[one].is_switch, one in UNITS)):
        value = getattr(question, name)
        if name in APART or value == getattr(usual, name):
            continue
        if not DECLARED[name].is_switch:
            words.append(_flag(name, f"{value:g}{UNITS[name]}" if name in UNITS else value))
        elif value or DECLARED[name].has_negative:
            words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
    return words
