"""Other engines on the answer's GPUs: which may run there, and how fast the same work would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichgpu.catalog.engine import Engine, engine_does, support
from whichgpu.decide.evaluate import ways
from whichgpu.decide.groups import Group
from whichgpu.decide.settle import exactly
from whichgpu.decide.way import Asked, Way
from whichgpu.estimate.time.grid import speaks
from whichgpu.workload.spelling import fill_defaults

SERVERS = ("vllm", "sglang", "tensorrt-llm")  # made for many requests at once
TRAINERS = ("pytorch", "pytorch-compile", "ngc")


@dataclass(frozen=True, slots=True)
class EngineLine:
    """How many times the speed of the answer another engine gives."""

    engine: str
    speed: float


def legal(engine: Engine, asked: Asked, group: Group) -> bool:
    """Whether an engine of this day does such work on such GPUs."""
    text = speaks(asked.shape)
    return engine_does(engine, asked.workload.task, text) and support(engine, group.gpu) == "yes"


def alternatives(asked: Asked, group: Group, way: Way, engines: Sequence[Engine]) -> tuple[EngineLine, ...]:
    """The usual other engines for the work, fastest first; none where the user named one."""
    if "engine" in asked.given:
        return ()
    names = SERVERS if speaks(asked.shape) and not asked.workload.training else TRAINERS if asked.workload.training else ()
    found = []
    for engine in engines:
        if engine.id == asked.workload.engine or engine.id not in names or not legal(engine, asked, group):
            continue
        speed = _trained(asked, group, way, engine.id) if asked.workload.training else _served(asked, group, way, engine.id)
        if speed is not None:
            found.append(EngineLine(engine.id, round(speed, 3)))
    return tuple(sorted(found, key=lambda line: -line.speed))


def _trained(asked: Asked, group: Group, way: Way, engine: str) -> float | None:
    """Times the speed of the very same layout and batch."""
    bare = replace(asked.bare, engine=engine, precision=way.precision)
    other = exactly(replace(asked, workload=fill_defaults(bare, asked.shape)), group, way)
    same = exactly(asked, group, way)
    return other.rate / same.rate if isinstance(other, Way) and isinstance(same, Way) else None


def _served(asked: Asked, group: Group, way: Way, engine: str) -> float | None:
    """Times the speed with as many sequences at once."""
    bare = replace(asked.bare, engine=engine, precision=way.precision, rate=None, ttft_max=None, tpot_max=None, batch=way.batch)
    other = replace(asked, workload=fill_defaults(bare, asked.shape), given=asked.given | {"precision", "batch"} - {"rate"})
    (one,) = ways(other, [group])
    return one.rate / way.rate if isinstance(one, Way) else None
