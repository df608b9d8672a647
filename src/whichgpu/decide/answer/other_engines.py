"""Estimated speed of the same workload with other engines on the answer's GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.engines.engine import Engine, engine_support, supports_task
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.refine import step_time, workload_of
from whichgpu.workload.spelling import fill_defaults
from whichgpu.workload.workload import Workload


class EngineLine(msgspec.Struct, frozen=True):
    """Speed of one other serving engine on the answer's GPUs, as a multiple of the speed of the answer's engine."""

    engine: str
    speed: float


def other_engines(
    request: WorkloadRequest, group: Group, one: Configuration, engines: Sequence[Engine]
) -> tuple[EngineLine, ...]:
    """Return the usual other engines that run the workload on these GPUs, fastest first; none if the user named an engine."""
    if "engine" in request.stated:
        return ()
    workload, generative = request.workload, request.shape.is_generative
    use = "training" if workload.training else "inference" if generative else ""
    names = [id for id in engine_ids() if use in engine_record(id).compared_for and id != workload.engine]
    others = [
        engine.id
        for engine in engines
        if engine.id in names and supports_task(engine, workload.task, generative) and engine_support(engine, group.gpu) == "yes"
    ]
    if not others:
        return ()
    usual = _seconds(request, group, one, workload)
    filled = {id: fill_defaults(replace(request.bare, engine=id, precision=one.precision), request.shape) for id in others}
    lines = [EngineLine(id, round(usual / _seconds(request, group, one, other), 3)) for id, other in filled.items()]
    return tuple(sorted(lines, key=lambda line: -line.speed))


def _seconds(request: WorkloadRequest, group: Group, one: Configuration, workload: Workload) -> float:
    """Return seconds of one step in the answer's layout and batch: of all GPUs for training, of one replica for inference."""
    step = workload_of(workload, group, one)
    if not workload.training:
        replica = replace(one.parallel, dp=1)
        gpus, nodes = replica.tp * replica.pp, min(replica.pp, group.machines)
        step = replace(step, gpus=gpus, nodes=nodes, parallel=replica, batch=max(1, one.batch // one.parallel.dp))
    return step_time(request, group, step)[0]
