"""Ties of a ranking by cost: within 3%, which no estimate tells apart, the measured and then the roomier candidate wins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.decide.configurations.ranges import time_range
from whichgpu.decide.constraints import Rank
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.risk import MEASURED_TIERS
from whichgpu.price.table import Ints

TIE = 1.03  # Candidates whose cost differs by less than this factor are a tie (assumed).
MUCH_SLOWER = 1.5  # A run that takes this many times as long as the cheapest of a tie does not replace it (assumed).
ROOMIER = 1.1  # Factor of capacity, or of memory left, from which one counts as roomier (assumed).
MAX_COMPARED = 12  # Candidates of a tie that are compared, the best of each group of GPUs (assumed).


class Tie(NamedTuple):
    """A ranking with the winner of its tie first; `over` is the index of the candidate it was preferred to, and `why`."""

    order: Ints
    over: int | None = None
    why: str = ""  # measured or roomier


def settle_tie(candidates: Candidates, order: Ints, screened: EvaluatedQuestion, rank: Rank) -> Tie:
    """Return a ranking by cost with the measured, then the roomiest of those within 3% of the first put first."""
    if rank != "cost" or len(order) < 2:
        return Tie(order)
    first = int(order[0])
    cost = candidates.run_cost.cost * candidates.age_factor
    tied = order[(cost[order] <= float(cost[first]) * TIE) & (cost[order] >= float(cost[first]) / TIE)]
    tied = tied[candidates.poorly_supported[tied] <= candidates.poorly_supported[first]]
    tied = tied[candidates.outdated[tied] <= candidates.outdated[first]]  # An old price never replaces a fresher one.
    tied = tied[candidates.below_quality[tied] <= candidates.below_quality[first]]  # Nor does less quality replace more.
    tied = tied[candidates.tight_commitment(tied) <= candidates.tight_commitment(order[:1])]
    tied = tied[candidates.run_cost.hours[tied] <= candidates.run_cost.hours[first] * MUCH_SLOWER]
    if candidates.risky is not None:  # One that may miss a limit never replaces one that keeps it.
        tied = tied[candidates.risky[tied] <= candidates.risky[first]]
    best_of_group: dict[int, int] = {}
    for at in (first, *tied.tolist()):
        best_of_group.setdefault(int(candidates.group[at]), at)
    compared = list(best_of_group.values())[:MAX_COMPARED]
    if len(compared) < 2:
        return Tie(order)
    traits = {at: _traits(at, candidates, screened) for at in compared}
    measured, room = traits[first]
    winner, why = first, ""
    for at in compared:
        better = traits[at][0] and not measured
        roomier = traits[at][0] == measured and traits[at][1] > room * ROOMIER
        if better or roomier:
            winner, (measured, room) = at, traits[at]
            why = "measured" if traits[at][0] and not traits[first][0] else "roomier"
    if winner == first:
        return Tie(order)
    return Tie(np.concatenate(([winner], order[order != winner])), first, why)


def _traits(at: int, candidates: Candidates, screened: EvaluatedQuestion) -> tuple[bool, float]:
    """Return whether the step of a candidate was measured on its GPU or a near relative, and its spare capacity or memory."""
    group, one = screened.groups.groups[int(candidates.group[at])], candidates.configuration_at(at)
    measured = time_range(screened.request, group, one).tier in MEASURED_TIERS
    return measured, _room(one, float(candidates.copies[at]), screened.request.workload.rate)


def _room(one: Configuration, replicas: float, rate: float | None) -> float:
    """Return the capacity of a service as a multiple of its rate, or the usable memory as a multiple of what is needed."""
    each = one.max_rate or one.capacity
    return each * replicas / rate if rate and each else one.usable / max(1, one.need)
