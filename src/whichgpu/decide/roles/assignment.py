"""The best assignment of replicas to models and roles: a small mixed-integer program over the replicas' capacities.

Some replicas serve a model aggregated, others as prefill and decode workers, which must share one KV-cache precision. The
program maximises the load served by given GPUs or within a budget, or finds the cheapest GPUs for the load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import ceil, floor
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.decide.roles.cluster import GpuKind
from whichgpu.decide.roles.role_replicas import RoleReplica

# Weights in the objective function, relative to the share of load served, which has weight 1 (assumed).
SPARE_WEIGHT = 1e-3  # Weight of one model's capacity beyond that of the others.
DISAGGREGATION_COST = 1e-5  # Load that disaggregation must add to be used.
GPU_COST = 1e-7  # Load that a GPU must add to be used.
GAP = 1e-6  # Relative gap at which the solver stops.
MAX_COUNT = 10_000  # Most replicas or machines of a kind.


class ReplicaCount(msgspec.Struct, frozen=True):
    """A number of equal replicas: the same model, kind of GPU and role (prefill worker, decode worker or both)."""

    replica: RoleReplica
    count: int


class Assignment(msgspec.Struct, frozen=True):
    """Chosen replicas by kind and role, their capacity as a multiple of the load, and their cost per hour."""

    chosen: tuple[ReplicaCount, ...]
    times: float
    cost: float

    def of(self, model: str) -> tuple[ReplicaCount, ...]:
        """Return the chosen replicas that serve one model."""
        return tuple(one for one in self.chosen if one.replica.model == model)

    def gpus(self, kind: GpuKind) -> int:
        """Return the number of GPUs of a kind that the chosen replicas use."""
        return sum(one.count * one.replica.degree for one in self.chosen if one.replica.gpu == kind.gpu.id)

    @property
    def disaggregated(self) -> bool:
        """Return whether any model is served disaggregated: prefill and decode on different GPUs."""
        return any(one.replica.role != "both" for one in self.chosen)


def best_assignment(
    replicas: Sequence[RoleReplica],
    kinds: Sequence[GpuKind],
    rates: Mapping[str, float],
    budget: float | None = None,
    cheapest: bool = False,
    disaggregate: bool = True,
) -> Assignment | None:
    """Return the best choice of replicas and roles, None if there is none; without `disaggregate`, all prefill and decode."""
    highspy: Any = import_module("highspy")  # The import takes 0.1 s and has no types.
    able = [replica for replica in replicas if disaggregate or replica.role == "both"]
    if not able:
        return None
    solver: Any = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", GAP)
    prices = {kind.gpu.id: kind for kind in kinds}
    counts = [
        solver.addIntegral(0, _max_count(replica, prices[replica.gpu], rates[replica.model], budget, cheapest))
        for replica in able
    ]
    cost = _gpu_limits(solver, able, counts, kinds)
    if budget is not None:
        solver.addConstr(cost <= budget)
    times = solver.addVariable(0, 1 if cheapest else 1e9)
    used = sum((replica.degree * count for replica, count in zip(able, counts, strict=True)), 0.0 * times)
    spare = 0.0 * times
    split = 0.0 * times
    for model, rate in rates.items():
        aggregated, split_rate = _served(solver, able, counts, model)
        solver.addConstr(aggregated + split_rate >= rate * times)
        spare = spare + (1.0 / (rate * len(rates))) * (aggregated + split_rate)
        split = split + (1.0 / rate) * split_rate
    if cheapest:
        solver.addConstr(times >= 1)
        solver.minimize(cost + DISAGGREGATION_COST * split + GPU_COST * used)
    else:
        solver.maximize(times + SPARE_WEIGHT * spare - DISAGGREGATION_COST * split - GPU_COST * used)
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    chosen = [ReplicaCount(replica, round(solver.val(count))) for replica, count in zip(able, counts, strict=True)]
    chosen = [one for one in chosen if one.count]
    chosen = [one for one in chosen if one.replica.role == "both" or has_counterpart(one.replica, chosen)]
    assignment = Assignment(tuple(chosen), float(solver.val(times)), 0.0)
    return replace(assignment, cost=sum((_price(assignment.gpus(kind), kind) for kind in kinds), 0.0))


def has_counterpart(replica: RoleReplica, chosen: Sequence[ReplicaCount]) -> bool:
    """Return whether a prefill worker has a decode worker, or the reverse; the solver's tolerance may leave one alone."""
    other = "decode" if replica.role == "prefill" else "prefill"
    key = (replica.model, other, replica.precision)
    return any((one.replica.model, one.replica.role, one.replica.precision) == key for one in chosen)


def _max_count(replica: RoleReplica, kind: GpuKind, rate: float, budget: float | None, cheapest: bool) -> int:
    """Return the most replicas of this kind that GPUs and `budget` allow and that the request `rate` can use."""
    limits = [MAX_COUNT]
    if kind.count is not None:
        limits.append(kind.count // replica.degree)
    if budget is not None and kind.price:
        limits.append(floor(budget / (kind.price * replica.degree) + 1e-9))
    if cheapest:
        limits.append(ceil(rate / replica.capacity) + 1)
    return min(limits)


def _gpu_limits(solver: Any, able: Sequence[RoleReplica], counts: Sequence[Any], kinds: Sequence[GpuKind]) -> Any:
    """Add the limits on GPUs of each kind to the program; return the cost per hour as an expression."""
    cost = 0.0 * counts[0]
    for kind in kinds:
        terms = [replica.degree * count for replica, count in zip(able, counts, strict=True) if replica.gpu == kind.gpu.id]
        if not terms:
            continue
        used = sum(terms[1:], terms[0])
        if kind.machines:
            machines = solver.addIntegral(0, MAX_COUNT if kind.count is None else kind.count // kind.per_machine)
            solver.addConstr(used <= kind.per_machine * machines)
            cost = cost + kind.price * kind.per_machine * machines
            continue
        if kind.count is not None:
            solver.addConstr(used <= kind.count)
        cost = cost + kind.price * used
    return cost


def _served(solver: Any, able: Sequence[RoleReplica], counts: Sequence[Any], model: str) -> tuple[Any, Any]:
    """Return expressions of a model's requests per second served aggregated, and disaggregated (lesser of prefill and decode)."""
    mine = [(replica, count) for replica, count in zip(able, counts, strict=True) if replica.model == model]
    nothing = 0.0 * counts[0]
    aggregated = sum((replica.capacity * count for replica, count in mine if replica.role == "both"), nothing)
    split_rate = nothing
    for precision in sorted({replica.precision for replica, _ in mine}):
        flow = solver.addVariable(0, 1e9)
        for role in ("prefill", "decode"):
            workers = [
                replica.capacity * count for replica, count in mine if (replica.role, replica.precision) == (role, precision)
            ]
            solver.addConstr(flow <= sum(workers, nothing))
        split_rate = split_rate + flow
    return aggregated, split_rate


def _price(gpus: int, kind: GpuKind) -> float:
    """Return the price per hour of `gpus` GPUs of a kind, rented by the machine or by the GPU."""
    return kind.price * (kind.per_machine * ceil(gpus / kind.per_machine) if kind.machines else gpus)
