"""Fresh processes of this machine that run a plain function of a module: they inherit no threads and no locks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread
from types import TracebackType
from typing import Any

from whichgpu.base.cluster import died


def cores() -> int:
    """Processors this process may use; 1 where no others can be started, as in some sandboxes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > 1:
        from multiprocessing import get_context

        try:
            get_context("spawn").Lock()
        except (ImportError, OSError):  # no semaphores
            return 1
    return count


class Processes:
    """So many of them, started when first needed. Ctrl-C is for this one to act on."""

    def __init__(self, count: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        self._count = count
        self._pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:  # nobody waits for what is still at work
            for process in [*(getattr(self._pool, "_processes", None) or {}).values()]:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """The function of each item's values, as they are done, with the item's place; those of errors last."""
        from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait

        waiting: dict[Future[Any], int] = {}
        rest = enumerate(items)
        try:
            while True:
                # No more are given out than run, so that Ctrl-C need not wait for any that only wait themselves.
                while len(waiting) < self._count and (one := next(rest, None)):
                    with _unheard():
                        waiting[self._pool.submit(function, *one[1])] = one[0]
                if not waiting:
                    return
                ready = wait(waiting, return_when=FIRST_COMPLETED).done
                for future in sorted(ready, key=lambda one: (one.exception() is not None, waiting[one])):
                    yield waiting.pop(future), future.result()
        except BrokenExecutor as problem:
            raise died() from problem


@contextmanager
def _unheard() -> Iterator[None]:
    """Processes started meanwhile are deaf to Ctrl-C from birth: they inherit that it is held back; here it comes afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Deaf to Ctrl-C; and not to outlive whoever started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
