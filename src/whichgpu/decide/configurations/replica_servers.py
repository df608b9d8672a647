"""Servers of a question's candidates: one replica with its scheduler limits, and its step times, cached between questions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.lru import LruCache
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits, batch_limits, scheduler_limits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.step_tables import StepQueries, StepTables, TableSizes
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.workload import Parallel, Workload

MAX_BATCH = 512  # Step tables cover up to this many running sequences; no objective holds with more.
TABLE_ROWS = 64  # Rows of a step table; between rows GEMM times are nearly linear.
# Workload fields on which no step time depends: workloads that differ only in these share simulated servers.
UNTIMED: dict[str, Any] = {
    "model": "", "gpu": None, "rate": None, "seq_in": None, "seq_out": None, "ttft_max": None, "tpot_max": None, "percentile": 95,
    "samples": None,
}  # fmt: skip
# Cached decode and mixed step times, with the GPU and calibration objects, whose `id()` is part of the key.
CachedStepTimes = tuple[Floats, Floats, Gpu, Calibration]
_STEP_TIMES = LruCache[CachedStepTimes](256)


def replica_key(group: Group, one: Configuration) -> Hashable:
    """Return a key that is equal for replicas with equal times: GPU and links, precision, layout, several machines or one."""
    return group.kind, one.precision, one.parallel.tp, one.parallel.pp, group.machines > 1


class UntimedReplica(msgspec.Struct, frozen=True):
    """One replica of the model on its GPUs and its scheduler limits, before its step times are computed."""

    workload: Workload
    group: Group
    limits: SchedulerLimits
    batch_limits: SchedulerLimits  # limits that apply to the batch of one pipeline stage


def untimed_replica(request: WorkloadRequest, group: Group, one: Configuration) -> UntimedReplica | None:
    """Return one replica with its scheduler limits (KV blocks, sequences, tokens); None if no KV cache fits by the weights."""
    shape = as_transformer(request.shape)
    tp, pp = one.parallel.tp, one.parallel.pp
    base = with_precision(request.workload, one.precision, request.stated)
    workload = replace(base, gpus=tp * pp, nodes=min(pp, group.machines), parallel=Parallel(tp=tp, pp=pp), batch=None)
    try:
        limits = scheduler_limits(workload, shape, group.gpu, one.overrides, _context(workload))
    except NoAnswer:
        return None
    each = batch_limits(limits, pp)
    sequences = min(each.max_sequences, max(1, each.cache_tokens // each.block_tokens), MAX_BATCH)
    return UntimedReplica(workload, group, limits, replace(each, max_sequences=sequences))


def _context(workload: Workload) -> int:
    return (workload.seq_in or 1) + (workload.seq_out or 0)


def timed_servers(request: WorkloadRequest, replicas: Sequence[UntimedReplica]) -> Iterator[Server]:
    """Yield a server for each replica, all in one layout; step times not cached are computed for all GPUs in one call."""
    first, shape = replicas[0], as_transformer(request.shape)
    workload, max_tokens = replace(first.workload, **UNTIMED), first.batch_limits.max_batched_tokens
    pp, context = workload.parallel.pp, 1 << (_context(first.workload) - 1).bit_length()
    queries = _queries(TableSizes(MAX_BATCH, max(max_tokens, 2), context), pp)
    keys = [
        (workload, shape, id(one.group.gpu), one.group.fabric, id(request.calibration), max_tokens, context) for one in replicas
    ]
    cached = [_STEP_TIMES.peek(key) for key in keys]  # Cached times are all read first, since storing one may evict others.
    new = [one.group for one, times in zip(replicas, cached, strict=True) if times is None]
    timed: Iterator[tuple[Floats, Floats]] = iter(())
    if new:
        gpus = [group.gpu for group in new]
        devices = Devices.of(gpus, [group.fabric for group in new], request.calibration)
        steps = EngineSteps(workload, shape, gpus[0], None, devices, separate=True)
        timed = zip(steps.decode_on_each(*queries.decode), steps.mixed_on_each(*queries.mixed), strict=True)
    for one, key, entry in zip(replicas, keys, cached, strict=True):
        times = entry or (*next(timed), one.group.gpu, request.calibration)
        _STEP_TIMES.put(key, times)
        yield Server(StepTables.from_values(queries.table_values(*times[:2])), one.limits, one.batch_limits, 1, pp)


@lru_cache(maxsize=32)
def _queries(sizes: TableSizes, stages: int) -> StepQueries:
    """Return the steps to time for servers with tables of these sizes."""
    return StepQueries(sizes, stages, TABLE_ROWS)
