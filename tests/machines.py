"""Machines for tests: hosts, software, a clock that jumps, and probes that play samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tests.recorded_nvml import Recorded, Recording
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.drivers.nvidia import NvidiaProbe, open_nvidia
from whichgpu.measure.drivers.nvml import Nvml
from whichgpu.measure.drivers.probe import DriverUnavailable
from whichgpu.measure.host import Host
from whichgpu.measure.software import InstalledSoftware

GIB = 1 << 30

HOST = Host(
    system="Ubuntu 24.04 LTS",
    kernel="6.8.0",
    python="3.12.3",
    cpu="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    cores=16,
    threads=32,
    threads_allowed=32,
    cpu_limit=None,
    ram_bytes=512 * GIB,
    ram_free_bytes=480 * GIB,
    ram_limit_bytes=None,
    shared_memory_bytes=256 * GIB,
    container=None,
    virtual=None,
    nvidia_devices=True,
    amd_devices=False,
)
SOFTWARE = InstalledSoftware({"torch": "2.11.0", "numpy": "2.4.6"}, "13.0", None, "13.0", (), False)


def host(**changes: Any) -> Host:
    return replace(HOST, **changes)


def software(packages: Mapping[str, str] | None = None, **changes: Any) -> InstalledSoftware:
    return replace(SOFTWARE, packages=SOFTWARE.packages if packages is None else packages, **changes)


def probe_of(*recordings: Recording, library: Recorded | None = None) -> NvidiaProbe:
    nvml = Nvml(library or Recorded(*recordings))
    nvml.start()
    return open_nvidia(nvml)


class JumpingClock:
    """Time that passes only where it is waited for; `pressed` are the pauses at which Enter is hit."""

    def __init__(self, pressed: Sequence[int] = (), stop_after: int = 100_000) -> None:
        self.seconds = 1000.0
        self.pauses: list[float] = []
        self._pressed, self._stop_after = set(pressed), stop_after

    def now(self) -> float:
        return self.seconds

    def date(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.seconds += seconds
        if len(self.pauses) >= self._stop_after:
            raise KeyboardInterrupt
        return len(self.pauses) in self._pressed


class Played:
    """A probe whose readings come from a function of their number; None is a driver that does not respond."""

    def __init__(self, cards: Sequence[Card], reading: Callable[[int], Sequence[Sample] | None]) -> None:
        self._cards, self._reading = tuple(cards), reading
        self.readings = 0
        self.closed = False

    def cards(self) -> tuple[Card, ...]:
        return self._cards

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        self.readings += 1
        samples = self._reading(self.readings - 1)
        if samples is None:
            raise DriverUnavailable
        return tuple(samples)

    def processes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(() for _ in self._cards)

    def close(self) -> None:
        self.closed = True
