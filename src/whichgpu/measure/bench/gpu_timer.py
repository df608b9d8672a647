"""Timing on the GPU: warm-up, CUDA events around each run, and CUDA graphs for launch-bound operators."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from whichgpu.measure.bench.case import BusyCallback, Timing, summarise_runs

Run = Callable[[], Any]
WARM_UPS = 3  # runs before timing (assumed: caches are warm and kernels chosen by then)
MIN_RUNS, MAX_RUNS = 5, 40
STEP_SECONDS = 0.8  # Seconds spent on the runs of one step (set by judgement).
MICRO_SECONDS = 0.15  # Seconds spent on the runs of one operator (set by judgement).
BLOCK_SECONDS = 0.008  # Seconds of launches between two events: long compared with the events' overhead.
MAX_LAUNCHES = 200  # Most launches captured in one CUDA graph (assumed; a larger graph would take long to capture).
BUSY_SECONDS = 0.15  # Seconds for which the GPU is kept busy while its clocks are read.


class GpuTimer:
    """Times functions that launch GPU work; `torch` is the imported module, `watch` is called while the GPU is busy."""

    def __init__(self, torch: Any, watch: BusyCallback) -> None:
        self._torch, self._watch = torch, watch

    def step(self, run: Run) -> Timing:
        """Return the timing of a training or inference step, each run timed by itself from an idle GPU to an idle GPU."""
        self._warm(run)
        timing = summarise_runs(self._runs(run, STEP_SECONDS))
        self._read_conditions(run, timing.seconds)
        return timing

    def block(self, run: Run, captured: bool = True) -> Timing:
        """Return the mean time of one run among many in a row, for operators; if `captured`, they run as a CUDA graph."""
        self._warm(run)
        once = max(min(self._runs(run, 0.0)), 1e-7)
        launches = max(1, min(MAX_LAUNCHES, round(BLOCK_SECONDS / once)))
        many = self.graph(run, launches) if captured else lambda: [run() for _ in range(launches)]
        many()
        timing = summarise_runs([seconds / launches for seconds in self._runs(many, MICRO_SECONDS)])
        self._read_conditions(many, timing.seconds * launches)
        return timing

    def host(self, run: Run, launches: int) -> Timing:
        """Return the seconds per run by the host's clock, of `launches` runs launched in a row."""
        self._warm(run)
        durations = []
        for _ in range(MIN_RUNS):
            self._torch.cuda.synchronize()
            start = perf_counter()
            for _ in range(launches):
                run()
            self._torch.cuda.synchronize()
            durations.append((perf_counter() - start) / launches)
        self._watch()
        return summarise_runs(durations)

    def graph(self, run: Run, launches: int = 1) -> Run:
        """Capture `launches` runs as one CUDA graph; return a function that replays it."""
        torch = self._torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for _ in range(launches):
                run()
        return lambda: captured.replay()

    def _warm(self, run: Run) -> None:
        for _ in range(WARM_UPS):
            run()
        self._torch.cuda.synchronize()

    def _runs(self, run: Run, seconds: float) -> list[float]:
        """Return the GPU seconds of each of several runs; runs are repeated for `seconds`, but MIN_RUNS to MAX_RUNS times."""
        torch, durations = self._torch, list[float]()
        began = perf_counter()
        while len(durations) < MIN_RUNS or (len(durations) < MAX_RUNS and perf_counter() - began < seconds):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            durations.append(start.elapsed_time(end) / 1e3)
        return durations

    def _read_conditions(self, run: Run, seconds: float) -> None:
        """Keep the GPU busy with `run` for some time, and read clocks and temperature meanwhile."""
        for _ in range(max(1, min(100, round(BUSY_SECONDS / max(seconds, 1e-6))))):
            run()
        self._watch()
        self._torch.cuda.synchronize()
