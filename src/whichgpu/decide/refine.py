"""Refine screened candidates: those listed are counted and timed exactly, until the list no longer changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.base.figure import Figure
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group, Groups
from whichgpu.decide.constraints import Constraints
from whichgpu.decide.relax import leaning
from whichgpu.estimate.fit import fit, required_memory, verdict, with_training_defaults
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.offline import offline_batch, replica_seconds, single_replica
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Ints
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.workload import Parallel, Workload

MAX_REFINED = 24  # Training groups refined at most, so that every row listed is counted and timed alike (assumed enough).
MOST_SERVED = 40  # groups simulated; what is left then is not shown
AHEAD = 32  # groups looked at by formula at once, beyond those listed: they would be asked for next

Join = Callable[[list[GroupResult]], tuple[Candidates, Ints]]
Places = Callable[[Candidates, Ints], Iterable[int]]


def settled(
    asked: WorkloadRequest,
    groups: Groups,
    outcomes: list[GroupResult],
    join: Join,
    constraints: Constraints,
    listed: Places,
    shown: Places,
) -> tuple[Candidates, Ints, list[GroupResult]]:
    """Candidates joined with offers and put in order, the first of them settled; where there is none, those that come nearest.

    Training is screened on lines, serving by formulas, offline generation on a grid of batches; all else is exact as it is.
    """
    if asked.workload.rate is not None and any(isinstance(one, Configuration) and one.most is not None for one in outcomes):
        return _served(asked, groups, outcomes, join, listed, shown)
    if chooses_batch(asked.workload, asked.given) and asked.workload.generating and asked.shape.is_generative:
        return _concurrent(asked, groups, outcomes, join, listed)
    told, order = join(outcomes)
    if not (asked.workload.training and asked.shape.is_transformer):
        return told, order, outcomes
    done: set[int] = set()
    while len(done) < MAX_REFINED and (
        wanted := ({int(told.group[place]) for place in listed(told, order)} if len(order) else leaning(told, constraints)) - done
    ):
        for place in wanted:
            way = outcomes[place]
            assert isinstance(way, Configuration)
            outcomes = [*outcomes[:place], exactly(asked, groups.groups[place], way), *outcomes[place + 1 :]]
        done |= wanted
        told, order = join(outcomes)
    return told, order, outcomes


@dataclass(frozen=True, slots=True)
class Concurrency:
    """One replica of offline inference at the concurrency chosen for it; memory in bytes on each GPU."""

    batch: int
    seconds: float
    bound: str
    floor: float
    need: Figure
    usable: int


def _concurrent(
    asked: WorkloadRequest, groups: Groups, outcomes: list[GroupResult], join: Join, listed: Places
) -> tuple[Candidates, Ints, list[GroupResult]]:
    """Offline inference: the concurrency of every candidate listed chosen exactly, as `estimate` does."""
    done: dict[int, GroupResult] = {}
    known: dict[tuple[str, Parallel, Fabric], Concurrency] = {}
    while True:
        told, order = join(outcomes)
        places = dict.fromkeys(int(told.group[place]) for place in listed(told, order)) if len(order) else {}
        left = [place for place in places if place not in done][: MOST_SERVED - len(done)]
        if not left:
            return told, order, outcomes
        for place in left:
            way = outcomes[place]
            assert isinstance(way, Configuration)
            done[place] = _concurrency(asked, groups.groups[place], way, known)
        outcomes = [done.get(place, one) for place, one in enumerate(outcomes)]


def _concurrency(
    asked: WorkloadRequest, group: Group, way: Configuration, known: dict[tuple[str, Parallel, Fabric], Concurrency]
) -> GroupResult:
    """The same configuration at the concurrency with the highest throughput that fits."""
    gpu, dp = group.gpu, way.parallel.dp
    key = gpu.id, replace(way.parallel, dp=1), group.fabric
    if key not in known:
        one = single_replica(laid(with_precision(asked.workload, way.precision), group, way))

        def memory_of(workload: Workload) -> MemoryEstimate:
            return estimate_memory(workload, asked.shape, gpu)

        seconds_of = replica_seconds(one, asked.shape, gpu, lambda: group.fabric, asked.calibration)
        one = replace(one, batch=offline_batch(one, asked.shape, gpu, memory_of, seconds_of))
        need = required_memory(memory_of(one), one)
        known[key] = Concurrency(one.batch or 1, *timed(asked, group, one), need, usable_bytes(gpu, one))
    found = known[key]
    fits = verdict(found.need, found.usable)
    if fits == "no":
        return Infeasibility("memory", found.need.value / found.usable - 1.0)
    return replace(
        way, batch=found.batch * dp, seconds=found.seconds, rate=found.batch * dp / found.seconds, need=int(found.need.value),
        usable=found.usable, fits=fits, bound=found.bound, floor=found.floor,
    )  # fmt: skip


def _served(
    asked: WorkloadRequest, groups: Groups, outcomes: list[GroupResult], join: Join, listed: Places, shown: Places
) -> tuple[Candidates, Ints, list[GroupResult]]:
    """Every group at the most that formulas of a full batch hope for; those listed by their own steps; then simulated.

    Every closer look does no better than was hoped before, so no group left aside could have won: one looks until all that are
    listed are simulated. Then the rest stand at what the formulas are sure of, and those of them that would be shown all the
    same (the fastest, the front) are simulated too: every row shown is worked out in one and the same way.
    """
    from whichgpu.decide.configurations.simulate import Simulator  # loaded where something is served

    hoped: set[int] = set()
    done: dict[int, GroupResult] = {}
    simulator = Simulator(asked)

    def simulate(standing: list[GroupResult], wanted: Places, ahead: int) -> tuple[Candidates, Ints]:
        while True:
            told, order = join(standing)
            places = dict.fromkeys(int(told.group[place]) for place in wanted(told, order)) if len(order) else {}
            left = [(place, way) for place in places if place not in done and isinstance(way := outcomes[place], Configuration)]
            if new := {place: way for place, way in left if place not in hoped}:
                new |= {place: way for place, way in _first(told, order, outcomes, ahead).items() if place not in hoped}
                found = {place: simulator.hopes(groups.groups[place], way) for place, way in new.items()}
                hoped.update(found)
            elif near := dict(left[: MOST_SERVED - len(done)]):
                simulator.prepare((groups.groups[place], way) for place, way in near.items())
                found = {place: simulator.bears(groups.groups[place], way) for place, way in near.items()}
                done.update(found)
            else:
                return told, order
            for place, outcome in found.items():
                standing[place] = outcome

    simulate([_hoped(one) for one in outcomes], listed, AHEAD)
    standing = [done.get(place, one) for place, one in enumerate(outcomes)]
    told, order = simulate(standing, shown, 0)
    known = np.array([place in done for place in range(len(standing))], dtype=bool)
    return told, order[known[told.group[order]]], standing


def _first(told: Candidates, order: Ints, outcomes: list[GroupResult], count: int) -> dict[int, Configuration]:
    """So many groups that come first, each once."""
    ordered = told.group[order]
    places = (int(ordered[place]) for place in np.sort(np.unique(ordered, return_index=True)[1])[:count])
    return {place: way for place in places if isinstance(way := outcomes[place], Configuration)}


def _hoped(one: GroupResult) -> GroupResult:
    return replace(one, capacity=one.most) if isinstance(one, Configuration) and one.most is not None else one


def exactly(asked: WorkloadRequest, group: Group, way: Configuration) -> GroupResult:
    """The same way, its memory counted and its step timed, with micro-batch and checkpointing as `fit` decides them.

    Of a pipeline whose batch is given, the micro-batch stays the one that fills its stages best.
    """
    one = laid(asked.workload, group, way)
    if "batch" not in asked.given or way.parallel.pp == 1:
        one = with_training_defaults(
            one, asked.shape, group.gpu, asked.given, lambda it: estimate_memory(it, asked.shape, group.gpu)
        )
    need = required_memory(estimate_memory(one, asked.shape, group.gpu), one)
    found = fit(need, one, group.gpu)
    if found.fits == "no":
        return Infeasibility("memory", need.value / found.usable - 1.0)
    seconds, bound, floor = timed(asked, group, one)
    done, _ = work_per_step(one, asked.shape)
    return replace(
        way, seconds=seconds, rate=done / seconds, need=int(need.value), fits=found.fits, bound=bound, floor=floor,
        checkpointing=one.checkpointing, micro_batch=one.local_batch, accumulation=one.accumulation,
    )  # fmt: skip


def laid(workload: Workload, group: Group, way: Configuration) -> Workload:
    """A request as a way does it."""
    return replace(
        workload, gpus=group.gpus, nodes=group.machines, precision=way.precision, parallel=way.parallel, batch=way.batch,
        micro_batch=way.micro_batch, accumulation=way.accumulation, checkpointing=way.checkpointing,
    )  # fmt: skip


def timed(asked: WorkloadRequest, group: Group, one: Workload) -> tuple[float, str, float]:
    """Seconds of a step on a group, what bounds it, and the seconds it takes at the least."""
    if one.gpus == 1:
        grid = evaluate_grid(one, asked.shape, [group.gpu], calibration=asked.calibration)
        return float(grid.seconds.wall[0, 0]), grid.bound(0, 0), float(grid.floor[0, 0])
    told = evaluate_group(one, asked.shape, Devices.of([group.gpu], [group.fabric], asked.calibration))
    seconds, floor = float(told.breakdown.wall[0, 0]), float(told.floor[0, 0])
    flops, moved = float(told.flop_seconds[0, 0]), float(told.byte_seconds[0, 0])
    waits = float(told.breakdown.communication[0, 0]) > 0.4 * seconds
    return seconds, "interconnect" if waits else "compute" if flops >= moved else "bandwidth", floor
