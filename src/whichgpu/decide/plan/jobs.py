"""Training and batch jobs beside serving: hours of each pool's machines, from the same estimates as a recommendation's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichgpu.decide.configurations.configuration import Configuration as Able
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.plan.solver.problem import Job
from whichgpu.decide.plan.supply import Stand
from whichgpu.decide.work import work_of
from whichgpu.price.run import Habits


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job somebody wants done by a deadline (seconds)."""

    name: str
    asked: WorkloadRequest
    deadline: float


def jobs_of(wanted: Sequence[Wanted], stands: Sequence[Stand], habits: Habits) -> tuple[Job, ...]:
    """Each on one machine of every pool; on what is owned, on as many GPUs of a kind as make a power of two."""
    return tuple(_job(one, stands, habits) for one in wanted)


def _job(one: Wanted, stands: Sequence[Stand], habits: Habits) -> Job:
    groups = [Group(stand.gpu, stand.widest if stand.owned else stand.pool.size, 1, stand.fabric) for stand in stands]
    work = work_of(one.asked.workload, one.asked.shape, None)
    hours, wall = np.full(len(stands), np.inf), np.full(len(stands), np.inf)
    for place, (group, way) in enumerate(zip(groups, best_configurations(one.asked, groups), strict=True)):
        if isinstance(way, Able) and work.amount is not None:
            wall[place] = work.amount / way.rate / 3600.0 + habits.startup / 3600.0
            hours[place] = wall[place] * (group.gpus if stands[place].owned else 1)  # a pool's machine is one GPU where owned
    return Job(one.name, hours, wall, one.deadline / 3600.0, divisible=one.asked.workload.traits.offline)
