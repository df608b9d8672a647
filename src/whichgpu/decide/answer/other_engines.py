"""Other engines on the answer's GPUs: which may run there, and how fast the same work would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichgpu.catalog.engines.engine import Engine, engine_support, supports_task
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.refine import laid, timed
from whichgpu.workload.spelling import fill_defaults
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class EngineLine:
    """How many times the speed of the answer another engine gives."""

    engine: str
    speed: float


def legal(engine: Engine, asked: WorkloadRequest, group: Group) -> bool:
    """Whether an engine of this day does such work on such GPUs."""
    text = asked.shape.is_generative
    return supports_task(engine, asked.workload.task, text) and engine_support(engine, group.gpu) == "yes"


def alternatives(asked: WorkloadRequest, group: Group, way: Configuration, engines: Sequence[Engine]) -> tuple[EngineLine, ...]:
    """The usual other engines for the work, fastest first; none where the user named one."""
    if "engine" in asked.given:
        return ()
    use = "training" if asked.workload.training else "inference" if asked.shape.is_generative else ""
    names = [id for id in engine_ids() if use in engine_record(id).compared_for and id != asked.workload.engine]
    others = [one.id for one in engines if one.id in names and legal(one, asked, group)]
    if not others:
        return ()
    usual = _seconds(asked, group, way, asked.workload)
    found = [EngineLine(one, round(usual / _seconds(asked, group, way, _with(asked, way, one)), 3)) for one in others]
    return tuple(sorted(found, key=lambda line: -line.speed))


def _with(asked: WorkloadRequest, way: Configuration, engine: str) -> Workload:
    return fill_defaults(replace(asked.bare, engine=engine, precision=way.precision), asked.shape)


def _seconds(asked: WorkloadRequest, group: Group, way: Configuration, workload: Workload) -> float:
    """Of the very same layout and batch: of one copy where it answers, of the step where it trains."""
    one = laid(workload, group, way)
    if not workload.training:
        copy = replace(way.parallel, dp=1)
        machines = min(copy.pp, group.machines)
        one = replace(one, gpus=copy.tp * copy.pp, nodes=machines, parallel=copy, batch=max(1, way.batch // way.parallel.dp))
    return timed(asked, group, one)[0]
