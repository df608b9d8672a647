"""Step times of one replica on every kind of GPU, for each bucket of request lengths; they do not depend on the objectives."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.lru import LruCache
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.plan.solver.problem import Floats
from whichgpu.decide.plan.traffic import CACHE_SIZES, Bucket
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.group.step import Devices, inference_pass, pass_breakdown
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits, scheduler_limits
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.workload import Workload

BATCHES = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)  # running sequences tried
MAX_CACHED = 64  # Step times of as many precisions and tensor-parallel degrees are cached, enough for three models.
Kind = tuple[Gpu, Fabric]


class ReplicaSteps(msgspec.Struct, frozen=True):
    """Seconds of decode steps [batches, buckets] and of one prompt's prefill [buckets], and the scheduler's limits."""

    limits: SchedulerLimits
    decode: Floats
    prefill: Floats


class _Cached(msgspec.Struct, frozen=True):
    """Step times by kind of GPU, with the objects whose identity is their key in the cache, so that these stay alive."""

    steps: tuple[ReplicaSteps | None, ...]
    keys: tuple[object, ...]


_CACHE = LruCache[_Cached](MAX_CACHED)


def without_objectives(workload: Workload) -> Workload:
    """Return the workload with no rate and no objectives, which step times do not depend on."""
    return replace(workload, rate=None, ttft_max=None, tpot_max=None, percentile=95.0)


def replica_steps(
    request: WorkloadRequest, workload: Workload, buckets: Sequence[Bucket], kinds: Sequence[Kind]
) -> tuple[ReplicaSteps | None, ...]:
    """Return the step times of a replica (`workload`, one sequence) on each kind of GPU; None if the weights do not fit.

    They are cached: plans of a sweep, and those with other margins, differ in rates and objectives alone.
    """
    plain = without_objectives(workload)
    lengths = tuple((one.prompt, one.output, one.cached) for one in buckets)
    objects = (request.shape, request.calibration, *(gpu for gpu, _ in kinds))
    fabrics = tuple(fabric for _, fabric in kinds)
    key: Hashable = (msgspec.json.encode(plain), tuple(map(id, objects)), fabrics, lengths)
    return _CACHE.get(key, lambda: _Cached(_steps(request, plain, buckets, kinds), objects)).steps


def _steps(
    request: WorkloadRequest, workload: Workload, buckets: Sequence[Bucket], kinds: Sequence[Kind]
) -> tuple[ReplicaSteps | None, ...]:
    shape = as_transformer(request.shape)
    by_gpu = {gpu.id: _limits(workload, shape, gpu) for gpu in {gpu.id: gpu for gpu, _ in kinds}.values()}
    able = {at: limit for at, (gpu, _) in enumerate(kinds) if (limit := by_gpu[gpu.id]) is not None}
    if not able:
        return (None,) * len(kinds)
    devices = Devices.of([kinds[at][0] for at in able], [kinds[at][1] for at in able], request.calibration)
    prompts = np.array([max(1.0, bucket.prompt) for bucket in buckets])
    outputs = np.array([max(1.0, bucket.output) for bucket in buckets])
    batch, context = (np.ascontiguousarray(one.ravel()) for one in np.broadcast_arrays(BATCHES[:, None], prompts + outputs / 2))
    decode_pass = inference_pass(workload, shape, devices, batch, 1.0, context)
    decode = pass_breakdown(workload, decode_pass, devices).wall
    prefill = np.zeros((len(able), len(buckets)))
    cached = np.array([_cached_tokens(workload, buckets, limit) for limit in able.values()])
    for tokens in np.unique(cached, axis=0):
        prefill_pass = inference_pass(workload, shape, devices, np.ones(len(buckets)), prompts - tokens, None, tokens)
        mine = (cached == tokens).all(axis=1)
        prefill[mine] = np.broadcast_to(pass_breakdown(workload, prefill_pass, devices).wall, prefill.shape)[mine]
    size = (len(able), len(BATCHES), len(buckets))
    decodes = np.broadcast_to(decode, (size[0], size[1] * size[2])).reshape(size)
    steps: list[ReplicaSteps | None] = [None] * len(kinds)
    for (at, limit), one, prompt_seconds in zip(able.items(), decodes, prefill, strict=True):
        steps[at] = ReplicaSteps(limit, one, prompt_seconds)
    return tuple(steps)


def _cached_tokens(workload: Workload, buckets: Sequence[Bucket], limits: SchedulerLimits) -> Floats:
    """Return the mean input tokens of each bucket in a replica's prefix cache: the share stated, or what the trace's share."""
    size = sum(limits.cache_tokens >= one for one in CACHE_SIZES) if limits.prefix_caching else 0
    shared = np.array([one.cached[size - 1] if size and one.cached else 0.0 for one in buckets])
    prompts = np.array([max(1.0, bucket.prompt) for bucket in buckets])
    tokens: Floats = np.minimum(np.maximum((workload.prefix_hit or 0.0) * prompts, shared), prompts - 1.0)
    return tokens


def _limits(workload: Workload, shape: Transformer, gpu: Gpu) -> SchedulerLimits | None:
    """Return the engine's scheduler limits on this GPU; None if the weights do not fit."""
    try:
        return scheduler_limits(workload, shape, gpu, typical=(workload.seq_in or 1) + (workload.seq_out or 0))
    except NoAnswer:
        return None
