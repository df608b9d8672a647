"""A role for every GPU of a cluster: which model it serves, whole or which half of it, or why it has none.

Two ways are sought, one in which every copy does all of its requests' work and one in which prompts may be read and answers
written on different GPUs; both are simulated, and halves are taken only where they bear more and more is of use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.parallel.sweep import Progress
from whichgpu.decide.roles.assignment import Assignment, best_assignment
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.fleets import SimulatedAssignment, rate_figure, role_groups, simulate_assignment, widest_range
from whichgpu.decide.roles.role_replicas import RoleReplica, role_replicas
from whichgpu.decide.roles.roles_answer import ComparedServing, IdleGpus, ModelRoles, RolesAnswer
from whichgpu.estimate.serving.fleet.fleet_answer import fleet_answer

MIN_GAIN = 1.02  # times what is borne whole that halves must bear
AGGREGATED_HEADROOM = 1.5  # times the load asked that are borne whole: nothing is sent about for more


def assign_roles(
    kinds: Sequence[GpuKind],
    served: Sequence[ModelLoad],
    *,
    jobs: int = 1,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RolesAnswer:
    """Roles for all GPUs of a cluster (`count` of each kind says how many) so that as much as can be of the load is borne."""
    _check(kinds, served)
    known, reasons = role_replicas(tuple(kinds), tuple(served), jobs, ray, progress)
    able = [one for one in served if any(copy.model == one.name for copy in known)]
    if not able:
        raise NoAnswer("no-role", msg("roles.none"), msg("roles.none-hint", reasons=tuple(reasons.values())))
    rates = {one.name: one.load.rate for one in able}
    found = {name: best_assignment(known, kinds, rates, halves=halves) for name, halves in (("whole", False), ("halves", True))}
    ways = {name: simulate_assignment(one, able, kinds) for name, one in found.items() if one is not None and one.chosen}
    if not ways:
        raise NoAnswer("no-role", msg("roles.none"), msg("roles.none-hint", reasons=tuple(reasons.values())))
    best = better_serving(ways)
    return _answer(kinds, served, able, ways, best, known, reasons)


def better_serving(ways: dict[str, SimulatedAssignment]) -> str:
    """Halves only where they bear enough more, and more is of use."""
    if "whole" not in ways or "halves" not in ways:
        return next(iter(ways))
    if ways["whole"].times >= AGGREGATED_HEADROOM:
        return "whole"
    return "halves" if ways["halves"].times > MIN_GAIN * ways["whole"].times else "whole"


def _check(kinds: Sequence[GpuKind], served: Sequence[ModelLoad]) -> None:
    if not kinds or not served:
        raise UsageError("no-cluster", msg("roles.empty"))
    if any(kind.count is None for kind in kinds):
        raise UsageError("no-count", msg("roles.uncounted"))
    for names in ([kind.gpu.id for kind in kinds], [one.name for one in served]):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError("twice", msg("roles.twice", names=tuple(twice)))


def _answer(
    kinds: Sequence[GpuKind], served: Sequence[ModelLoad], able: Sequence[ModelLoad], ways: dict[str, SimulatedAssignment],
    best: str, known: Sequence[RoleReplica], reasons: dict[tuple[str, str], Message],
) -> RolesAnswer:  # fmt: skip
    way = ways[best]
    models = tuple(_model(one, way, kinds) for one in able if way.assignment.of(one.name))
    idle = tuple(idle_gpus(way.assignment, kinds, served, known, reasons))
    unserved = [one for one in served if not way.assignment.of(one.name)]
    hardest = min(able, key=lambda one: way.borne[one.name] / one.load.rate)
    times = rate_figure(way.times, widest_range(hardest, way.assignment.of(hardest.name) or way.assignment.chosen, kinds))
    warnings = [msg("roles.unserved", model=one.name, why=_why(one, kinds, reasons)) for one in unserved]
    if way.times < 1 and not unserved:
        warnings.append(msg("roles.too-small", model=hardest.name, times=f"{way.times:.2g}"))
    at_work = sum(one.count * one.copy.degree for one in way.assignment.chosen)
    sentence = msg(
        f"roles.sentence-{best}", n=at_work, gpus=sum(kind.count or 0 for kind in kinds), models=len(models),
        times=f"{way.times:.2g}",
    )  # fmt: skip
    return RolesAnswer(
        sentence=sentence,
        times=times,
        groups=role_groups(way.assignment, able, kinds),
        idle=idle,
        models=models,
        compared=tuple(ComparedServing(name, one.times, name == best) for name, one in ways.items()),
        assumptions=(msg("roles.assumes-known"), msg("roles.assumes-sent"), msg("roles.assumes-cut")),
        warnings=tuple(warnings),
    )


def _model(one: ModelLoad, way: SimulatedAssignment, kinds: Sequence[GpuKind]) -> ModelRoles:
    chosen = way.assignment.of(one.name)
    like = widest_range(one, chosen, kinds)
    told = fleet_answer(way.fleets[one.name], one.load, one.goals, like)
    halves = any(each.copy.role != "both" for each in chosen)
    return ModelRoles(one.name, one.load.rate, rate_figure(way.borne[one.name], like), halves, told)


def _why(one: ModelLoad, kinds: Sequence[GpuKind], reasons: dict[tuple[str, str], Message]) -> tuple[Message, ...]:
    found = tuple(dict.fromkeys(reasons[one.name, kind.gpu.id] for kind in kinds if (one.name, kind.gpu.id) in reasons))
    return found or (msg("roles.no-gpus-left"),)


def idle_gpus(
    found: Assignment, kinds: Sequence[GpuKind], served: Sequence[ModelLoad], known: Sequence[RoleReplica],
    reasons: dict[tuple[str, str], Message],
) -> list[IdleGpus]:  # fmt: skip
    """GPUs left over, and for each model why they cannot serve it."""
    idle = []
    for kind in kinds:
        used = sum(one.count * one.copy.degree for one in found.chosen if one.copy.gpu == kind.gpu.id)
        left = (kind.count or 0) - used
        if left <= 0:
            continue
        why: list[Message] = []
        for one in served:
            if (one.name, kind.gpu.id) in reasons:
                why.append(reasons[one.name, kind.gpu.id])
                continue
            fewest = min(copy.degree for copy in known if (copy.model, copy.gpu) == (one.name, kind.gpu.id))
            few = msg("roles.too-few", model=one.name, gpu=kind.gpu.name, fewest=fewest, left=left)
            why.append(few if fewest > left else msg("roles.no-use", model=one.name, gpu=kind.gpu.name))
        idle.append(IdleGpus(kind.gpu.id, left, tuple(dict.fromkeys(why))))
    return idle
