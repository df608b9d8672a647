"""Machines that start as the load rises: how many, and what they cost before they serve."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from whichgpu.decide.plan import search
from whichgpu.decide.plan.solver.problem import OWNED, Pool, PriceOption
from whichgpu.decide.plan.solver.starts import starts_of

OPTIONS = (PriceOption("on demand", 3.0), PriceOption("year", 2.0, committed=True), PriceOption(OWNED, 0.1, term=OWNED))


class PlainProblem(msgspec.Struct):
    budget: float | None


def _starts(levels: list[int], machines: dict[tuple[int, int, int], int], seconds: float = 600.0):  # type: ignore[no-untyped-def]
    problem = SimpleNamespace(pools=(Pool("p", "g", 1, OPTIONS),))
    formulation = SimpleNamespace(problem=problem, hour_level=np.array(levels))
    return starts_of(formulation, SimpleNamespace(machines=machines), seconds)  # type: ignore[arg-type]


def test_every_rise_of_machines_rented_by_the_hour_is_billed_for_the_time_of_a_start() -> None:
    starts = _starts([0, 0, 1, 2, 1, 2], {(0, 0, 0): 4, (1, 0, 0): 2})
    assert starts.machines == 2 + 4  # from nothing to two in hour 4, and from nothing to four in hour 0 of the next day
    assert starts.cost == pytest.approx(6 * 3.0 * (600 / 3600) / 6)
    assert starts.hours == 6


def test_committed_and_owned_machines_and_a_steady_load_start_nothing() -> None:
    assert _starts([0, 1], {(0, 0, 1): 4, (0, 0, 2): 4}).machines == 0
    steady = _starts([0], {(0, 0, 0): 4})
    assert (steady.machines, steady.cost) == (0, 0.0)


@pytest.mark.parametrize(("bills", "expected"), [((9.0,), 9.0), ((9.8, 9.0), 9.0), ((9.8, 9.8), None), ((9.8, None), None)])
def test_a_budget_holds_with_the_starts_of_machines(
    bills: tuple[float | None, ...], expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans in turn cost these bills and half a dollar of starts; the budget is ten dollars."""
    plans = iter(None if bill is None else SimpleNamespace(bill=bill) for bill in bills)
    budgets = []

    def solve(problem: PlainProblem, *_: float) -> object:
        budgets.append(problem.budget)
        return next(plans)

    monkeypatch.setattr(search, "solve", solve)
    monkeypatch.setattr(search, "starts_of", lambda *_: SimpleNamespace(cost=0.5))
    settings = SimpleNamespace(constraints=SimpleNamespace(run_settings=SimpleNamespace(startup=600.0)))
    margins = SimpleNamespace(inputs=settings, question=SimpleNamespace(time_limit=1.0), gap=0.01)
    problem = PlainProblem(budget=10.0)
    first = solve(problem)
    plan = search._MarginSearch._within_budget(margins, SimpleNamespace(problem=problem), first)  # type: ignore[arg-type]
    assert (plan.bill if plan else None) == expected
    assert budgets[1:] == [9.5] * (len(bills) - 1)
