"""NVIDIA GPUs through NVML; numeric arguments of calls are the enumerations of nvml.h."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import msgspec

from whichgpu.base.messages import msg
from whichgpu.base.units import MIB
from whichgpu.measure.drivers.card import Card, MigSlice, PcieLink, Peer, Sample
from whichgpu.measure.drivers.nvml import GpuLost, Nvml, open_nvml
from whichgpu.measure.drivers.plausibility import PlausibilityFilter
from whichgpu.measure.drivers.probe import DriverUnavailable, VendorUnavailable
from whichgpu.measure.drivers.throttle import reasons

MHZ = 10**6  # Hertz per MHz, the unit of NVML's clocks.
SM, MEMORY = 1, 2  # NVML's numbers of the clocks.
MAX_LINKS, MAX_GPUS = 36, 64
NVLINK = 2  # NVML's number of the peer-to-peer capability to query.
UNCORRECTED, VOLATILE = 1, 0
PATHS = {0: "board", 10: "switch", 20: "switches", 30: "bridge", 40: "node", 50: "system"}
PCIE_FUNCTIONS = {
    "generation": "CurrPcieLinkGeneration", "width": "CurrPcieLinkWidth", "generation_max": "MaxPcieLinkGeneration",
    "width_max": "MaxPcieLinkWidth", "generation_gpu": "GpuMaxPcieLinkGeneration",
}  # fmt: skip
COMPUTE_MODES = {0: "shared", 1: "exclusive", 2: "prohibited", 3: "exclusive"}


def open_nvidia(nvml: Nvml | None = None) -> NvidiaProbe:
    """Open a probe of the NVIDIA GPUs; raise VendorUnavailable if there are none."""
    nvml = nvml or open_nvml()
    probe = NvidiaProbe(nvml)
    if not probe.count():
        nvml.stop()
        raise VendorUnavailable("nvidia", "no-device", msg("absent.no-device"))
    return probe


class _Fixed(msgspec.Struct, frozen=True):
    """Properties of a GPU that do not change between readings."""

    handle: Any
    power_limit_watts: float | None
    sm_clock_max_hz: int | None


class NvidiaProbe:
    """Reads the NVIDIA GPUs of this machine from driver counters: nothing runs on a GPU and no CUDA context is created."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._uuids: list[str | None] = []  # UUIDs identify a GPU after a driver restart and are never displayed.
        self._fixed: list[_Fixed | None] = []
        self._broken = False

    def count(self) -> int:
        """Return the number of GPUs."""
        count = self._nvml.ask("nvmlDeviceGetCount")
        return min(count, MAX_GPUS) if isinstance(count, int) else 0

    def close(self) -> None:
        self._nvml.stop()

    def samples(self, traffic: bool = False) -> tuple[Sample, ...]:
        """Return one reading of every GPU; GPUs that do not answer are marked as lost."""
        if self._broken:
            self._nvml.restart()
            self._fixed = [None] * len(self._uuids)
        try:
            fixed = self._devices()
            samples = tuple(self._sample(index, device, traffic) for index, device in enumerate(fixed))
        except DriverUnavailable:
            self._broken = True  # The next reading initialises NVML again.
            raise
        self._broken = False
        self._fixed = [None if sample.lost else device for sample, device in zip(samples, fixed, strict=True)]
        return samples

    def processes(self) -> tuple[tuple[int, ...], ...]:
        """Return process ids by GPU; in a container there may be none, or those of another namespace."""
        return tuple(self._process_ids(device) for device in self._devices())

    def cards(self) -> tuple[Card, ...]:
        devices = self._devices()
        return tuple(self._card(index, devices) for index in range(len(devices)))

    def _devices(self) -> list[_Fixed | None]:
        """Return the GPUs' handles, looked up once; those of lost GPUs are looked up at every reading."""
        if not self._uuids:
            self._uuids = [None] * self.count()
            self._fixed = [None] * len(self._uuids)
        self._fixed = [device or self._open(index) for index, device in enumerate(self._fixed)]
        return self._fixed

    def _open(self, index: int) -> _Fixed | None:
        plausible = PlausibilityFilter()
        try:
            handle = self._handle(index)
            if handle is None:
                return None
            limit = self._nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
            clock = self._nvml.ask("nvmlDeviceGetMaxClockInfo", handle, SM)
        except GpuLost:
            return None
        limit_watts = plausible.watts("power_limit_watts", limit)
        return _Fixed(handle, limit_watts or None, plausible.scaled("sm_clock_max_hz", clock, "megahertz", MHZ) or None)

    def _handle(self, index: int) -> Any:
        """Look up a GPU by index first and by UUID later, since a driver that lost a GPU renumbers the others."""
        if (uuid := self._uuids[index]) is not None:
            return self._nvml.ask("nvmlDeviceGetHandleByUUID", uuid)
        handle = self._nvml.ask("nvmlDeviceGetHandleByIndex", index)
        self._uuids[index] = None if handle is None else self._nvml.ask("nvmlDeviceGetUUID", handle)
        return handle

    def _sample(self, index: int, device: _Fixed | None, traffic: bool) -> Sample:
        if device is None:
            return Sample(index, lost=True)
        failures = self._nvml.failures
        try:
            sample = self._read(index, device, traffic)
        except GpuLost:
            return Sample(index, lost=True)
        readings = (sample.utilisation_percent, sample.memory_bytes, sample.power_watts, sample.sm_clock_hz)
        if self._nvml.failures > failures and all(value is None for value in readings):
            return Sample(index, lost=True)
        return sample

    def _read(self, index: int, device: _Fixed, traffic: bool) -> Sample:
        ask, handle, plausible = self._nvml.ask, device.handle, PlausibilityFilter()
        used = ask("nvmlDeviceGetUtilizationRates", handle)
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        total, used_bytes = plausible.memory("memory_bytes", getattr(memory, "total", None), getattr(memory, "free", None))
        power = ask("nvmlDeviceGetPowerUsage", handle)
        events = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if events is None:  # Drivers before 535 do not have this query.
            events = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        running = ask("nvmlDeviceGetComputeRunningProcesses", handle)
        received = ask("nvmlDeviceGetPcieThroughput", handle, 1) if traffic else None
        sent = ask("nvmlDeviceGetPcieThroughput", handle, 0) if traffic else None
        return Sample(
            index=index,
            utilisation_percent=plausible.number("utilisation_percent", getattr(used, "gpu", None), "percent"),
            memory_utilisation_percent=plausible.number("memory_utilisation_percent", getattr(used, "memory", None), "percent"),
            memory_used_bytes=used_bytes,
            memory_bytes=total,
            power_watts=plausible.watts("power_watts", power),
            power_limit_watts=device.power_limit_watts,
            temperature_celsius=plausible.number("temperature_celsius", ask("nvmlDeviceGetTemperature", handle, 0), "celsius"),
            sm_clock_hz=plausible.scaled("sm_clock_hz", ask("nvmlDeviceGetClockInfo", handle, SM), "megahertz", MHZ),
            sm_clock_max_hz=device.sm_clock_max_hz,
            throttle=reasons(events),
            processes=len(running) if isinstance(running, Sequence) else None,
            pcie_rx_bandwidth=plausible.scaled("pcie_rx_bandwidth", received, "kilobytes_per_second", 1000),
            pcie_tx_bandwidth=plausible.scaled("pcie_tx_bandwidth", sent, "kilobytes_per_second", 1000),
            odd=plausible.odd,
        )

    def _card(self, index: int, devices: Sequence[_Fixed | None]) -> Card:
        device, plausible = devices[index], PlausibilityFilter()
        sample = self._sample(index, device, traffic=True)
        name = None
        with suppress(GpuLost):
            if device is not None:
                name = plausible.words("name", self._nvml.ask("nvmlDeviceGetName", device.handle))
                if not sample.lost:
                    return self._described(device.handle, devices, name or "?", sample, plausible)
        return Card(index, "nvidia", name or "?", Sample(index, lost=True))

    def _described(
        self, handle: Any, devices: Sequence[_Fixed | None], name: str, sample: Sample, plausible: PlausibilityFilter
    ) -> Card:
        ask = self._nvml.ask
        capability = _pair(ask("nvmlDeviceGetCudaComputeCapability", handle))
        limits = _pair(ask("nvmlDeviceGetPowerManagementLimitConstraints", handle))
        ecc, mig = _pair(ask("nvmlDeviceGetEccMode", handle)), _pair(ask("nvmlDeviceGetMigMode", handle))
        links = self._links(handle)
        return Card(
            index=sample.index,
            vendor="nvidia",
            name=name,
            now=sample,
            driver=plausible.words("driver", ask("nvmlSystemGetDriverVersion")),
            api_version=_cuda_version(ask("nvmlSystemGetCudaDriverVersion")),
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            target=f"sm_{capability[0]}{capability[1]}" if capability else None,
            cores=plausible.number("cores", ask("nvmlDeviceGetNumGpuCores", handle), "count") or None,
            memory_clock_hz=plausible.scaled("memory_clock_hz", ask("nvmlDeviceGetClockInfo", handle, MEMORY), "megahertz", MHZ),
            memory_clock_max_hz=plausible.scaled(
                "memory_clock_max_hz", ask("nvmlDeviceGetMaxClockInfo", handle, MEMORY), "megahertz", MHZ
            ),
            power_default_watts=plausible.watts(
                "power_default_watts", ask("nvmlDeviceGetPowerManagementDefaultLimit", handle) or None
            ),
            power_max_watts=plausible.watts("power_max_watts", limits[1] if limits else None),
            slowdown_celsius=plausible.number("slowdown_celsius", ask("nvmlDeviceGetTemperatureThreshold", handle, 1), "celsius"),
            ecc=bool(ecc[0]) if ecc else None,
            ecc_pending=bool(ecc[1]) if ecc else None,
            ecc_errors=plausible.number("ecc_errors", ask("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE), "count"),
            mig=bool(mig[0]) if mig else None,
            slices=self._slices(handle) if mig and mig[0] else (),
            pcie=self._pcie(handle, plausible),
            nvlinks=None if links is None else len(links),
            nvlinks_active=None if links is None else sum(links),
            peers=self._peers(sample.index, handle, devices),
            persistence={0: False, 1: True}.get(ask("nvmlDeviceGetPersistenceMode", handle)),
            compute_mode=COMPUTE_MODES.get(ask("nvmlDeviceGetComputeMode", handle)),
            odd=tuple(dict.fromkeys((*plausible.odd, *sample.odd))),
        )

    def _pcie(self, handle: Any, plausible: PlausibilityFilter) -> PcieLink | None:
        readings = {name: self._nvml.ask(f"nvmlDeviceGet{function}", handle) for name, function in PCIE_FUNCTIONS.items()}
        values = {name: plausible.number(f"pcie.{name}", value, name.partition("_")[0]) for name, value in readings.items()}
        return PcieLink(**values) if any(value is not None for value in values.values()) else None

    def _links(self, handle: Any) -> list[bool] | None:
        """Return whether each NVLink of a GPU is active; None if the GPU has no NVLink."""
        states = (self._nvml.ask("nvmlDeviceGetNvLinkState", handle, link) for link in range(MAX_LINKS))
        return [state == 1 for state in takewhile(lambda state: state is not None, states)] or None

    def _peers(self, index: int, handle: Any, devices: Sequence[_Fixed | None]) -> tuple[Peer, ...]:
        peers = []
        for other, device in enumerate(devices):
            if device is None or other == index:
                continue
            linked = self._nvml.ask("nvmlDeviceGetP2PStatus", handle, device.handle, NVLINK) == 0
            level = self._nvml.ask("nvmlDeviceGetTopologyCommonAncestor", handle, device.handle)
            path = "nvlink" if linked else PATHS.get(level) if isinstance(level, int) else None
            peers.append(Peer(other, path or "unknown"))
        return tuple(peers)

    def _slices(self, handle: Any) -> tuple[MigSlice, ...]:
        max_slices = self._nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle)
        places = range(min(max_slices, 16) if isinstance(max_slices, int) else 0)
        parts = (self._nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place) for place in places)
        return tuple(self._slice(part) for part in parts if part is not None)

    def _slice(self, part: Any) -> MigSlice:
        plausible = PlausibilityFilter()
        memory = self._nvml.ask("nvmlDeviceGetMemoryInfo", part)
        total, used = plausible.memory("memory_bytes", getattr(memory, "total", None), getattr(memory, "free", None))
        attributes = self._nvml.ask("nvmlDeviceGetAttributes", part)
        sms = plausible.number("sms", getattr(attributes, "multiprocessorCount", None), "count")
        if total is None:
            total = plausible.scaled("memory_bytes", getattr(attributes, "memorySizeMB", None), "count", MIB)
        name = plausible.words("profile", self._nvml.ask("nvmlDeviceGetName", part)) or ""
        return MigSlice(name.rpartition("MIG ")[2] or "?", total, used, sms)

    def _process_ids(self, device: _Fixed | None) -> tuple[int, ...]:
        if device is None:
            return ()
        try:
            running = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", device.handle)
        except (GpuLost, DriverUnavailable):
            return ()
        ids = (getattr(process, "pid", None) for process in running or ())
        return tuple(id for id in ids if isinstance(id, int) and id > 0)


def _pair(value: Any) -> tuple[int, int] | None:
    """Return two integers, as NVML gives modes (now and after a reset) and versions; None for anything else."""
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(part, int) and 0 <= part < 10**7 for part in value):
        return int(value[0]), int(value[1])
    return None


def _cuda_version(value: Any) -> str | None:
    """Convert NVML's number of a CUDA version to text: 12040 is CUDA 12.4."""
    return f"{value // 1000}.{value % 1000 // 10}" if isinstance(value, int) and 1000 <= value < 10**6 else None
