"""The safest of the displayed candidates, and the best one whose step times were measured."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.decide.candidate import Candidate
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.ranges import time_range
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.price.table import Ints

MEASURED_TIERS = ("here", "measured", "kin")
MAX_GROUPS = 64  # Groups of GPUs that are searched for a measured alternative.


def safest_of(rows: Sequence[Candidate]) -> Candidate:
    """Return the candidate most likely to keep its limits; the cheapest of several."""
    return max(rows, key=lambda one: (one.keeps_limits, -one.cost.amount))


def measured_alternative(candidates: Candidates, order: Ints, question: EvaluatedQuestion) -> tuple[int, ...]:
    """Return the index of the best candidate whose kind of step was measured, if that of the first was not; else nothing."""
    first_of_group: dict[int, int] = {}
    for at in order.tolist():
        first_of_group.setdefault(int(candidates.group[at]), at)
    for place, (group, at) in enumerate(first_of_group.items()):
        evidence = time_range(question.request, question.groups.groups[group], candidates.configuration_at(at))
        if evidence.tier in MEASURED_TIERS:
            return (at,) if place else ()
        if place >= MAX_GROUPS:
            break
    return ()
