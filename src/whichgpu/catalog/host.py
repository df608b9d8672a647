"""What GPUs sit in and where: instances, processors, regions, providers; and the sources behind every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from whichgpu.base.units import GB, GIB
from whichgpu.catalog.gpu import plain_number, to_base_units
from whichgpu.catalog.tables import Row


@dataclass(frozen=True, slots=True)
class Provider:
    """Who rents or sells machines."""

    id: str
    name: str
    kind: str
    url: str | None
    sources: tuple[str, ...]
    recorded: str


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How the GPUs of a machine reach each other; `bandwidth` is one GPU's to its peers, both ways, bytes a second."""

    kind: str
    bandwidth: int | None


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine a provider rents or sells; `gpus` below 1 is a slice of one."""

    provider: str
    instance: str
    aliases: tuple[str, ...]
    gpu: str
    gpu_name: str
    gpus: int | float
    gpu_memory_bytes: int | None  # of each GPU, or of the slice
    vcpus: int | float | None
    cpu: tuple[str, ...]
    cpu_sockets: int | None
    ram_bytes: int | None
    local_disk_bytes: int | None
    network_gbps: int | float | None
    network_kind: str | None
    interconnect: Interconnect | None
    topology: str | None
    first_seen: str | None
    last_seen: str | None
    sources: tuple[str, ...]
    recorded: str
    checked: str


@dataclass(frozen=True, slots=True)
class Cpu:
    """A host processor."""

    id: str
    name: str
    aliases: tuple[str, ...]
    vendor: str
    segment: str
    microarchitecture: str | None
    cores: int | None
    threads: int | None
    base_clock_hz: int | None
    boost_clock_hz: int | None
    l3_bytes: int | None
    memory_type: str | None
    memory_channels: int | None
    memory_bandwidth: int | None  # of one socket: channels x 8 bytes x transfers a second
    pcie_generation: int | float | None
    pcie_lanes: int | None
    ecc: str | None
    sockets_max: int | None
    tdp_watts: int | float | None
    launch_date: str | None
    sources: tuple[str, ...]
    recorded: str
    checked: str


@dataclass(frozen=True, slots=True)
class Region:
    """A place of a provider's."""

    provider: str
    region: str
    name: str
    city: str | None
    country: str | None
    latitude: float | None
    longitude: float | None
    opened: str | None
    closed: str | None
    sources: tuple[str, ...]
    recorded: str
    checked: str


@dataclass(frozen=True, slots=True)
class Source:
    """A document that states facts; `read` is the day its own text was read for this catalog, where it was."""

    id: str
    title: str
    publisher: str
    url: str
    published: str | None
    read: str | None
    recorded: str


def build_instance(row: Row, gpu_names: Mapping[str, str], gpu_memory: Mapping[str, int]) -> Instance:
    """The instance of a table row."""
    gpus = plain_number(row["gpus"]) or 0
    whole = gpu_memory.get(row["gpu"])
    if row["gpu_memory_gb"] is not None and (gpus < 1 or whole is None):
        memory: int | None = to_base_units(row["gpu_memory_gb"], GIB)
    else:
        memory = whole
    link = row["interconnect"]
    return Instance(
        provider=row["provider"],
        instance=row["instance"],
        aliases=row["aliases"],
        gpu=row["gpu"],
        gpu_name=gpu_names.get(row["gpu"], row["gpu"]),
        gpus=gpus,
        gpu_memory_bytes=memory,
        vcpus=plain_number(row["vcpus"]),
        cpu=row["cpu"],
        cpu_sockets=row["cpu_sockets"],
        ram_bytes=_scaled(row["ram_gib"], GIB),
        local_disk_bytes=_scaled(row["local_disk_gb"], GB),
        network_gbps=plain_number(row["network_gbps"]),
        network_kind=row["network_kind"],
        interconnect=Interconnect(link, _scaled(row["interconnect_gbs"], GB)) if link else None,
        topology=row["topology"],
        first_seen=row["first_seen"],
        last_seen=row["last_seen"],
        sources=row["sources"],
        recorded=row["recorded"],
        checked=row["checked"],
    )


def build_cpu(row: Row) -> Cpu:
    """The processor of a table row."""
    channels, rate = row["memory_channels"], row["memory_rate_mtps"]
    return Cpu(
        id=row["id"],
        name=row["name"],
        aliases=row["aliases"],
        vendor=row["vendor"],
        segment=row["segment"],
        microarchitecture=row["microarchitecture"],
        cores=row["cores"],
        threads=row["threads"],
        base_clock_hz=_scaled(row["base_clock_mhz"], 10**6),
        boost_clock_hz=_scaled(row["boost_clock_mhz"], 10**6),
        l3_bytes=_scaled(row["l3_mib"], 1 << 20),
        memory_type=row["memory_type"],
        memory_channels=channels,
        memory_bandwidth=to_base_units(channels * 8 * rate, 10**6) if channels and rate else None,
        pcie_generation=plain_number(row["pcie_generation"]),
        pcie_lanes=row["pcie_lanes"],
        ecc=row["ecc"],
        sockets_max=row["sockets_max"],
        tdp_watts=plain_number(row["tdp_watts"]),
        launch_date=row["launch_date"],
        sources=row["sources"],
        recorded=row["recorded"],
        checked=row["checked"],
    )


def build_region(row: Row) -> Region:
    """The region of a table row."""
    plain = {name: row[name] for name in Region.__dataclass_fields__}
    return Region(**plain | {"latitude": plain_number(row["latitude"]), "longitude": plain_number(row["longitude"])})


def build_provider(row: Row) -> Provider:
    """The provider of a table row."""
    return Provider(**{name: row[name] for name in Provider.__dataclass_fields__})


def build_source(row: Row) -> Source:
    """The source of a table row."""
    return Source(**{name: row[name] for name in Source.__dataclass_fields__})


def _scaled(cell: Decimal | int | None, scale: int) -> int | None:
    return None if cell is None else to_base_units(cell, scale)
