"""The best configuration of each group of GPUs; results are cached, since a question is often repeated with another ranking,
provider or request rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from msgspec.structs import replace

from whichgpu.base.lru import LruCache
from whichgpu.decide.configurations.configuration import GroupResult, WorkloadRequest
from whichgpu.decide.configurations.groups import Group

# Each cached result keeps the objects whose `id()` is part of its key alive, so that no other object gets the same id.
Cached = tuple[tuple[GroupResult, ...], Any]
_BY_GROUP, _BY_GROUPS = LruCache[Cached](8192), LruCache[Cached](64)


def best_configurations(request: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """Return the best configuration (layout, batch, precision) of the workload on each group of GPUs, or why it has none."""
    if not groups:
        return []
    if request.workload.generating and request.shape.is_generative:
        return _generation(request, groups)
    key = request_key(request), tuple(group_key(group) for group in groups)
    return list(_BY_GROUPS.get(key, lambda: (tuple(_steps(request, groups)), (request, groups)))[0])


def _generation(request: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """Return the best configurations for text generation, cached per group of GPUs, as they do not depend on the request rate."""
    from whichgpu.decide.configurations.generating import generate  # This import is deferred, since only generation needs it.

    rate = None if request.workload.rate is None else 1.0
    work = request_key(replace(request, workload=replace(request.workload, rate=rate)))
    keys = [(work, group_key(group)) for group in groups]
    cached = [_BY_GROUP.peek(key) for key in keys]  # Cached results are all read first, since storing one may evict others.
    new = iter(generate(request, [group for group, one in zip(groups, cached, strict=True) if one is None]))
    results = [one or ((next(new),), (request, group)) for group, one in zip(groups, cached, strict=True)]
    for key, one in zip(keys, results, strict=True):
        _BY_GROUP.put(key, one)
    return [one[0][0] for one in results]


def _steps(request: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    if request.workload.training and request.shape.is_transformer:
        from whichgpu.decide.configurations.training import train

        return train(request, groups)
    from whichgpu.decide.configurations.fixed_batch import evaluate_batches

    return evaluate_batches(request, groups)


def request_key(request: WorkloadRequest) -> Hashable:
    """Return a cache key of a workload and its model; the model's shape replaces its name, which may be a whole config file."""
    return replace(request.workload, model=""), request.stated, id(request.shape), id(request.calibration)


def group_key(group: Group) -> Hashable:
    """Return a cache key of a group of GPUs: its GPUs, machines, links and precision."""
    return id(group.gpu), group.per_machine, group.machines, group.fabric, group.precision
