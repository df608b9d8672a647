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
from whichgpu.decide.plan.supply import GpuPool
from whichgpu.decide.work import work_of
from whichgpu.price.run import RunSettings


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job somebody wants done by a deadline (seconds)."""

    name: str
    asked: WorkloadRequest
    deadline: float


def jobs_of(wanted: Sequence[PlannedJob], gpu_pools: Sequence[GpuPool], run_settings: RunSettings) -> tuple[Job, ...]:
    """Each on one machine of every pool; on what is owned, on as many GPUs of a kind as make a power of two."""
    return tuple(_job(one, gpu_pools, run_settings) for one in wanted)


def _job(one: PlannedJob, gpu_pools: Sequence[GpuPool], run_settings: RunSettings) -> Job:
    groups = [
        Group(gpu_pool.gpu, gpu_pool.widest if gpu_pool.owned else gpu_pool.pool.size, 1, gpu_pool.fabric)
        for gpu_pool in gpu_pools
    ]
    work = work_of(one.asked.workload, one.asked.shape, None)
    hours, wall = np.full(len(gpu_pools), np.inf), np.full(len(gpu_pools), np.inf)
    for place, (group, way) in enumerate(zip(groups, best_configurations(one.asked, groups), strict=True)):
        if isinstance(way, Able) and work.amount is not None:
            wall[place] = work.amount / way.rate / 3600.0 + run_settings.startup / 3600.0
            hours[place] = wall[place] * (group.gpus if gpu_pools[place].owned else 1)  # a pool's machine is one GPU where owned
    return Job(one.name, hours, wall, one.deadline / 3600.0, divisible=one.asked.workload.traits.offline)
