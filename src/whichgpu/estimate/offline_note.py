"""A note on the concurrency chosen for offline inference."""

from __future__ import annotations

from collections.abc import Collection

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload


def concurrency_note(workload: Workload, shape: Shape, gpu: Gpu | None, fields_set: Collection[str]) -> tuple[Message, ...]:
    """Return a message on how offline inference's batch was chosen; none if it is in `fields_set`, the fields the user set."""
    if not chooses_batch(workload, shape, fields_set):
        return ()
    if gpu is None:
        return (msg("note.batch-no-gpu", batch=workload.batch or 1),)
    from whichgpu.estimate.offline import MAX_CONCURRENCY, default_sequences

    batch, each = workload.batch or 1, (workload.batch or 1) // workload.parallel.dp
    usual, engine = default_sequences(workload, shape, gpu), workload.engine or ""
    if usual is not None and each > usual:
        setting = f"{engine_record(engine).serve.max_sequences} {each}"
        return (msg("note.batch-set", batch=batch, engine=engine, most=usual, setting=setting),)
    return (msg("note.batch-most" if each >= MAX_CONCURRENCY else "note.batch-chosen", batch=batch, most=MAX_CONCURRENCY),)
