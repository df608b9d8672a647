"""Run a plain function of a module over many items in processes of this machine.

Processes are started afresh (spawn), so that they inherit no threads and no locks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread
from types import TracebackType
from typing import Any

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg

Results = Generator[tuple[int, Any], None, None]  # Yields the index of each item and its result, in order of completion.


def cores() -> int:
    """Return how many processors this process may use; 1 if no processes can be started, as in some sandboxes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > 1:
        from multiprocessing import get_context

        try:
            get_context("spawn").Lock()
        except (ImportError, OSError):  # The system has no semaphores, which process pools need.
            return 1
    return count


def threads() -> int:
    """Return how many threads one computation may use: OMP_NUM_THREADS if set, as for BLAS, else one for each processor."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(limit)) if limit.isdecimal() else os.cpu_count() or 1


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
        if error is not None:  # The consumer stopped early or failed, so the tasks that still run are not needed.
            for process in [*(getattr(self._pool, "_processes", None) or {}).values()]:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Results:
        """Call the function with each item's arguments in worker processes; yield (index, result) as they finish, errors last."""
        from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait

        running: dict[Future[Any], int] = {}
        rest = enumerate(items)
        try:
            while True:
                # Only as many tasks are submitted as can run, so that Ctrl-C need not wait for queued ones.
                while len(running) < self._count and (one := next(rest, None)):
                    with _sigint_blocked():
                        running[self._pool.submit(function, *one[1])] = one[0]
                if not running:
                    return
                ready = wait(running, return_when=FIRST_COMPLETED).done
                for future in sorted(ready, key=lambda one: (one.exception() is not None, running[one])):
                    yield running.pop(future), future.result()
        except BrokenExecutor as problem:
            raise worker_died() from problem


def worker_died() -> NoAnswer:
    """Return the error for a worker process killed from outside, usually out of memory; finished results are kept."""
    return NoAnswer("worker-died", msg("error.worker-died"), msg("hint.worker-died"))


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Delay Ctrl-C within the block: processes started in it inherit the blocked signal, and this process gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Prepare a worker process: it ignores Ctrl-C and exits when the process that started it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_exit_with, args=(parent_process(),), daemon=True).start()


def _exit_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
