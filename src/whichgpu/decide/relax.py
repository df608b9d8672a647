"""When nothing keeps to the wishes: how far each limit would have to be moved, by itself, for a candidate to pass."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.candidates import MOST_COPIES, Bools, Candidates
from whichgpu.decide.configurations.configuration import GroupResult, Infeasibility
from whichgpu.decide.constraints import Constraints
from whichgpu.price.table import Floats, Ints

Settle = Callable[[Callable[[Candidates], Ints]], tuple[Candidates, Ints]]
MOVED = ("budget", "deadline", "copies", "gpus-in-all")  # limits that are numbers
WAIVED = ("commitment", "spot-service")  # those that are either kept or not


def leaning(told: Candidates, constraints: Constraints) -> set[int]:
    """Groups of GPUs the changes of budget and deadline rest on."""
    found = set()
    for name in ("budget", "deadline"):
        free = beside(name, told) if name in told.missed else np.zeros(0, dtype=bool)
        if free.any():
            found.add(int(told.group[np.flatnonzero(free)[np.argmin(beyond(name, told, constraints)[free])]]))
    place = least_over(told, constraints) if not found else None
    return found if place is None else {int(told.group[place])}


def beyond(name: str, told: Candidates, constraints: Constraints) -> Floats:
    """What a limit is held against, for every candidate; smaller is nearer to keeping it."""
    if name != "gpus-in-all" or constraints.gpus is None:
        return {"budget": told.spent, "deadline": told.course.hours, "copies": told.copies}.get(name, told.spent)
    low, high = constraints.gpus
    return np.maximum(told.gpus / max(high, 1e-9), low / np.maximum(told.gpus, 1e-9))


def beside(name: str, told: Candidates) -> Bools:
    """Candidates that keep to every limit but, maybe, this one."""
    others = [lost for other, lost in told.missed.items() if other != name]
    return ~np.any(others, axis=0) if others else np.ones(len(told.group), dtype=bool)


def nearest_first(name: str, constraints: Constraints) -> Callable[[Candidates], Ints]:
    """The order in which candidates come to keep a limit that is moved."""

    def order(told: Candidates) -> Ints:
        far = np.where(beside(name, told), beyond(name, told, constraints), np.inf)
        places = np.argsort(far, kind="stable")
        return places[np.isfinite(far[places])]

    return order


def least_change(name: str, constraints: Constraints, rate: float | None, settle: Settle) -> Message | None:
    """The least this limit must be moved by, read off candidates that were counted and simulated; None where none would pass."""
    told, order = settle(nearest_first(name, constraints))
    if not len(order):
        return None
    if name in WAIVED:
        return msg(f"relax.{name}")
    best = int(order[0])
    if name == "copies":
        return msg("relax.copies", rate=f"{down((rate or 0.0) * MOST_COPIES / float(told.copies[best]))}/s")
    if name == "gpus-in-all":
        low, high = constraints.gpus or constraints.span
        count = float(told.gpus[best])
        return msg("relax.gpus", value=f"{low:g}..{count:g}" if count > high else f"{count:g}..{high:g}")
    return budget(float(told.spent[best]), constraints) if name == "budget" else deadline(float(told.course.hours[best]))


def least_over(told: Candidates, constraints: Constraints) -> int | None:
    """The candidate that is least beyond budget and deadline together, and keeps to the rest."""
    names = ("budget", "deadline")
    if not set(names) <= set(told.missed) or constraints.budget is None or constraints.deadline is None:
        return None
    order = least_both(constraints)(told)
    return int(order[0]) if len(order) else None


def least_both(constraints: Constraints) -> Callable[[Candidates], Ints]:
    """Candidates by how far both budget and deadline would have to be moved."""
    assert constraints.budget is not None
    assert constraints.deadline is not None
    money, seconds = max(float(constraints.budget.amount), 1e-9), max(constraints.deadline, 1e-9)

    def order(told: Candidates) -> Ints:
        others = [lost for name, lost in told.missed.items() if name not in ("budget", "deadline")]
        free = ~np.any(others, axis=0) if others else np.ones(len(told.group), dtype=bool)
        over = np.log(np.maximum(told.spent, 1e-12) / money).clip(0.0) + np.log(told.course.hours * 3600.0 / seconds).clip(0.0)
        over = np.where(free, over, np.inf)
        places = np.argsort(over, kind="stable")
        return places[np.isfinite(over[places])]

    return order


def change_of_both(constraints: Constraints, settle: Settle) -> Message | None:
    """Budget and deadline moved together, by the least in all."""
    if constraints.budget is None or constraints.deadline is None:
        return None
    told, order = settle(least_both(constraints))
    if not len(order):
        return None
    best = int(order[0])
    return msg(
        "relax.both", one=budget(float(told.spent[best]), constraints), other=deadline(float(told.course.hours[best]))
    )  # fmt: skip


def budget(money: float, constraints: Constraints) -> Message:
    """A budget that suffices."""
    unit = {"hour": "/h", "month": "/month"}.get(constraints.budget_per or "", "")
    return msg("relax.budget", value=f"{round_up(money)}{constraints.currency.lower()}{unit}")


def deadline(hours: float) -> Message:
    """A deadline that suffices."""
    return msg("relax.deadline", value=f"{round_up(hours)}h")


def only_first(_: Candidates, order: Ints) -> tuple[int, ...]:
    """Of an order, the first alone is looked at."""
    return (int(order[0]),)


def short_of(outcomes: list[GroupResult], reason: str) -> float | None:
    """By which share the nearest group misses what it was refused for; None where none was."""
    short = [one.short for one in outcomes if isinstance(one, Infeasibility) and one.reason == reason and np.isfinite(one.short)]
    return max(min(short), 0.0) if short else None


def round_up(value: float) -> str:
    """A number rounded up to three digits, so that it suffices.

    >>> round_up(1.2341), round_up(27.96), round_up(0.0)
    ('1.24', '28', '0')
    """
    if value <= 0:
        return "0"
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 2)
    return significant(ceil(value / scale * (1 - 1e-9)) * scale).replace(",", "")


def down(value: float) -> str:
    """A number rounded down to two digits, so that no more is asked for.

    >>> down(7474.0), down(1.99)
    ('7400', '1.9')
    """
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 1)
    return significant(floor(value / scale * (1 + 1e-9)) * scale, 2).replace(",", "")
