"""From a request and groups of GPUs to the best way of each: which of the three kinds of work it is.

What was worked out a moment ago is not worked out again: people ask the same with another rank, provider or rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from whichgpu.base.lru import LruCache
from whichgpu.decide.configurations.configuration import GroupResult, WorkloadRequest
from whichgpu.decide.configurations.groups import Group

# Outcomes, with all whose identities are parts of their keys.
Known = tuple[tuple[GroupResult, ...], Any]
_ALONE, _TOGETHER = LruCache[Known](8192), LruCache[Known](64)


def best_configurations(asked: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """The best way of each group, or why there is none."""
    if not groups:
        return []
    if asked.workload.generating and asked.shape.is_generative:
        return _generated(asked, groups)
    key = _work(asked), tuple(_key(group) for group in groups)
    return list(_TOGETHER.get(key, lambda: (tuple(_stepped(asked, groups)), (asked, groups)))[0])


def _generated(asked: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """Groups do not look at one another here, nor at the rate: each is known by itself."""
    from whichgpu.decide.configurations.generating import generate  # each kind is loaded when it is asked for

    work = _work(replace(asked, workload=replace(asked.workload, rate=None if asked.workload.rate is None else 1.0)))
    keys = [(work, _key(group)) for group in groups]
    known = [_ALONE.peek(key) for key in keys]  # taken out at once: what is put in may push them out
    new = [group for group, one in zip(groups, known, strict=True) if one is None]
    told = iter(generate(asked, new))
    found = [one or ((next(told),), (asked, group)) for group, one in zip(groups, known, strict=True)]
    for key, one in zip(keys, found, strict=True):
        _ALONE.put(key, one)
    return [one[0][0] for one in found]


def _stepped(asked: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    if asked.workload.training and asked.shape.is_transformer:
        from whichgpu.decide.configurations.training import train

        return train(asked, groups)
    from whichgpu.decide.configurations.fixed_batch import pass_through

    return pass_through(asked, groups)


def _work(asked: WorkloadRequest) -> Hashable:
    """All but the model's name, which may be a whole config: its shape stands for it."""
    return replace(asked.workload, model=""), asked.given, id(asked.shape), id(asked.calibration)


def _key(group: Group) -> Hashable:
    return id(group.gpu), group.per_machine, group.machines, group.fabric
