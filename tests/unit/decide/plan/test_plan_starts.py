"""Machines that start as the load rises: how many, and what they cost before they serve."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from whichgpu.decide.plan.solver.problem import OWNED, Pool, PriceOption
from whichgpu.decide.plan.solver.starts import starts_of

OPTIONS = (PriceOption("on demand", 3.0), PriceOption("year", 2.0, committed=True), PriceOption(OWNED, 0.1, term=OWNED))


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
