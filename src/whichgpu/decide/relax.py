"""The smallest change of a single limit with which some candidate would pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import ceil, floor

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.candidates import Bools, Candidates
from whichgpu.decide.configurations.configuration import MAX_REPLICAS, GroupResult, Infeasibility
from whichgpu.decide.constraints import Constraints
from whichgpu.price.table import Floats, Ints

Order = Callable[[Candidates], Ints]
Rank = Callable[[Order], tuple[Candidates, Ints]]  # A function that sorts candidates and evaluates the first exactly.
NUMERIC_LIMITS = ("budget", "deadline", "copies", "gpus-in-all", "power")
WAIVABLE_LIMITS = ("quality", "seller", "commitment", "spot-service")  # These limits can only be dropped, not moved.
MONEY_AND_TIME = ("budget", "deadline")


def groups_nearest(candidates: Candidates, constraints: Constraints) -> set[int]:
    """Return indices of the groups of GPUs that need the smallest increase of budget, of deadline, or else of both."""
    orders = [nearest_first(name, constraints)(candidates) for name in MONEY_AND_TIME if name in candidates.missed]
    nearest = {int(candidates.group[order[0]]) for order in orders if len(order)}
    if nearest or not set(MONEY_AND_TIME) <= set(candidates.missed) or constraints.budget is None or constraints.deadline is None:
        return nearest
    return {int(candidates.group[at]) for at in nearest_both_first(constraints)(candidates)[:1]}


def nearest_first(name: str, constraints: Constraints) -> Order:
    """Return a function that sorts candidates by how little the named limit must change for each to pass, least first."""

    def order(candidates: Candidates) -> Ints:
        return _smallest_first(_limited(name, candidates, constraints), _pass_all_but((name,), candidates))

    return order


def nearest_both_first(constraints: Constraints) -> Order:
    """Return a function that sorts candidates by how far budget and deadline must rise for each: the product of both factors."""
    assert constraints.budget is not None
    assert constraints.deadline is not None
    money, seconds = max(float(constraints.budget.amount), 1e-9), max(constraints.deadline, 1e-9)

    def order(candidates: Candidates) -> Ints:
        over_budget = np.log(np.maximum(candidates.spent, 1e-12) / money).clip(0.0)
        over_deadline = np.log(candidates.run_cost.hours * 3600.0 / seconds).clip(0.0)
        return _smallest_first(over_budget + over_deadline, _pass_all_but(MONEY_AND_TIME, candidates))

    return order


def _limited(name: str, candidates: Candidates, constraints: Constraints) -> Floats:
    """Return, for every candidate, the value that the named limit is compared with; smaller is nearer to passing."""
    if name != "gpus-in-all" or constraints.gpus is None:
        values = {"deadline": candidates.run_cost.hours, "copies": candidates.copies, "power": candidates.watts}
        return values.get(name, candidates.spent)
    low, high = constraints.gpus
    return np.maximum(candidates.gpus / max(high, 1e-9), low / np.maximum(candidates.gpus, 1e-9))


def _pass_all_but(names: Collection[str], candidates: Candidates) -> Bools:
    """Return a mask of the candidates that meet every limit other than the named ones."""
    others = [lost for name, lost in candidates.missed.items() if name not in names]
    return ~np.any(others, axis=0) if others else np.ones(len(candidates.group), dtype=bool)


def _smallest_first(values: Floats, allowed: Bools) -> Ints:
    values = np.where(allowed, values, np.inf)
    order = np.argsort(values, kind="stable")
    return order[np.isfinite(values[order])]


def smallest_change(name: str, constraints: Constraints, rate: float | None, rank: Rank) -> Message | None:
    """Return a message with the least change of the limit `name` that lets a candidate pass; None if no change does."""
    candidates, order = rank(nearest_first(name, constraints))
    if not len(order):
        return None
    if name in WAIVABLE_LIMITS:
        return msg(f"relax.{name}")
    best = int(order[0])
    if name == "copies":
        return msg("relax.copies", rate=f"{round_down((rate or 0.0) * MAX_REPLICAS / float(candidates.copies[best]))}/s")
    if name == "power":
        return msg("relax.power", value=f"{round_up(float(candidates.watts[best]) / 1000)}kW")
    if name == "gpus-in-all":
        low, high = constraints.gpus or constraints.span
        count = float(candidates.gpus[best])
        return msg("relax.gpus", value=f"{low:g}..{count:g}" if count > high else f"{count:g}..{high:g}")
    return budget_change(float(candidates.spent[best]), constraints) if name == "budget" else _deadline_change(candidates, best)


def smallest_change_of_both(constraints: Constraints, rank: Rank) -> Message | None:
    """Return a message with the least rise of budget and deadline together; None if either is not set or no rise suffices."""
    if constraints.budget is None or constraints.deadline is None:
        return None
    candidates, order = rank(nearest_both_first(constraints))
    if not len(order):
        return None
    best = int(order[0])
    return msg(
        "relax.both", one=budget_change(float(candidates.spent[best]), constraints), other=_deadline_change(candidates, best)
    )


def budget_change(money: float, constraints: Constraints) -> Message:
    """Return a message that proposes the budget `money`, rounded up, per hour or month if the user's budget was."""
    unit = {"hour": "/h", "month": "/month"}.get(constraints.budget_per or "", "")
    return msg("relax.budget", value=f"{round_up(money)}{constraints.currency.lower()}{unit}")


def _deadline_change(candidates: Candidates, at: int) -> Message:
    return msg("relax.deadline", value=f"{round_up(float(candidates.run_cost.hours[at]))}h")


def smallest_shortfall(results: Sequence[GroupResult], reason: str) -> float | None:
    """Return by what share the nearest group of GPUs rejected for `reason` falls short; None if none was rejected."""
    shortfalls = [one.short for one in results if isinstance(one, Infeasibility) and one.reason == reason]
    finite = [share for share in shortfalls if np.isfinite(share)]
    return max(min(finite), 0.0) if finite else None


def rounded_up(value: float) -> float:
    """Return a number rounded up to three significant digits, so that it suffices as a limit.

    >>> rounded_up(0.12341), rounded_up(0.0)
    (0.124, 0.0)
    """
    if value <= 0:
        return 0.0
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 2)
    return float(ceil(value / scale * (1 - 1e-9)) * scale)


def round_up(value: float) -> str:
    """Return a number, rounded up to three significant digits, as text.

    >>> round_up(1.2341), round_up(27.96), round_up(0.0)
    ('1.24', '28', '0')
    """
    return significant(rounded_up(value)).replace(",", "")


def round_down(value: float) -> str:
    """Return a number, rounded down to two significant digits so that it is not exceeded, as text.

    >>> round_down(7474.0), round_down(1.99)
    ('7400', '1.9')
    """
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 1)
    return significant(floor(value / scale * (1 + 1e-9)) * scale, 2).replace(",", "")
