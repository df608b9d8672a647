"""Whether an engine can run a request: an error if it cannot, a warning if that is uncertain."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.engine import Engine, engine_support, may_run_on, supports_task
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.precisions import GGUF_PRECISIONS
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload


def check_engine(
    workload: Workload, shape: Shape, gpu: Gpu | None, engines: Sequence[Engine], user_fields: Collection[str] = ()
) -> tuple[Message, ...]:
    """Return warnings about the workload's engine; raise if the user named one that cannot run the workload."""
    engine = next((engine for engine in engines if engine.id == workload.engine), None)
    if engine is None:
        return ()
    text = shape.is_language_model
    if "engine" in user_fields:
        able = [one for one in engines if supports_task(one, workload.task, text) and (gpu is None or may_run_on(one, gpu))]
        _refuse(engine, workload, shape, gpu, able)
    if gpu is None:
        return ()
    sure = engine_support(engine, gpu)
    if sure == "yes":
        return ()
    id = {"earlier": "warning.engine-earlier", "unsure": "warning.engine-unsure"}.get(sure, "warning.engine-assumed")
    return (msg(id, engine=engine.name, gpu=gpu.name),)


def with_engine_of_gpus(workload: Workload, shape: Shape, gpus: Sequence[Gpu], engines: Sequence[Engine]) -> Workload:
    """Return the workload under the usual engine of chips that need their own, such as JAX on TPUs; unchanged on other GPUs.

    An engine that the user named stays, and so does the default if the GPUs have no engine in common.
    """
    if workload.engine or not gpus or (workload.precision or "") in GGUF_PRECISIONS:
        return workload
    interfaces = [set(gpu.software.api) if gpu.software else set() for gpu in gpus]
    usual = (
        engine.id
        for engine in engines
        if supports_task(engine, workload.task, shape.is_language_model)
        and all(not api.isdisjoint(engine_record(engine.id).default_on) for api in interfaces)
        and all(may_run_on(engine, gpu) for gpu in gpus)
    )
    engine = next(usual, None)
    return replace(workload, engine=engine) if engine else workload


def _refuse(engine: Engine, workload: Workload, shape: Shape, gpu: Gpu | None, able: Sequence[Engine]) -> None:
    if not supports_task(engine, workload.task):
        message = msg("error.engine-task", engine=engine.name, task=workload.task)
    elif not supports_task(engine, workload.task, shape.is_language_model):
        message = msg("error.engine-model", engine=engine.name, model=shape.name)
    elif gpu is not None and not may_run_on(engine, gpu):
        message = msg("error.engine-gpu", engine=engine.name, gpu=gpu.name)
    else:
        return
    choices = tuple(other.id for other in able)
    raise UsageError("engine-impossible", message, msg("hint.engines", choices=choices), choices)
