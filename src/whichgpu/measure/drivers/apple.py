"""Apple GPUs through the system's tools; their memory is shared with the host."""

from __future__ import annotations

import json
import plistlib
import sys
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.drivers.plausibility import PlausibilityFilter
from whichgpu.measure.drivers.probe import VendorUnavailable
from whichgpu.measure.files import Run, run_tool

DISPLAYS = ("system_profiler", "SPDisplaysDataType", "-json")
MEMORY = ("sysctl", "-n", "hw.memsize")
STATISTICS = ("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator", "-a")


def open_apple(platform: str = sys.platform, run: Run = run_tool) -> AppleProbe:
    """Open a probe of this Mac's GPU; raise VendorUnavailable if there is none."""
    if platform != "darwin":
        raise VendorUnavailable("apple", "other-system", msg("absent.other-system"))
    displays = [entry for entry in _displays(run(DISPLAYS)) if "apple" in str(entry.get("sppci_model", "")).lower()]
    if not displays:
        raise VendorUnavailable("apple", "no-device", msg("absent.no-device"))
    memory = run(MEMORY)
    return AppleProbe(displays[0], int(memory) if memory and memory.strip().isdigit() else None, run)


class AppleProbe:
    """Reads the GPU of an Apple chip through the system's tools."""

    def __init__(self, display: dict[str, Any], memory_bytes: int | None, run: Run) -> None:
        self._display, self._memory_bytes, self._run = display, memory_bytes, run

    def close(self) -> None: ...

    def processes(self) -> tuple[tuple[int, ...], ...]:
        """Return no process ids, since the system does not report them."""
        return ((),)

    def cards(self) -> tuple[Card, ...]:
        plausible = PlausibilityFilter()
        cores = str(self._display.get("sppci_cores", ""))
        return (
            Card(
                index=0,
                vendor="apple",
                name=plausible.words("name", self._display.get("sppci_model")) or "?",
                now=self.samples()[0],
                cores=int(cores) if cores.isdigit() else None,
                odd=plausible.odd,
            ),
        )

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        """Return one reading of the GPU: utilisation in percent and bytes of memory in use."""
        statistics, plausible = _statistics(self._run(STATISTICS)), PlausibilityFilter()
        size = plausible.number("memory_bytes", self._memory_bytes, "bytes")
        used = plausible.number("memory_used_bytes", statistics.get("In use system memory"), "bytes")
        busy = plausible.number("utilisation_percent", statistics.get("Device Utilization %"), "percent")
        return (Sample(0, utilisation_percent=busy, memory_used_bytes=used, memory_bytes=size, odd=plausible.odd),)


def _displays(text: str | None) -> list[dict[str, Any]]:
    try:
        document = json.loads(text or "")
    except ValueError:
        return []
    entries = document.get("SPDisplaysDataType") if isinstance(document, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _statistics(text: str | None) -> dict[str, Any]:
    """Return the GPU's counters by name from the output (a property list) of Apple's `ioreg`; empty if unreadable."""
    try:
        document = plistlib.loads((text or "").encode())
    except Exception:  # plistlib raises whatever its parsers raise.
        return {}
    for entry in document if isinstance(document, list) else [document]:
        counters = entry.get("PerformanceStatistics") if isinstance(entry, dict) else None
        if isinstance(counters, dict):
            return counters
    return {}
