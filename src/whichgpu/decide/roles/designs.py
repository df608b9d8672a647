"""Designs that serve one model with rented GPUs, compared at equal cost or for an equal load.

The designs are each kind of GPU alone and all kinds mixed, each aggregated and disaggregated.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.parallel.sweep import run_sweep
from whichgpu.decide.roles.assignment import Assignment, best_assignment
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.fleets import estimated_capacity, fleet_for, rate_figure, role_groups, widest_range
from whichgpu.decide.roles.max_rate import max_rate
from whichgpu.decide.roles.role_replicas import RoleReplica, Sweep, role_replicas
from whichgpu.decide.roles.roles_answer import Design, DesignsAnswer

MAX_ROUNDS = 4  # At most so often are the program's capacities corrected by simulation.
SUFFICIENT_SHARE = 0.99  # A simulated capacity of this share of the load counts as all of it.
MIN_GAIN = 1.02  # Disaggregated serving must be better by this factor to be named best.
UNLIMITED_RATE = 1e6  # Requests per second, more than any budget buys.


def designs(kinds: Sequence[GpuKind], served: ModelLoad, budget: float | None = None, sweep: Sweep = run_sweep) -> DesignsAnswer:
    """Return the capacity of each design at a `budget` per hour; without a budget, the cost of each that serves the load."""
    if not kinds:
        raise UsageError("no-cluster", msg("roles.empty"))
    if len({kind.currency for kind in kinds}) > 1:
        raise UsageError("currencies", msg("roles.currencies"))
    if budget is not None and not budget > 0:
        raise UsageError("bad-budget", msg("roles.bad-budget", budget=budget))
    # With a budget the rate is unknown, so each replica is simulated among as many as the budget buys.
    sized = served if budget is None else replace(served, load=served.load.at(UNLIMITED_RATE))
    replicas, reasons = role_replicas(kinds, (sized,), sweep, budget)
    candidates: list[Design] = []
    left: list[Message] = list(reasons.values())
    for name, ids, disaggregate in _combinations(kinds):
        mine = [kind for kind in kinds if kind.gpu.id in ids]
        able = [replica for replica in replicas if replica.gpu in ids]
        design = _design(name, disaggregate, mine, able, served, budget)
        if design is None:
            left.append(msg("roles.design-none", name=name))
        elif design.disaggregated == disaggregate:  # One without disaggregation equals the aggregated design and is left out.
            candidates.append(design)
    if not candidates:
        raise NoAnswer("no-role", msg("roles.none"), msg("roles.none-hint", reasons=tuple(dict.fromkeys(left))))
    ordered = sorted(
        candidates, key=lambda one: (-one.capacity.value if budget is not None else one.cost.amount, one.disaggregated)
    )
    best = next((one for one in ordered if not one.disaggregated and _near(one, ordered[0], budget)), ordered[0])
    values = {"name": best.name, "rate": f"{best.capacity.value:.3g}", "cost": str(best.cost), "model": served.name}
    words = msg("roles.design-rate" if budget is None else "roles.design-budget", **values)
    return DesignsAnswer(words, best, tuple(ordered), tuple(dict.fromkeys(left)))


def _combinations(kinds: Sequence[GpuKind]) -> list[tuple[str, frozenset[str], bool]]:
    """Return (name, GPUs, disaggregated) of each design: each kind of GPU alone and all mixed, aggregated, then disaggregated."""
    ids = [kind.gpu.id for kind in kinds]
    each = [(id, frozenset({id})) for id in ids] + ([("+".join(ids), frozenset(ids))] if len(ids) > 1 else [])
    return [*((name, gpus, False) for name, gpus in each), *((f"{name} disaggregated", gpus, True) for name, gpus in each)]


def _design(
    name: str, disaggregate: bool, kinds: Sequence[GpuKind], able: Sequence[RoleReplica], served: ModelLoad, budget: float | None
) -> Design | None:
    """Return the best choice of GPUs and roles by simulation; while that differs from the estimate, capacities are rescaled."""
    rate, factor = served.load.rate, 1.0
    best: tuple[Assignment, float] | None = None
    for _ in range(MAX_ROUNDS):
        scaled = [replace(replica, capacity=replica.capacity * factor) for replica in able]
        cheapest = budget is None
        solved = best_assignment(scaled, kinds, {served.name: rate}, budget, cheapest=cheapest, disaggregate=disaggregate)
        if solved is None or not solved.chosen:
            break
        estimate = estimated_capacity(solved.chosen)
        capacity = max_rate(fleet_for(served, solved.chosen, kinds), served.load, served.objectives, estimate)
        if budget is not None:
            best = solved, capacity
            break
        if capacity >= SUFFICIENT_SHARE * rate and (best is None or solved.cost < best[0].cost):
            best = solved, capacity
        corrected = factor * capacity / estimate if estimate else 0.0
        if capacity <= 0 or abs(corrected / factor - 1.0) < 0.01:
            break
        factor = corrected
    if best is None:
        return None
    assignment, capacity = best
    gpus = tuple((kind.gpu.id, assignment.gpus(kind)) for kind in kinds if assignment.gpus(kind))
    cost = Money(Decimal(repr(assignment.cost)).quantize(Decimal("0.0001")), kinds[0].currency)
    figure = rate_figure(capacity, widest_range(served, assignment.chosen, kinds))
    return Design(name, assignment.disaggregated, gpus, cost, figure, role_groups(assignment, (served,), kinds))


def _near(one: Design, best: Design, budget: float | None) -> bool:
    """Return whether a design is nearly as good as the best: in capacity at an equal budget, else in cost."""
    if budget is not None:
        return one.capacity.value * MIN_GAIN >= best.capacity.value
    return float(one.cost.amount) <= MIN_GAIN * float(best.cost.amount)
