"""Load of the host and of the processes that use the GPUs.

Computed from /proc between two readings. Process ids are never displayed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from whichgpu.measure.files import read_text

MAX_THREADS = 512  # Threads read per program (assumed; bounds the cost of a reading).
READINGS_PER_SEARCH = 10  # Readings between two searches for processes on the GPUs (assumed).
COMPUTE_DEVICES = ("/dev/nvidia-uvm", "/dev/kfd", "/dev/dxg")  # Device files that programs open to compute, but monitors do not.


class HostLoad(msgspec.Struct, frozen=True):
    """Processor load of the host between two readings, in cores; None if unknown."""

    cores: float
    busy_cores: float
    waiting_share: float  # share of processor time waiting for disks
    busiest_thread: float | None = None  # load of the busiest thread of the programs on the GPUs; 1.0 is a full core
    worker_cores: float | None = None  # load of those programs' child processes, such as data loaders


class _Counts(msgspec.Struct, frozen=True):
    at: float
    busy: int
    waiting: int
    threads: dict[str, int]  # clock ticks used by each thread of the programs on the GPUs
    workers: dict[str, int]  # clock ticks used by each child process


class LoadReader:
    """Computes the processor load of the host and of programs on its GPUs, from counters in /proc since the last reading."""

    def __init__(
        self, cores: float, driver_processes: Callable[[], Iterable[int]], now: Callable[[], float], root: Path = Path("/")
    ) -> None:
        self._cores, self._driver_processes, self._now, self._proc = cores, driver_processes, now, root / "proc"
        self._last: _Counts | None = None
        self._programs: tuple[str, ...] = ()
        self._readings = 0
        self._tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

    def read(self) -> HostLoad | None:
        """Return the host's processor load since the last call; None at the first call and without /proc."""
        last, self._last = self._last, self._counts()
        if last is None or self._last is None or self._last.at <= last.at:
            return None
        now, seconds = self._last, self._last.at - last.at
        per_core = seconds * self._tick
        threads = [ticks - last.threads[name] for name, ticks in now.threads.items() if name in last.threads]
        workers = [ticks - last.workers[name] for name, ticks in now.workers.items() if name in last.workers]
        return HostLoad(
            cores=self._cores,
            busy_cores=max(0, now.busy - last.busy) / per_core,
            waiting_share=max(0, now.waiting - last.waiting) / per_core / self._cores,
            busiest_thread=max(threads) / per_core if threads else None,
            worker_cores=sum(workers) / per_core if threads else None,
        )

    def _counts(self) -> _Counts | None:
        first = (read_text(self._proc / "stat") or "").partition("\n")[0].split()
        if first[:1] != ["cpu"] or len(first) < 6:
            return None
        ticks = [int(cell) for cell in first[1:] if cell.isdigit()]
        if self._readings % READINGS_PER_SEARCH == 0:
            self._programs = tuple(self._find_programs())
        self._readings += 1
        threads = {name: used for program in self._programs for name, used in self._ticks(self._proc / program / "task")}
        workers = dict(self._children()) if self._programs else {}
        return _Counts(self._now(), sum(ticks[:3]) + sum(ticks[5:7]), ticks[4], threads, workers)

    def _find_programs(self) -> Iterator[str]:
        """Yield the ids of programs on the GPUs: those the driver lists, else those with its device files open."""
        listed_ids = [str(id) for id in self._driver_processes() if id != os.getpid()]
        program_ids = [id for id in listed_ids if self._drives(id) is not False and (self._proc / id).exists()]
        if not program_ids:
            program_ids = [id for id in self._ids() if id != str(os.getpid()) and self._drives(id)]
        parents = {id: self._stat(self._proc / id)[1] for id in program_ids}
        # A forked data loader inherits its parent's open files; it is not a program of its own.
        yield from (id for id in program_ids if parents[id] not in parents)

    def _ids(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._proc) if entry.name.isdigit()]
        except OSError:
            return []

    def _drives(self, id: str) -> bool | None:
        """Whether a process computes on a GPU; None if its open files are not readable."""
        try:
            with os.scandir(self._proc / id / "fd") as entries:
                return any(_target(entry.path).startswith(COMPUTE_DEVICES) for entry in entries)
        except PermissionError:
            return None
        except OSError:
            return False

    def _children(self) -> Iterator[tuple[str, int]]:
        """Yield the ids of the programs' descendants, with the clock ticks of processor time they used."""
        stats = {id: self._stat(self._proc / id) for id in self._ids()}
        below: dict[str, list[str]] = {}
        for id, (_, parent) in stats.items():
            below.setdefault(parent, []).append(id)
        left = [child for program in self._programs for child in below.get(program, ())]
        while left:
            id = left.pop()
            yield id, stats[id][0]
            left += below.pop(id, ())

    def _ticks(self, folder: Path) -> Iterator[tuple[str, int]]:
        try:
            names = [entry.name for entry in os.scandir(folder)][:MAX_THREADS]
        except OSError:
            return
        for name in names:
            yield f"{folder.parent.name}/{name}", self._stat(folder / name)[0]

    def _stat(self, folder: Path) -> tuple[int, str]:
        """Return clock ticks used and the parent's id; the process name before them may contain spaces and brackets."""
        cells = (read_text(folder / "stat") or "").rpartition(")")[2].split()
        if len(cells) < 13 or not (cells[11].isdigit() and cells[12].isdigit()):
            return 0, ""
        return int(cells[11]) + int(cells[12]), cells[1]


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
