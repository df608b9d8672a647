"""Which copies of which models in which roles: a small mixed-integer program on what each copy bears.

A model's requests are served whole by some copies and in halves by others; those in halves need readers and writers alike, whose
caches hold numbers of the same kind. What is sought is either the most that given GPUs or a given budget bear of the whole load,
or the cheapest GPUs that bear it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import ceil, floor
from typing import Any

from whichgpu.decide.roles.cluster import GpuKind
from whichgpu.decide.roles.role_replicas import RoleReplica

SPARE = 1e-3  # worth of bearing more of one model than of another, against bearing more of all
HALVED = 1e-5  # what halves must bring to be worth their trouble
IDLE = 1e-7  # what a GPU must bring to be used at all
GAP = 1e-6


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """So many copies of a kind."""

    copy: RoleReplica
    count: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What was chosen, how many times the load it should bear, machines of each kind, and money an hour."""

    chosen: tuple[ReplicaCount, ...]
    times: float
    cost: float

    def of(self, model: str) -> tuple[ReplicaCount, ...]:
        """Of one model."""
        return tuple(one for one in self.chosen if one.copy.model == model)

    @property
    def halves(self) -> bool:
        """Whether any model is served in halves."""
        return any(one.copy.role != "both" for one in self.chosen)


def best_assignment(
    role_replicas: Sequence[RoleReplica],
    kinds: Sequence[GpuKind],
    rates: Mapping[str, float],
    budget: float | None = None,
    cheapest: bool = False,
    halves: bool = True,
) -> Assignment | None:
    """The best choice; None where there is none. Without `halves` every copy does all of its requests."""
    highspy: Any = import_module("highspy")  # takes a tenth of a second, and has no types
    able = [copy for copy in role_replicas if halves or copy.role == "both"]
    if not able:
        return None
    solver: Any = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", GAP)
    prices = {kind.gpu.id: kind for kind in kinds}
    counts = [solver.addIntegral(0, _most(copy, prices[copy.gpu], rates[copy.model], budget, cheapest)) for copy in able]
    cost = _held(solver, able, counts, kinds)
    if budget is not None:
        solver.addConstr(cost <= budget)
    times = solver.addVariable(0, 1 if cheapest else 1e9)
    used = sum((copy.degree * count for copy, count in zip(able, counts, strict=True)), 0.0 * times)
    spare = 0.0 * times
    split = 0.0 * times
    for model, rate in rates.items():
        whole, halved = _borne(solver, able, counts, model)
        solver.addConstr(whole + halved >= rate * times)
        spare = spare + (1.0 / (rate * len(rates))) * (whole + halved)
        split = split + (1.0 / rate) * halved
    if cheapest:
        solver.addConstr(times >= 1)
        solver.minimize(cost + HALVED * split + IDLE * used)
    else:
        solver.maximize(times + SPARE * spare - HALVED * split - IDLE * used)
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    chosen = [ReplicaCount(copy, round(solver.val(count))) for copy, count in zip(able, counts, strict=True)]
    chosen = [one for one in chosen if one.count]
    chosen = [one for one in chosen if one.copy.role == "both" or has_counterpart(one.copy, chosen)]
    return Assignment(tuple(chosen), float(solver.val(times)), _cost(chosen, kinds))


def has_counterpart(copy: RoleReplica, chosen: Sequence[ReplicaCount]) -> bool:
    """Whether there is another half for this one: a solver within its tolerance may leave one alone."""
    other = "decode" if copy.role == "prefill" else "prefill"
    key = (copy.model, other, copy.precision)
    return any((one.copy.model, one.copy.role, one.copy.precision) == key for one in chosen)


def _most(copy: RoleReplica, kind: GpuKind, rate: float, budget: float | None, cheapest: bool) -> int:
    """More copies than this cannot be, or help nobody."""
    limits = [10_000]
    if kind.count is not None:
        limits.append(kind.count // copy.degree)
    if budget is not None and kind.price:
        limits.append(floor(budget / (kind.price * copy.degree) + 1e-9))
    if cheapest:
        limits.append(ceil(rate / copy.capacity) + 1)
    return min(limits)


def _held(solver: Any, able: Sequence[RoleReplica], counts: Sequence[Any], kinds: Sequence[GpuKind]) -> Any:
    """GPUs of each kind within their number; what they cost an hour."""
    cost = 0.0 * counts[0]
    for kind in kinds:
        terms = [copy.degree * count for copy, count in zip(able, counts, strict=True) if copy.gpu == kind.gpu.id]
        if not terms:
            continue
        used = sum(terms[1:], terms[0])
        if kind.machines:
            machines = solver.addIntegral(0, 10_000 if kind.count is None else kind.count // kind.per_machine)
            solver.addConstr(used <= kind.per_machine * machines)
            cost = cost + kind.price * kind.per_machine * machines
            continue
        if kind.count is not None:
            solver.addConstr(used <= kind.count)
        cost = cost + kind.price * used
    return cost


def _borne(solver: Any, able: Sequence[RoleReplica], counts: Sequence[Any], model: str) -> tuple[Any, Any]:
    """Requests a second of a model served whole, and in halves: in each precision no more than is read, nor than is written."""
    mine = [(copy, count) for copy, count in zip(able, counts, strict=True) if copy.model == model]
    nothing = 0.0 * counts[0]
    whole = sum((copy.capacity * count for copy, count in mine if copy.role == "both"), nothing)
    halved = nothing
    for precision in sorted({copy.precision for copy, _ in mine}):
        flow = solver.addVariable(0, 1e9)
        for role in ("prefill", "decode"):
            able_to = [copy.capacity * count for copy, count in mine if (copy.role, copy.precision) == (role, precision)]
            solver.addConstr(flow <= sum(able_to, nothing))
        halved = halved + flow
    return whole, halved


def _cost(chosen: Sequence[ReplicaCount], kinds: Sequence[GpuKind]) -> float:
    total = 0.0
    for kind in kinds:
        used = sum(one.count * one.copy.degree for one in chosen if one.copy.gpu == kind.gpu.id)
        total += kind.price * (kind.per_machine * ceil(used / kind.per_machine) if kind.machines else used)
    return total
