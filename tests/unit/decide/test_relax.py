"""Smallest change of a limit with which a candidate passes: that of the nearest candidate within the other limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.decide.configurations.configuration import MAX_REPLICAS, Infeasibility
from whichgpu.decide.constraints import Constraints
from whichgpu.decide.recommend import leader
from whichgpu.decide.relax import (
    budget_change,
    groups_nearest,
    smallest_change,
    smallest_change_of_both,
    smallest_shortfall,
)

DAY = date(2026, 10, 1)


def candidates(missed: dict[str, list[bool]], **columns: list[float]) -> Any:
    """Three candidates, of groups 7, 8 and 9."""
    fields = {"spent": [30.0, 20.0, 10.0], "copies": [1.0, 2.0, 3.0], "gpus": [1.0, 2.0, 4.0], "hours": [1.0, 2.0, 3.0]}
    fields |= {"watts": [700.0, 1234.0, 2800.0]} | columns
    arrays = {name: np.array(values, dtype=float) for name, values in fields.items()}
    return SimpleNamespace(
        group=np.array([7, 8, 9]),
        missed={name: np.array(lost) for name, lost in missed.items()},
        run_cost=SimpleNamespace(hours=arrays.pop("hours")),
        **arrays,
    )


def ranked(evaluated: Any) -> Callable[[Any], Any]:
    return lambda order: (evaluated, order(evaluated))


def constraints(**fields: Any) -> Constraints:
    return Constraints(DAY, **fields)


def usd(amount: str) -> Money:
    return Money(Decimal(amount), "USD")


def id_and_values(message: Message | None) -> tuple[str, dict[str, object]]:
    assert message is not None
    return message.id, dict(message.values)


def test_the_budget_that_suffices_is_that_of_the_cheapest_that_keeps_to_the_rest() -> None:
    evaluated = candidates({"budget": [True, True, True], "deadline": [False, False, True]}, spent=[30.0, 20.123, 10.0])
    moved = smallest_change("budget", constraints(budget=usd("5"), deadline=7200.0), None, ranked(evaluated))
    assert id_and_values(moved) == ("relax.budget", {"value": "20.2usd"})
    assert id_and_values(
        smallest_change("deadline", constraints(deadline=60.0), None, ranked(candidates({"deadline": [True] * 3})))
    ) == (
        "relax.deadline",
        {"value": "1h"},
    )


@pytest.mark.parametrize(("per", "unit"), [("hour", "/h"), ("month", "/month"), (None, "")])
def test_budget_relaxation_has_the_request_s_currency_and_period(per: str | None, unit: str) -> None:
    assert id_and_values(budget_change(12.0, constraints(budget_per=per, currency="EUR"))) == (
        "relax.budget",
        {"value": f"12eur{unit}"},
    )


def test_no_relaxation_of_one_limit_if_others_fail_too() -> None:
    evaluated = candidates({"budget": [True] * 3, "deadline": [True] * 3})
    assert smallest_change("budget", constraints(), None, ranked(evaluated)) is None


@pytest.mark.parametrize("name", ["commitment", "spot-service"])
def test_boolean_constraints_are_waived(name: str) -> None:
    assert id_and_values(smallest_change(name, constraints(), None, ranked(candidates({name: [True] * 3})))) == (
        f"relax.{name}",
        {},
    )


def test_replica_limit_is_relaxed_as_the_rate_it_sustains() -> None:
    evaluated = candidates({"copies": [True] * 3}, copies=[200.0, 128.0, 500.0])
    assert id_and_values(smallest_change("copies", constraints(), 100.0, ranked(evaluated))) == ("relax.copies", {"rate": "50/s"})
    assert MAX_REPLICAS == 64


def test_a_power_is_raised_to_the_least_that_suffices() -> None:
    evaluated = candidates({"power": [True] * 3, "budget": [True, False, False]})
    change = smallest_change("power", constraints(max_watts=500.0), None, ranked(evaluated))
    assert id_and_values(change) == ("relax.power", {"value": "1.24kW"})


@pytest.mark.parametrize(("span", "value"), [((8.0, 16.0), "4..16"), ((3.0, 3.0), "3..4"), ((1.0, 1.0), "1..2")])
def test_a_span_of_gpus_is_widened_to_the_nearest(span: tuple[float, float], value: str) -> None:
    evaluated = candidates({"gpus-in-all": [True] * 3}, gpus=[2.0, 2.0, 4.0])
    assert id_and_values(smallest_change("gpus-in-all", constraints(gpus=span), None, ranked(evaluated))) == (
        "relax.gpus",
        {"value": value},
    )


def test_budget_and_deadline_are_relaxed_together_by_the_smallest_total() -> None:
    """By ratios: the first is thrice the budget in time, the second 1.5 and 1.2 times, the third thrice the deadline."""
    evaluated = candidates(
        {"budget": [True, True, False], "deadline": [False, True, True]}, spent=[30.0, 15.0, 9.0], hours=[1.0, 1.2, 3.0]
    )
    limits = constraints(budget=usd("10"), deadline=3600.0)
    moved = smallest_change_of_both(limits, ranked(evaluated))
    assert moved is not None
    assert moved.id == "relax.both"
    assert id_and_values(moved.values["one"]) == ("relax.budget", {"value": "15usd"})  # type: ignore[arg-type]
    assert id_and_values(moved.values["other"]) == ("relax.deadline", {"value": "1.2h"})  # type: ignore[arg-type]
    assert groups_nearest(evaluated, limits) == {7, 9}  # budget alone depends on the first, the deadline alone on the last


def test_if_neither_alone_helps_both_use_the_candidate_nearest_to_the_limits() -> None:
    evaluated = candidates({"budget": [True] * 3, "deadline": [True] * 3}, spent=[30.0, 15.0, 20.0], hours=[9.0, 1.2, 3.0])
    limits = constraints(budget=usd("10"), deadline=3600.0)
    assert groups_nearest(evaluated, limits) == {8}
    assert groups_nearest(evaluated, constraints()) == set()
    assert smallest_change_of_both(constraints(budget=usd("10")), ranked(evaluated)) is None
    lost = candidates({"budget": [True] * 3, "deadline": [True] * 3, "copies": [True] * 3})
    assert smallest_change_of_both(limits, ranked(lost)) is None


def test_distance_of_the_nearest_group_counts_its_own_reason_only() -> None:
    results: list[Any] = [
        Infeasibility("memory", 0.5),
        Infeasibility("memory", 0.2),
        Infeasibility("latency", 0.1),
        Infeasibility("memory", float("inf")),
    ]
    assert smallest_shortfall(results, "memory") == 0.2
    assert smallest_shortfall(results, "layout") is None
    assert smallest_shortfall([Infeasibility("memory", -0.5)], "memory") == 0.0
    assert leader(None, np.array([4, 2])) == (4,)  # type: ignore[arg-type]
