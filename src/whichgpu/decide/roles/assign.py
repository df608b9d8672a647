"""A role for every GPU of a cluster: which model it serves, aggregated or as prefill or decode worker; or why it has none.

The best aggregated and the best disaggregated assignment are both simulated. Disaggregated serving is chosen only if it has more
capacity and the additional capacity is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.parallel.sweep import run_sweep
from whichgpu.decide.roles.assignment import Assignment, best_assignment
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.fleets import SimulatedAssignment, rate_figure, role_groups, simulate_assignment, widest_range
from whichgpu.decide.roles.role_replicas import Reasons, RoleReplica, Sweep, role_replicas
from whichgpu.decide.roles.roles_answer import ComparedServing, IdleGpus, ModelRoles, RolesAnswer
from whichgpu.estimate.serving.fleet.fleet_answer import fleet_answer

MIN_GAIN = 1.02  # Disaggregated serving must have this multiple of the aggregated capacity.
AGGREGATED_HEADROOM = 1.5  # If aggregated serving has this multiple of the load, disaggregation is not considered.


def assign_roles(kinds: Sequence[GpuKind], served: Sequence[ModelLoad], sweep: Sweep = run_sweep) -> RolesAnswer:
    """Return what each GPU of a cluster serves (model; prefill, decode or both) for the most load; kinds need a `count`."""
    _check(kinds, served)
    replicas, reasons = role_replicas(kinds, served, sweep)
    able = [one for one in served if any(replica.model == one.name for replica in replicas)]
    rates = {one.name: one.load.rate for one in able}
    assignments = {
        name: best_assignment(replicas, kinds, rates, disaggregate=name == "disaggregated")
        for name in ("aggregated", "disaggregated")
    }
    simulated = {name: simulate_assignment(one, able, kinds) for name, one in assignments.items() if one and one.chosen}
    if not simulated:
        raise NoAnswer("no-role", msg("roles.none"), msg("roles.none-hint", reasons=tuple(reasons.values())))
    name = better_serving(simulated)
    best = simulated[name]
    models = tuple(_model_roles(one, best, kinds) for one in able if best.assignment.of(one.name))
    hardest = min(able, key=lambda one: best.capacities[one.name] / one.load.rate)
    step = widest_range(hardest, best.assignment.of(hardest.name) or best.assignment.chosen, kinds)
    unserved = [one for one in served if not best.assignment.of(one.name)]
    warnings = [msg("roles.unserved", model=one.name, why=_why(one, kinds, reasons)) for one in unserved]
    if best.times < 1 and not unserved:
        warnings.append(msg("roles.too-small", model=hardest.name, times=f"{best.times:.2g}"))
    used, gpus = (sum(counts) for counts in zip(*((best.assignment.gpus(kind), kind.count or 0) for kind in kinds), strict=True))
    return RolesAnswer(
        sentence=msg(f"roles.sentence-{name}", n=used, gpus=gpus, models=len(models), times=f"{best.times:.2g}"),
        times=rate_figure(best.times, step),
        groups=role_groups(best.assignment, able, kinds),
        idle=tuple(idle_gpus(best.assignment, kinds, served, replicas, reasons)),
        models=models,
        compared=tuple(ComparedServing(other, one.times, other == name) for other, one in simulated.items()),
        assumptions=(msg("roles.assumes-known"), msg("roles.assumes-sent"), msg("roles.assumes-cut")),
        warnings=tuple(warnings),
    )


def better_serving(simulated: dict[str, SimulatedAssignment]) -> str:
    """Return which assignment to use: `disaggregated` only if its gain is large and needed, else `aggregated`."""
    if "aggregated" not in simulated or "disaggregated" not in simulated:
        return next(iter(simulated))
    if simulated["aggregated"].times >= AGGREGATED_HEADROOM:
        return "aggregated"
    return "disaggregated" if simulated["disaggregated"].times > MIN_GAIN * simulated["aggregated"].times else "aggregated"


def _check(kinds: Sequence[GpuKind], served: Sequence[ModelLoad]) -> None:
    if not kinds or not served:
        raise UsageError("no-cluster", msg("roles.empty"))
    if any(kind.count is None for kind in kinds):
        raise UsageError("no-count", msg("roles.uncounted"))
    for names in ([kind.gpu.id for kind in kinds], [one.name for one in served]):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError("twice", msg("roles.twice", names=tuple(twice)))


def _model_roles(one: ModelLoad, best: SimulatedAssignment, kinds: Sequence[GpuKind]) -> ModelRoles:
    chosen = best.assignment.of(one.name)
    step = widest_range(one, chosen, kinds)
    answer = fleet_answer(best.fleets[one.name], one.load, one.objectives, step)
    disaggregated = any(each.replica.role != "both" for each in chosen)
    return ModelRoles(one.name, one.load.rate, rate_figure(best.capacities[one.name], step), disaggregated, answer)


def _why(one: ModelLoad, kinds: Sequence[GpuKind], reasons: Reasons) -> tuple[Message, ...]:
    messages = tuple(dict.fromkeys(reasons[one.name, kind.gpu.id] for kind in kinds if (one.name, kind.gpu.id) in reasons))
    return messages or (msg("roles.no-gpus-left"),)


def idle_gpus(
    assignment: Assignment,
    kinds: Sequence[GpuKind],
    served: Sequence[ModelLoad],
    replicas: Sequence[RoleReplica],
    reasons: Reasons,
) -> list[IdleGpus]:
    """Return the GPUs that serve no model, by kind, with the reason for each model why they do not serve it."""
    idle = []
    for kind in kinds:
        left = (kind.count or 0) - assignment.gpus(kind)
        if left <= 0:
            continue
        why: list[Message] = []
        for one in served:
            if (one.name, kind.gpu.id) in reasons:
                why.append(reasons[one.name, kind.gpu.id])
                continue
            fewest = min(replica.degree for replica in replicas if (replica.model, replica.gpu) == (one.name, kind.gpu.id))
            few = msg("roles.too-few", model=one.name, gpu=kind.gpu.name, fewest=fewest, left=left)
            why.append(few if fewest > left else msg("roles.no-use", model=one.name, gpu=kind.gpu.name))
        idle.append(IdleGpus(kind.gpu.id, left, tuple(dict.fromkeys(why))))
    return idle
