"""Run a plain function of a module over many items in processes of this machine.

Processes are started afresh (spawn), so that they inherit no threads and no locks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg

Handle = TypeVar("Handle")
Results = Generator[tuple[int, Any], None, None]  # place of the item, result; in order of completion


def cores() -> int:
    """Number of processors this process may use; 1 where no processes can be started, as in some sandboxes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > 1:
        from multiprocessing import get_context

        try:
            get_context("spawn").Lock()
        except (ImportError, OSError):  # The system has no semaphores.
            return 1
    return count


class ProcessPool:
    """A fixed number of worker processes, started when first needed. Ctrl-C is handled by this process alone."""

    def __init__(self, count: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        self._count = count
        self._pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_start_worker)

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:  # Nobody needs what is still running.
            for process in [*(getattr(self._pool, "_processes", None) or {}).values()]:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Results:
        """The function's result for the arguments in each item; of results that come together, errors last."""
        from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait

        def submit(values: tuple[Any, ...]) -> Future[Any]:
            with _sigint_blocked():
                return self._pool.submit(function, *values)

        def ready(running: Mapping[Future[Any], int]) -> list[Future[Any]]:
            done = wait(running, return_when=FIRST_COMPLETED).done
            return sorted(done, key=lambda one: (one.exception() is not None, running[one]))

        try:
            # No more are submitted than run, so that Ctrl-C need not wait for queued ones.
            yield from as_completed(items, self._count, submit, ready, Future.result)
        except BrokenExecutor as problem:
            raise worker_died() from problem


def as_completed(
    items: Iterable[tuple[Any, ...]],
    most: int,
    submit: Callable[[tuple[Any, ...]], Handle],
    ready: Callable[[Mapping[Handle, int]], Iterable[Handle]],
    result: Callable[[Handle], Any],
) -> Results:
    """Results of tasks of which at most so many are submitted at a time: `ready` waits until at least one is complete."""
    running: dict[Handle, int] = {}
    rest = enumerate(items)
    while True:
        while len(running) < most and (one := next(rest, None)):
            running[submit(one[1])] = one[0]
        if not running:
            return
        for handle in ready(running):
            yield running.pop(handle), result(handle)


def worker_died() -> NoAnswer:
    """Error for a worker killed from outside, usually because memory ran out; finished results are kept."""
    return NoAnswer("worker-died", msg("error.worker-died"), msg("hint.worker-died"))


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Hold Ctrl-C back: processes started meanwhile inherit that it is blocked, and this process gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Ignore Ctrl-C in a worker, and end it with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_exit_with, args=(parent_process(),), daemon=True).start()


def _exit_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
