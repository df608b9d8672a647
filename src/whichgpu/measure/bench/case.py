"""Cases to measure, their timings, and the interface `Bench` that runs them; independent of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any, Protocol

import msgspec

from whichgpu.base.messages import Message
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

PEAK_KINDS = ("gemm", "attention", "attention_backward")  # Operators whose rate is in FLOP/s.
BusyCallback = Callable[[], None]  # Type of a function that is called while the GPU runs a case, to read clocks and temperature.


class CannotRun(Exception):
    """Raised for an operator or step that this GPU, its memory or its software cannot run; `why` is the reason."""

    def __init__(self, why: Message) -> None:
        super().__init__(why.id)
        self.why = why


class OperatorCase(msgspec.Struct, frozen=True):
    """One operator to measure, with its sizes and the GPU memory it needs in bytes."""

    id: str
    kind: str  # gemm, copy, read, attention, attention_backward, launch, upload, download, all_reduce
    dtype: str
    sizes: Mapping[str, int] = msgspec.field(default_factory=dict)
    memory: int = 0

    @property
    def unit(self) -> str:
        """Return the unit in which `rate` reports this operator's speed: FLOP/s, B/s, or launches as 1/s."""
        return "FLOP/s" if self.kind in PEAK_KINDS else "B/s" if "bytes" in self.sizes else "1/s"

    def rate(self, seconds: float) -> float:
        """Return this operator's speed in a run that took `seconds`: FLOPs, bytes or launches per second, by `unit`."""
        return operator_work(self.kind, self.sizes) / seconds


def operator_work(kind: str, sizes: Mapping[str, int]) -> float:
    """Return the FLOPs of an operator, else the bytes it moves, else 1; causal attention computes half of all token pairs.

    >>> operator_work("gemm", {"m": 2, "n": 3, "k": 5}), operator_work("copy", {"bytes": 8}), operator_work("launch", {})
    (60.0, 16.0, 1.0)
    """
    if kind == "gemm":
        return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
    if kind in PEAK_KINDS:
        flops = 2.0 * sizes["batch"] * sizes["heads"] * sizes["tokens"] ** 2 * sizes["dim"]
        return flops * (2.5 if kind == "attention_backward" else 1.0)
    return 1.0 if kind == "launch" else sizes["bytes"] * (2.0 if kind == "copy" else 1.0)


class StepCase(msgspec.Struct, frozen=True):
    """A training or inference step to measure, given as a request to `estimate`."""

    id: str
    request: Mapping[str, Any]


class PreparedStep(msgspec.Struct, frozen=True):
    """A training or inference step ready to measure: its request with defaults filled in, and its model's layers and sizes."""

    workload: Workload
    shape: Shape


class Timing(msgspec.Struct, frozen=True):
    """Median seconds of several runs of one operator or step, and the range that covers 80% of the runs."""

    seconds: float
    low: float
    high: float
    runs: int


class Conditions(msgspec.Struct, frozen=True):
    """Clocks, temperature and power of the GPU while a case was measured."""

    sm_clock_hz: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    throttle: tuple[str, ...] | None = None


class Bench(Protocol):
    """Interface that measures cases (operators, steps) on a GPU; `CannotRun` or another exception ends one case, not all."""

    def about(self) -> Mapping[str, str]:
        """Return the versions of the software that runs the cases, by name: torch, cuda."""

    def free_bytes(self) -> int:
        """Return the bytes of GPU memory available now."""

    def micro(self, case: OperatorCase, watch: BusyCallback) -> Timing:
        """Return the time of a single operator; `watch` is called while the GPU is busy, to read its clocks."""

    def step(self, plan: PreparedStep, watch: BusyCallback) -> Timing:
        """Return the time of a training step, forward pass or decode step; `watch` is called while the GPU is busy."""


def summarise_runs(seconds: Sequence[float]) -> Timing:
    """Return the timing of repeated runs of one case: the median of their seconds, and the range that covers 80% of them.

    >>> summarise_runs([3.0, 1.0, 2.0])
    Timing(seconds=2.0, low=1.0, high=3.0, runs=3)
    """
    tenths = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 4 else (min(seconds), max(seconds))
    middle = median(seconds)
    return Timing(middle, min(tenths[0], middle), max(tenths[-1], middle), len(seconds))
