"""Sweeps: one function over many items in this process, in a process pool or on a Ray cluster, with the same results.

Each item has its own seed, made from the sweep's seed and the item, so results do not depend on order or place. Functions are
top-level ones of a module, called as `function(item, seed)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any, TypeVar

import msgspec

from whichgpu.base.disk_cache import ResultCache, content_hash
from whichgpu.base.errors import DataError, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.parallel.process_pool import ProcessPool, Results
from whichgpu.base.parallel.ray_cluster import on_ray

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item, int], Result]


class Progress(msgspec.Struct, frozen=True):
    """Progress of a sweep (one function over many items): items done, `cached` of them from the cache, and seconds left."""

    done: int
    total: int
    cached: int
    seconds_left: float | None


class SweepInterrupted(KeyboardInterrupt):
    """Error: a sweep (one function over many items) stopped by Ctrl-C; `finished` are results by index, `total` all items."""

    def __init__(self, finished: Mapping[int, Any], total: int) -> None:
        super().__init__()
        self.finished, self.total = finished, total


def run_sweep(
    function: Work[Item, Result],
    items: Sequence[Item],
    *,
    jobs: int = 1,
    ray: str | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    keep: ResultCache | None = None,
    clock: Callable[[], float] = monotonic,
) -> list[Result]:
    """Return the function's result for every item, in their order. `ray` is a cluster's address, or "local".

    Each result is cached before it is reported: a sweep ended by Ctrl-C (`SweepInterrupted`) or an item's error loses none.
    """
    if jobs < 1:
        raise UsageError("bad-jobs", msg("error.bad-jobs", jobs=jobs), msg("hint.bad-jobs"))
    function_name = f"{function.__module__}.{function.__qualname__}"
    seeds = [item_seed(seed, item) for item in items]
    names = [keep.name(function_name, item, own) for item, own in zip(items, seeds, strict=True)] if keep else []
    results: dict[int, Any] = {}
    for index, name in enumerate(names):
        is_cached, result = keep.read(name) if keep else (False, None)
        if is_cached:
            results[index] = result
    cached, start = len(results), clock()
    remaining = [(index, items[index], seeds[index]) for index in range(len(items)) if index not in results]

    def report(elapsed: float) -> None:
        if progress:
            left = seconds_left(len(results), len(items), cached, elapsed)
            progress(Progress(len(results), len(items), cached, left))

    report(0.0)
    new_results = _run(function, remaining, jobs, ray)
    try:
        for index, result in new_results:
            if keep:
                _store(keep, names[index], result)
            results[index] = result
            report(clock() - start)
    except KeyboardInterrupt:
        raise SweepInterrupted(results, len(items)) from None
    finally:
        new_results.close()
    return [results[index] for index in range(len(items))]


def _store(cache: ResultCache, name: str, result: Any) -> None:
    try:
        cache.write(name, result)
    except OSError as problem:
        message = msg("error.cannot-keep", folder=str(cache.folder), why=problem.strerror or str(problem))
        raise DataError("cannot-keep", message, msg("hint.cannot-keep")) from problem


def item_seed(seed: int, item: object) -> int:
    """Return the 63-bit random seed of one item of a sweep, derived from the sweep's seed and the item.

    >>> item_seed(0, "a") == item_seed(0, "a"), item_seed(0, "a") == item_seed(1, "a"), item_seed(0, "a") == item_seed(0, "b")
    (True, False, False)
    """
    return int(content_hash([seed, item])[:16], 16) >> 1


def seconds_left(done: int, total: int, cached: int, elapsed: float) -> float | None:
    """Return the estimated seconds left of a sweep, from the pace of items computed in this run; None before the first.

    >>> seconds_left(30, 100, 20, 5.0), seconds_left(20, 100, 20, 0.0)
    (35.0, None)
    """
    timed = done - cached
    return elapsed / timed * (total - done) if timed else None


def _run(function: Work[Any, Any], remaining: Sequence[tuple[int, Any, int]], jobs: int, ray: str | None) -> Results:
    arguments = [(item, seed) for _, item, seed in remaining]
    with ExitStack() as stack:
        if ray is not None:
            results = on_ray(function, arguments, ray)
        elif jobs > 1 and len(remaining) > 1:
            results = stack.enter_context(ProcessPool(min(jobs, len(remaining)))).run(function, arguments)
        else:
            results = ((place, function(*each)) for place, each in enumerate(arguments))
        stack.callback(results.close)
        for place, result in results:
            yield remaining[place][0], result
