"""One function over many items: in this process, on processes of this machine, or on a Ray cluster, with the same results.

Every item has a seed of its own, made from the sweep's seed and the item itself, so neither order nor place nor what is already
done changes what comes out. Functions are plain ones of a module: `function(item, seed)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from whichgpu.base.cluster import on_ray
from whichgpu.base.errors import DataError, UsageError
from whichgpu.base.kept import Keep, content_hash
from whichgpu.base.messages import msg
from whichgpu.base.processes import Processes

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item, int], Result]
Finished = Iterator[tuple[int, Any]]  # place, result; in the order they are done


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is: items done, those found done before among them, and seconds left (None until one was timed)."""

    done: int
    total: int
    kept: int
    seconds_left: float | None


class Stopped(KeyboardInterrupt):
    """Somebody stopped the sweep; `finished` are the results by place, `total` how many there would have been."""

    def __init__(self, finished: Mapping[int, Any], total: int) -> None:
        super().__init__()
        self.finished, self.total = finished, total


def spread(
    function: Work[Item, Result],
    items: Sequence[Item],
    *,
    jobs: int = 1,
    ray: str | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    keep: Keep | None = None,
    clock: Callable[[], float] = monotonic,
) -> list[Result]:
    """The function's result for every item, in their order. `ray` is a cluster's address, or "local".

    What is finished is kept before it is told of; stopped by Ctrl-C (`Stopped`) or by an item's error, a sweep loses none of it.
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
        raise Stopped(results, len(items)) from None
    finally:
        close = getattr(done, "close", None)
        if close:
            close()
    return [results[place] for place in range(len(items))]


def _kept(keep: Keep, name: str, result: Any) -> None:
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


def _run(function: Work[Any, Any], left: Sequence[tuple[int, Any, int]], jobs: int, ray: str | None) -> Finished:
    if ray is not None:
        return on_ray(function, left, ray)
    if jobs > 1 and len(left) > 1:
        return _on_processes(function, left, min(jobs, len(left)))
    return ((place, function(item, seed)) for place, item, seed in left)


def _on_processes(function: Work[Any, Any], left: Sequence[tuple[int, Any, int]], jobs: int) -> Finished:
    with Processes(jobs) as processes:
        for number, result in processes.run(function, [(item, seed) for _, item, seed in left]):
            yield left[number][0], result
