"""Ways to serve one model with rented GPUs, at equal cost or for an equal load.

Each kind alone, several side by side, and both again with prompts read on some GPUs and answers written on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.parallel.sweep import Progress
from whichgpu.decide.roles.assignment import Assignment, best_assignment
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.fleets import estimated_capacity, fleet_for, rate_figure, role_groups, widest_range
from whichgpu.decide.roles.max_rate import max_rate
from whichgpu.decide.roles.role_replicas import RoleReplica, role_replicas
from whichgpu.decide.roles.roles_answer import Design, DesignsAnswer

ROUNDS = 4  # of correcting what the program thinks by what simulation says
ENOUGH = 0.99  # of the load asked, borne: within what the search for the most can tell
MIN_GAIN = 1.02
MANY = 1e6  # requests a second: more than any budget buys


def designs(
    kinds: Sequence[GpuKind],
    served: ModelLoad,
    budget: float | None = None,
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> DesignsAnswer:
    """With a `budget` an hour, what each way bears at most; without, what each costs that bears the load asked."""
    if not kinds:
        raise UsageError("no-cluster", msg("roles.empty"))
    if len({kind.currency for kind in kinds}) > 1:
        raise UsageError("currencies", msg("roles.currencies"))
    if budget is not None and not budget > 0:
        raise UsageError("bad-budget", msg("roles.bad-budget", budget=budget))
    known, reasons = role_replicas(tuple(kinds), (_sized(served, budget),), jobs, ray, progress, budget)
    found: list[Design] = []
    left: list[Message] = list(reasons.values())
    for name, ids, halves in _ways(kinds):
        mine = [kind for kind in kinds if kind.gpu.id in ids]
        able = [copy for copy in known if copy.gpu in ids]
        design = _design(name, halves, mine, able, served, budget)
        if design is None:
            left.append(msg("roles.design-none", name=name))
        elif design.in_halves == halves:  # else it is the same as whole
            found.append(design)
    if not found:
        raise NoAnswer("no-role", msg("roles.none"), msg("roles.none-hint", reasons=tuple(dict.fromkeys(left))))
    ordered = sorted(found, key=lambda one: (-one.bears.value if budget is not None else one.cost.amount, one.in_halves))
    best = _simplest(ordered, budget)
    values = {"name": best.name, "rate": f"{best.bears.value:.3g}", "cost": str(best.cost), "model": served.name}
    words = msg("roles.design-rate" if budget is None else "roles.design-budget", **values)
    return DesignsAnswer(words, best, tuple(ordered), tuple(dict.fromkeys(left)))


def _sized(served: ModelLoad, budget: float | None) -> ModelLoad:
    """With a budget the rate is what is sought, so that copies are tried among as many as it buys."""
    return served if budget is None else replace(served, load=served.load.at(MANY))


def _ways(kinds: Sequence[GpuKind]) -> list[tuple[str, frozenset[str], bool]]:
    """Each kind alone; all side by side; and both again in halves."""
    every = frozenset(kind.gpu.id for kind in kinds)
    alone = [(kind.gpu.id, frozenset({kind.gpu.id})) for kind in kinds]
    several = [("+".join(kind.gpu.id for kind in kinds), every)] if len(kinds) > 1 else []
    each = [*alone, *several]
    return [*((name, ids, False) for name, ids in each), *((f"{name} in halves", ids, True) for name, ids in each)]


def _design(
    name: str, halves: bool, kinds: Sequence[GpuKind], able: Sequence[RoleReplica], served: ModelLoad, budget: float | None
) -> Design | None:
    """The best of one way, by simulation; where that says otherwise than the program, once more with what it said."""
    if not able:
        return None
    rate, factor = served.load.rate, 1.0
    best: tuple[Assignment, float] | None = None
    for _ in range(ROUNDS):
        cut = [replace(copy, capacity=copy.capacity * factor) for copy in able]
        found = best_assignment(cut, kinds, {served.name: rate}, budget, cheapest=budget is None, halves=halves)
        if found is None or not found.chosen:
            break
        thought = estimated_capacity(found.chosen)
        borne = max_rate(fleet_for(served, found.chosen, kinds), served.load, served.goals, thought)
        if budget is not None:
            if best is None or borne > best[1]:
                best = found, borne
            break
        if borne >= ENOUGH * rate and (best is None or found.cost < best[0].cost):
            best = found, borne
        corrected = factor * borne / thought if thought else 0.0
        if borne <= 0 or abs(corrected / factor - 1.0) < 0.01:
            break
        factor = corrected
    if best is None:
        return None
    chosen = best[0]
    gpus = tuple((kind.gpu.id, _used(chosen, kind)) for kind in kinds if _used(chosen, kind))
    like = widest_range(served, chosen.chosen, kinds)
    cost = Money(Decimal(repr(chosen.cost)).quantize(Decimal("0.0001")), kinds[0].currency)
    return Design(name, chosen.halves, gpus, cost, rate_figure(best[1], like), role_groups(chosen, (served,), kinds))


def _used(found: Assignment, kind: GpuKind) -> int:
    return sum(one.count * one.copy.degree for one in found.chosen if one.copy.gpu == kind.gpu.id)


def _simplest(ordered: Sequence[Design], budget: float | None) -> Design:
    """The best, or one that is nearly as good and does not send anything."""
    best = ordered[0]
    return next((one for one in ordered if not one.in_halves and _near(one, best, budget)), best)


def _near(one: Design, best: Design, budget: float | None) -> bool:
    if budget is not None:
        return one.bears.value * MIN_GAIN >= best.bears.value
    return float(one.cost.amount) <= MIN_GAIN * float(best.cost.amount)
