"""Checks of instances, processors and regions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.messages import msg
from whichgpu.catalog.checks.structure import Ranges, out_of_range
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, table_findings

INSTANCE_RANGES: Ranges = {
    "gpus": (0, 1024),
    "vcpus": (1, 4096),
    "ram_gib": (1, 32768),
    "local_disk_gb": (0, 1000000),
    "network_gbps": (0, 100000),
    "interconnect_gbs": (1, 20000),
    "cpu_sockets": (1, 128),
}
CPU_RANGES: Ranges = {
    "cores": (1, 512),
    "threads": (1, 1024),
    "base_clock_mhz": (800, 6000),
    "boost_clock_mhz": (800, 7000),
    "l3_mib": (1, 2048),
    "memory_channels": (1, 64),
    "memory_rate_mtps": (800, 20000),
    "pcie_generation": (1, 7),
    "pcie_lanes": (4, 256),
    "sockets_max": (1, 16),
    "tdp_watts": (5, 1000),
}
REGION_RANGES: Ranges = {"latitude": (-60, 75), "longitude": (-180, 180)}


def instances(tables: Tables) -> list[Finding]:
    """Return findings for instances whose counts, memory per GPU, dates or links contradict their GPU."""
    gpus = {row["id"]: row for row in tables["gpus"].rows}
    return table_findings(tables, "instances", lambda row: _instance(row, gpus.get(row["gpu"])))


def _instance(row: Row, gpu: Row | None) -> Iterator[Fault]:
    yield from out_of_range(row, INSTANCE_RANGES)
    if row["first_seen"] and row["last_seen"] and first_day(row["first_seen"]) > last_day(row["last_seen"]):
        yield "seen-order", "last_seen", msg("finding.seen-order", first=row["first_seen"], last=row["last_seen"])
    if row["gpus"] is not None and row["gpus"] <= 0:
        yield "implausible", "gpus", msg("finding.implausible", value=row["gpus"], low=msg("word.above-zero"), high=1024)
        return
    if gpu is None or row["gpus"] is None:
        return
    stated, whole = row["gpu_memory_gb"], gpu["memory_mib"]
    if stated and whole:
        expected = Decimal(whole) / 1024 * min(row["gpus"], 1)
        if not Decimal("0.85") <= stated / expected <= Decimal("1.15"):
            detail = msg("finding.memory-per-gpu", stated=stated, expected=round(expected, 1), gpu=gpu["id"])
            yield "memory-per-gpu", "gpu_memory_gb", detail
    if (row["gpus"] > 1 and row["interconnect"] == "none") or (row["gpus"] <= 1 and row["topology"] not in (None, "single")):
        yield "topology", "interconnect", msg("finding.topology", gpus=row["gpus"])
    link, own = row["interconnect_gbs"], gpu["link_bandwidth_gbs"]
    if row["interconnect"] in ("nvlink", "nvswitch") and not own:
        yield "link", "interconnect", msg("finding.no-link", gpu=gpu["id"])
    if link and own and row["interconnect"] in ("nvlink", "nvswitch") and link > own * Decimal("1.02"):
        yield "link", "interconnect_gbs", msg("finding.link", stated=link, own=own, gpu=gpu["id"])


def cpus(tables: Tables) -> list[Finding]:
    """Return findings for implausible values of processors, and for thread counts and clocks that contradict each other."""
    return table_findings(tables, "cpus", _cpu)


def _cpu(row: Row) -> Iterator[Fault]:
    yield from out_of_range(row, CPU_RANGES)
    cores, threads = row["cores"], row["threads"]
    if cores and threads and not cores <= threads <= 2 * cores:
        yield "threads", "threads", msg("finding.threads", cores=cores, threads=threads)
    base, boost = row["base_clock_mhz"], row["boost_clock_mhz"]
    if base and boost and base > boost:
        yield "clock-order", "boost_clock_mhz", msg("finding.clock-order", base=base, boost=boost)


def regions(tables: Tables) -> list[Finding]:
    """Return findings for implausible coordinates, country codes that are not two capitals, and dates in the wrong order."""
    return table_findings(tables, "regions", _region)


def _region(row: Row) -> Iterator[Fault]:
    yield from out_of_range(row, REGION_RANGES)
    if row["country"] and not re.fullmatch(r"[A-Z]{2}", row["country"]):
        yield "country", "country", msg("finding.country", country=row["country"])
    if (row["latitude"] is None) != (row["longitude"] is None):
        yield "coordinates", "latitude", msg("finding.coordinates")
    if row["opened"] and row["closed"] and first_day(row["opened"]) > last_day(row["closed"]):
        yield "seen-order", "closed", msg("finding.seen-order", first=row["opened"], last=row["closed"])
