"""Instances, host processors, regions, providers, and the sources cited by every row."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from whichgpu.base.units import GB, GIB, MIB
from whichgpu.catalog.gpu import plain_number, to_base_units
from whichgpu.catalog.tables import Row, record_of


class Provider(msgspec.Struct, frozen=True):
    """A company that rents or sells machines."""

    id: str
    name: str
    kind: str
    rents: str  # clusters: machines joined by a fabric; machines: single machines only
    url: str | None
    sources: tuple[str, ...]
    recorded: str


class Interconnect(msgspec.Struct, frozen=True):
    """Link between the GPUs of a machine; `bandwidth` is one GPU's to its peers, both directions, bytes/s."""

    kind: str
    bandwidth: int | None


class Instance(msgspec.Struct, frozen=True):
    """A machine that a provider rents or sells; `gpus` below 1 is a slice of one GPU."""

    provider: str
    instance: str
    aliases: tuple[str, ...]
    gpu: str
    gpu_name: str
    gpus: int | float
    gpu_memory_bytes: int | None  # memory of each GPU, or of the slice
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


class Cpu(msgspec.Struct, frozen=True):
    """A host processor of the catalog: cores, clocks, memory and PCIe lanes."""

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
    memory_bandwidth: int | None  # bytes/s of one socket: channels x 8 bytes x transfers per second
    pcie_generation: int | float | None
    pcie_lanes: int | None
    ecc: str | None
    sockets_max: int | None
    tdp_watts: int | float | None
    launch_date: str | None
    sources: tuple[str, ...]
    recorded: str
    checked: str


class Region(msgspec.Struct, frozen=True):
    """A data-centre region of a cloud provider: its place and when it opened."""

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


class Source(msgspec.Struct, frozen=True):
    """A document that states facts; `read` is the day its own text was read for this catalog, if it was."""

    id: str
    title: str
    publisher: str
    url: str
    published: str | None
    read: str | None
    recorded: str


def build_instance(row: Row, gpu_names: Mapping[str, str], gpu_memory: Mapping[str, int]) -> Instance:
    """Return a cloud instance made from its row of the catalog's table, sizes in bytes, with its GPU's name and memory."""
    gpus = plain_number(row["gpus"]) or 0
    memory = gpu_memory.get(row["gpu"])
    if row["gpu_memory_gb"] is not None and (gpus < 1 or memory is None):
        memory = to_base_units(row["gpu_memory_gb"], GIB)
    link = row["interconnect"]
    return record_of(
        Instance,
        row,
        gpu_name=gpu_names.get(row["gpu"], row["gpu"]),
        gpus=gpus,
        gpu_memory_bytes=memory,
        vcpus=plain_number(row["vcpus"]),
        ram_bytes=to_base_units(row["ram_gib"], GIB),
        local_disk_bytes=to_base_units(row["local_disk_gb"], GB),
        network_gbps=plain_number(row["network_gbps"]),
        interconnect=Interconnect(link, to_base_units(row["interconnect_gbs"], GB)) if link else None,
    )


def build_cpu(row: Row) -> Cpu:
    """Return a host processor made from its row of the catalog's table, clocks in hertz and sizes in bytes."""
    channels, rate = row["memory_channels"], row["memory_rate_mtps"]
    return record_of(
        Cpu,
        row,
        base_clock_hz=to_base_units(row["base_clock_mhz"], 10**6),
        boost_clock_hz=to_base_units(row["boost_clock_mhz"], 10**6),
        l3_bytes=to_base_units(row["l3_mib"], MIB),
        memory_bandwidth=to_base_units(channels * 8 * rate, 10**6) if channels and rate else None,
        pcie_generation=plain_number(row["pcie_generation"]),
        tdp_watts=plain_number(row["tdp_watts"]),
    )


def build_region(row: Row) -> Region:
    """Return a provider's region made from its row of the catalog's table."""
    return record_of(Region, row, latitude=plain_number(row["latitude"]), longitude=plain_number(row["longitude"]))
