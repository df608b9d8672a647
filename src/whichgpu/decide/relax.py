"""When nothing keeps to the wishes: what removed how many, and the smallest change that would give an answer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.candidates import MOST_COPIES, Bools, Candidates
from whichgpu.decide.way import Outcome, Refusal
from whichgpu.decide.wishes import Wishes
from whichgpu.price.table import Floats
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload


def relaxations(told: Candidates, outcomes: Sequence[Outcome], wishes: Wishes, workload: Workload) -> list[Message]:
    """Single changes, each enough by itself; then what stands in the way of every group."""
    found = [one for name in told.missed if (one := _alone(name, told, wishes, workload)) is not None]
    if not found and (both := _both(told, wishes)) is not None:
        found.append(both)
    return found or _of_groups(outcomes, workload)


def leaning(told: Candidates, wishes: Wishes) -> set[int]:
    """Groups of GPUs the changes of budget and deadline rest on."""
    found = set()
    for name, values in (("budget", _spent(told, wishes)), ("deadline", told.course.hours)):
        free = _free(name, told) if name in told.missed else np.zeros(0, dtype=bool)
        if free.any():
            found.add(int(told.group[np.flatnonzero(free)[np.argmin(values[free])]]))
    place = _least_over(told, wishes) if not found else None
    return found if place is None else {int(told.group[place])}


def _both(told: Candidates, wishes: Wishes) -> Message | None:
    """Budget and deadline moved together, by the least in all, where neither alone is enough."""
    place = _least_over(told, wishes)
    if place is None:
        return None
    best = np.zeros(len(told.group), dtype=bool)
    best[place] = True
    return msg("relax.both", one=_budget(told, wishes, best), other=_deadline(told, best))


def _least_over(told: Candidates, wishes: Wishes) -> int | None:
    """The candidate that is least beyond budget and deadline, and keeps to the rest."""
    names = ("budget", "deadline")
    if not set(names) <= set(told.missed) or wishes.budget is None or wishes.deadline is None:
        return None
    others = [lost for name, lost in told.missed.items() if name not in names]
    free = np.flatnonzero(~np.any(others, axis=0)) if others else np.arange(len(told.group))
    if not len(free):
        return None
    over = np.log(_spent(told, wishes)[free] / float(wishes.budget.amount)).clip(0.0)
    over = over + np.log(told.course.hours[free] * 3600.0 / wishes.deadline).clip(0.0)
    return int(free[int(np.argmin(over))])


def _spent(told: Candidates, wishes: Wishes) -> Floats:
    return {"hour": told.per_hour, "month": told.per_hour * MONTH_HOURS}.get(wishes.budget_per or "", told.course.cost)


def _budget(told: Candidates, wishes: Wishes, free: Bools) -> Message:
    unit = {"hour": "/h", "month": "/month"}.get(wishes.budget_per or "", "")
    return msg("relax.budget", value=f"{_up(float(_spent(told, wishes)[free].min()))}{wishes.currency.lower()}{unit}")


def _deadline(told: Candidates, free: Bools) -> Message:
    return msg("relax.deadline", value=f"{_up(float(told.course.hours[free].min()))}h")


def _alone(name: str, told: Candidates, wishes: Wishes, workload: Workload) -> Message | None:
    """The least change of one limit that lets a candidate through that keeps to all the others."""
    free = _free(name, told)
    if not free.any():
        return None
    if name == "budget":
        return _budget(told, wishes, free)
    if name == "deadline":
        return _deadline(told, free)
    if name == "copies":
        rate = (workload.rate or 0.0) * MOST_COPIES / float(told.copies[free].min())
        return msg("relax.copies", rate=f"{significant(rate * 0.99, 2).replace(',', '')}/s")
    if name == "gpus-in-all":
        return msg("relax.gpus", value=f"1..{int(told.gpus[free].min())}")
    return msg(f"relax.{name}") if name in ("commitment", "spot-service") else None


def _free(name: str, told: Candidates) -> Bools:
    """Candidates that miss this limit alone."""
    others = [lost for other, lost in told.missed.items() if other != name]
    return told.missed[name] & ~np.any(others, axis=0) if others else told.missed[name]


def _of_groups(outcomes: Sequence[Outcome], workload: Workload) -> list[Message]:
    """How near the nearest group comes to its latency objectives, or, where none gets so far, to holding it."""
    if (least := _nearest(outcomes, "latency")) is not None:
        limits = [(name, getattr(workload, name)) for name in ("tpot_max", "ttft_max") if getattr(workload, name)]
        wanted = tuple(f"--{name.removesuffix('_max')} {_up(value * (1 + least) * 1000)}ms" for name, value in limits)
        return [msg("relax.latency", share=f"{least:.0%}", flags=wanted)]
    if (least := _nearest(outcomes, "memory")) is not None:
        return [msg("relax.memory", share=f"{least:.0%}")]
    return []


def _nearest(outcomes: Sequence[Outcome], reason: str) -> float | None:
    short = [one.short for one in outcomes if isinstance(one, Refusal) and one.reason == reason and np.isfinite(one.short)]
    return max(min(short), 0.0) if short else None


def _up(value: float) -> str:
    """A number rounded up to three digits, so that it suffices."""
    if value <= 0:
        return "0"
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 2)
    return significant(ceil(value / scale * (1 - 1e-9)) * scale).replace(",", "")
