"""Sweeps: one function over many items in this process, in a process pool or on a Ray cluster, with the same results.

Each item has its own seed, made from the sweep's seed and the item, so that neither order nor place nor earlier results change a
result. Functions are plain ones of a module: `function(item, seed)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from whichgpu.base.disk_cache import ResultCache, content_hash
from whichgpu.base.errors import DataError, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.parallel.process_pool import ProcessPool, Results
from whichgpu.base.parallel.ray_cluster import on_ray

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item, int], Result]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is: items done, those found done before among them, and seconds left (None until one was timed)."""

    done: int
    total: int
    kept: int
    seconds_left: float | None


class SweepInterrupted(KeyboardInterrupt):
    """Somebody stopped the sweep; `finished` are the results by place, `total` how many there would have been."""

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
    """The function's result for every item, in their order. `ray` is a cluster's address, or "local".

    Each result is cached before it is reported: a sweep ended by Ctrl-C (`SweepInterrupted`) or an item's error loses none.
    """
    if jobs < 1:
        raise UsageError("bad-jobs", msg("error.bad-jobs", jobs=jobs), msg("hint.bad-jobs"))
    name = f"{function.__module__}.{function.__qualname__}"
    seeds = [item_seed(seed, item) for item in items]
    names = [keep.name(name, item, own) for item, own in zip(items, seeds, strict=True)] if keep else []
    results: dict[int, Any] = {}
    for place, known in enumerate(names):
        found, result = keep.read(known) if keep else (False, None)
        if found:
            results[place] = result
    kept, begun = len(results), clock()
    left = [(place, items[place], seeds[place]) for place in range(len(items)) if place not in results]
    _tell(progress, len(results), len(items), kept, 0.0)
    done = _run(function, left, jobs, ray)
    try:
        for place, result in done:
            if keep:
                _kept(keep, names[place], result)
            results[place] = result
            _tell(progress, len(results), len(items), kept, clock() - begun)
    except KeyboardInterrupt:
        raise SweepInterrupted(results, len(items)) from None
    finally:
        done.close()
    return [results[place] for place in range(len(items))]


def _kept(keep: ResultCache, name: str, result: Any) -> None:
    try:
        keep.write(name, result)
    except OSError as problem:
        message = msg("error.cannot-keep", folder=str(keep.folder), why=problem.strerror or str(problem))
        raise DataError("cannot-keep", message, msg("hint.cannot-keep")) from problem


def item_seed(seed: int, item: object) -> int:
    """An item's own seed, 63 bits.

    >>> item_seed(0, "a") == item_seed(0, "a"), item_seed(0, "a") == item_seed(1, "a"), item_seed(0, "a") == item_seed(0, "b")
    (True, False, False)
    """
    return int(content_hash([seed, item])[:16], 16) >> 1


def seconds_left(done: int, total: int, kept: int, elapsed: float) -> float | None:
    """Those that remain will take as long as those done in this run did.

    >>> seconds_left(30, 100, 20, 5.0), seconds_left(20, 100, 20, 0.0)
    (35.0, None)
    """
    own = done - kept
    return elapsed / own * (total - done) if own else None


def _tell(progress: Callable[[Progress], None] | None, done: int, total: int, kept: int, elapsed: float) -> None:
    if progress:
        progress(Progress(done, total, kept, seconds_left(done, total, kept, elapsed)))


def _run(function: Work[Any, Any], left: Sequence[tuple[int, Any, int]], jobs: int, ray: str | None) -> Results:
    values = [(item, seed) for _, item, seed in left]
    with ExitStack() as stack:
        if ray is not None:
            results = on_ray(function, values, ray)
        elif jobs > 1 and len(left) > 1:
            results = stack.enter_context(ProcessPool(min(jobs, len(left)))).run(function, values)
        else:
            results = ((place, function(*each)) for place, each in enumerate(values))
        stack.callback(results.close)
        for number, result in results:
            yield left[number][0], result
