"""A note on the defaults of an older year that an answer uses: precision, memory format, attention, optimizer, CUDA context."""

from __future__ import annotations

from collections.abc import Collection

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.workload.workload import Workload

# Workload fields whose default depends on the year, and the field of the engine's record that holds it.
DATED_FIELDS = {
    "precision": "usual_precisions",
    "memory_format": "memory_format",
    "attention": "attention",
    "optimizer_fused": "optimizer_kernels",
}


def era_note(workload: Workload, user_fields: Collection[str]) -> tuple[Message, ...]:
    """Return a note that names the defaults of the year in the request that differ from today's; none if there are none.

    `workload` has its defaults filled in.
    """
    engine = workload.engine or default_engine()
    then, now = engine_record(engine, workload.year), engine_record(engine)
    changed = [
        f"{field} {str(getattr(workload, field)).lower()}"
        for field, name in DATED_FIELDS.items()
        if field not in user_fields and getattr(workload, field) is not None and getattr(then, name) != getattr(now, name)
        if workload.training or field != "optimizer_fused"
    ]
    if workload.precision == "fp32-default" and then.tf32_matmul != now.tf32_matmul:
        changed.append("GEMM tf32" if then.tf32_matmul else "GEMM fp32")
    if then.memory.eager_kernels != now.memory.eager_kernels:
        changed.append("CUDA_MODULE_LOADING EAGER")
    return (msg("note.era-defaults", engine=engine, year=str(workload.year), what=tuple(changed)),) if changed else ()
