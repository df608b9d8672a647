"""Layouts of a workload over its GPUs that fit in memory, fastest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.advice import machine_of
from whichgpu.api.workloads.estimate import ResolvedWorkload, resolve_workload
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import Verdict
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import ParsedWorkload, from_object
from whichgpu.workload.workload import Parallel


class LayoutRow(msgspec.Struct, frozen=True):
    """One layout with the settings chosen for it; seconds of a step (of a token if generating) and bytes per GPU."""

    layout: str
    parallel: Parallel
    micro_batch: int
    accumulation: int
    checkpointing: str
    seconds: float
    memory: int
    fits: Verdict


def layouts(
    task: str, model: str | Mapping[str, Any], gpu: str, gpus: int, catalog: Catalog | None = None, **fields: Any
) -> tuple[LayoutRow, ...]:
    """Return the layouts over `gpus` GPUs that fit, fastest first; `fields` are those of a request."""
    lookups = lookup_cache(catalog)
    resolved = resolve_workload(from_object({"task": task, "model": model, "gpu": gpu, "gpus": gpus, **fields}), lookups)
    return layout_rows(resolved, lookups)


def layout_rows(resolved: ResolvedWorkload, lookups: LookupCache) -> tuple[LayoutRow, ...]:
    """Return the layouts (parallel degrees) in which a request fits in memory, fastest first."""
    from whichgpu.estimate.group.fabric import fabric_of
    from whichgpu.estimate.group.group_answer import layout_words
    from whichgpu.estimate.group.layout_search import screen_layouts, time_best_layouts
    from whichgpu.estimate.group.step import Devices

    workload, shape, gpu = resolved.workload, resolved.shape, resolved.gpu
    if gpu is None:
        return ()
    machine = machine_of(workload, gpu, lookups.catalog)
    fabric = fabric_of(gpu, machine, workload.interconnect, workload.network_gbps, workload.network)
    devices = Devices.of([gpu], [fabric], lookups.calibration)
    screened = screen_layouts(workload, shape, devices, workload.gpus, workload.nodes)
    return tuple(
        LayoutRow(
            layout_words(one.candidate.parallel), one.candidate.parallel, one.candidate.micro_batch, one.candidate.accumulation,
            one.candidate.checkpointing, one.seconds, one.need, one.fits,
        )
        for one in time_best_layouts(workload, shape, devices, screened, 0, workload.nodes)
    )  # fmt: skip


def with_best_layout(spelled: ParsedWorkload, lookups: LookupCache) -> ParsedWorkload:
    """Return the request with its layout replaced by the fastest that fits; raise an error if none does."""
    resolved = resolve_workload(spelled, lookups)
    workload = resolved.workload
    if resolved.gpu is None or workload.gpus < 2:
        return spelled
    rows = layout_rows(resolved, lookups)
    if not rows:
        raise NoAnswer("no-layout", msg("error.no-layout", gpus=workload.gpus, gpu=resolved.gpu.name), msg("hint.no-layout"))
    best = rows[0]
    chosen = replace(
        spelled.workload, parallel=best.parallel, accumulation=best.accumulation, checkpointing=best.checkpointing,
        micro_batch=best.micro_batch if workload.training else None, batch=workload.batch, gpus=workload.gpus,
    )  # fmt: skip
    return ParsedWorkload(chosen, resolved.user_fields)
