"""A pool of forked processes, one per task, each with a time limit: a crash or a hang loses only its task."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any


def each(tasks: Iterable[str], work: Callable[[str], Any], jobs: int, timeout: float, total: float) -> dict[str, Any]:
    """Result of `work` for each task; `{"error": …}` if it failed, hung or did not start."""
    waiting = list(tasks)[::-1]
    running: dict[int, tuple[str, Path, float]] = {}
    done: dict[str, Any] = {}
    places = count()
    end = time.monotonic() + total
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            now = time.monotonic()
            while waiting and len(running) < jobs and now < end:
                task = waiting.pop()
                place = Path(folder) / str(next(places))
                running[_fork(task, work, place)] = task, place, min(now + timeout, end)
            for pid, (task, place, limit) in list(running.items()):
                finished, _ = os.waitpid(pid, os.WNOHANG)
                if not finished and now > limit:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    done[task] = {"error": "took too long"}
                elif finished:
                    done[task] = json.loads(place.read_text()) if place.exists() else {"error": "crashed"}
                else:
                    continue
                del running[pid]
            if waiting and not running and time.monotonic() >= end:
                done |= {task: {"error": "no time left"} for task in waiting}
                break
            time.sleep(0.02)
    return done


def _fork(task: str, work: Callable[[str], Any], place: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        try:
            answer = work(task)
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        whole = place.with_suffix(".part")
        whole.write_text(json.dumps(answer))
        whole.rename(place)
    finally:
        os._exit(0)
