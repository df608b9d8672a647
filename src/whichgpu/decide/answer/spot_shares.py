"""Spot with something to fall back on: what a run costs when part of its hours are bought on demand."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from whichgpu.base.money import Money
from whichgpu.decide.candidate import Candidate, money
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.market import Market, terms_of

PARTS = (0.25, 0.5, 1.0)  # of the hours, on demand


@dataclass(frozen=True, slots=True)
class Shared:
    """So much of the hours on demand, the rest as spot, on the same machine."""

    on_demand: float
    cost: Money


def shares(place: int, best: Candidate, told: Candidates, found: Market) -> tuple[Shared, ...]:
    """What mixes of the two terms come to; none where the answer is not spot or its machine is not offered on demand."""
    if best.term != "spot":
        return ()
    offer = int(told.offer[place])
    terms = terms_of(found)
    plain, spot = float(terms.on_demand[offer]), float(terms.price[offer])
    if isnan(plain) or spot <= 0:
        return ()
    machine = float(told.course.machine[place])
    rest = float(told.course.cost[place]) - machine
    return tuple(Shared(part, money(machine * (1 - part + part * plain / spot) + rest, best.cost.currency)) for part in PARTS)
