"""A GPU of this machine as its driver describes it: what stays (`Card`) and what changes (`Sample`).

Nothing that names the machine or its owner is kept: no serial number, no UUID, no bus address, no process names.
None means that the driver does not say.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of what changes; `lost` when the driver has no answer from this GPU any more."""

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
    pcie_rx_bandwidth: int | None = None  # bytes a second into the GPU
    pcie_tx_bandwidth: int | None = None
    lost: bool = False
    odd: tuple[str, ...] = ()  # fields whose answers could not be true and were dropped


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The link to the host: as it is now, the best this slot gives, the best the GPU could."""

    generation: int | None
    width: int | None
    generation_max: int | None
    width_max: int | None
    generation_gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """How another GPU of this machine is reached, best way first: nvlink, board, switch, switches, bridge, node, system."""

    index: int
    path: str


@dataclass(frozen=True, slots=True)
class MigSlice:
    """One MIG slice."""

    profile: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    sms: int | None


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU with all its driver tells of it."""

    index: int
    vendor: str
    name: str
    now: Sample
    driver: str | None = None
    api_version: str | None = None  # the newest CUDA the driver runs, or the ROCm installed
    compute_capability: str | None = None
    target: str | None = None  # sm_90, gfx942: as the catalog's targets
    cores: int | None = None
    memory_clock_hz: int | None = None
    memory_clock_max_hz: int | None = None
    power_default_watts: float | None = None
    power_max_watts: float | None = None
    slowdown_celsius: int | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
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
