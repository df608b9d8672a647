"""A GPU as its driver describes it: constant properties (`Card`) and readings (`Sample`).

Nothing that identifies the machine or its owner is stored: no serial number, UUID, bus address or process name.
None means that the driver does not say.
"""

from __future__ import annotations

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One reading of a GPU's utilisation, memory, clocks and power; `lost` if the GPU no longer answers its driver."""

    index: int
    utilisation_percent: int | None = None
    memory_utilisation_percent: int | None = None  # share of the time in which memory was read or written
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: int | None = None
    sm_clock_hz: int | None = None
    sm_clock_max_hz: int | None = None
    throttle: tuple[str, ...] | None = None
    processes: int | None = None
    pcie_rx_bandwidth: int | None = None  # bytes per second into the GPU
    pcie_tx_bandwidth: int | None = None
    lost: bool = False
    odd: tuple[str, ...] = ()  # fields dropped because their values were implausible


class PcieLink(msgspec.Struct, frozen=True):
    """PCIe link to the host: now, at best in this slot, and at best for this GPU."""

    generation: int | None
    width: int | None
    generation_max: int | None
    width_max: int | None
    generation_gpu: int | None = None


class Peer(msgspec.Struct, frozen=True):
    """Path from a GPU to another of this machine; kinds, fastest first: nvlink, board, switch, switches, bridge, node, system."""

    index: int
    path: str


class MigSlice(msgspec.Struct, frozen=True):
    """One MIG instance (slice) of an NVIDIA GPU."""

    profile: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    sms: int | None


class Card(msgspec.Struct, frozen=True):
    """One GPU of this machine with everything its driver reports: name, memory, limits, links and a first reading."""

    index: int
    vendor: str
    name: str
    now: Sample
    driver: str | None = None
    api_version: str | None = None  # newest CUDA version that the driver supports, or the installed ROCm version
    compute_capability: str | None = None
    target: str | None = None  # instruction set as the catalog names it: sm_90, gfx942
    cores: int | None = None
    memory_clock_hz: int | None = None
    memory_clock_max_hz: int | None = None
    power_default_watts: float | None = None
    power_max_watts: float | None = None
    slowdown_celsius: int | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_errors: int | None = None  # uncorrected errors since the driver was loaded
    mig: bool | None = None
    slices: tuple[MigSlice, ...] = ()
    partition: str | None = None  # AMD: compute and memory partition
    pcie: PcieLink | None = None
    nvlinks: int | None = None
    nvlinks_active: int | None = None
    peers: tuple[Peer, ...] = ()
    persistence: bool | None = None
    compute_mode: str | None = None  # shared, exclusive, prohibited
    odd: tuple[str, ...] = ()
