"""Checks of GPU rows: arithmetic between columns and plausible ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from whichgpu.base.messages import msg
from whichgpu.base.names import squash
from whichgpu.catalog.checks.structure import Ranges, out_of_range
from whichgpu.catalog.gpu import PEAKS
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, table_findings

RATE_TOLERANCE = Decimal("0.05")
BANDWIDTH_TOLERANCE = Decimal("0.03")
NON_TENSOR = ("fp64", "fp64_tensor", "fp32", "fp16_plain", "bf16_plain")

# Lowest and highest plausible value of each column: those of accelerators since 2010, with a margin (assumed).
PLAUSIBLE: Ranges = {
    "memory_mib": (512, 1024 * 1024),
    "memory_bus_bits": (32, 16384),
    "memory_rate_mtps": (500, 60000),
    "memory_bandwidth_gbs": (20, 30000),
    "sms": (1, 1024),
    "cores": (8, 100000),
    "base_clock_mhz": (100, 4000),
    "boost_clock_mhz": (200, 4000),
    "tensor_clock_mhz": (200, 4000),
    "l2_kib": (64, 1024 * 1024),
    "link_bandwidth_gbs": (10, 20000),
    "pcie_generation": (1, 7),
    "pcie_lanes": (1, 16),
    "dies": (1, 8),
    "mig_instances": (2, 16),
    "memory_reported_mib": (512, 1024 * 1024),
    "tdp_watts": (5, 3000),
    "launch_price": (20, 500000),
}
# Pairs of a wider and a narrower dtype on the same execution units: the wider one is never faster.
NARROWING = (
    ("fp64", "fp32"),
    ("tf32", "fp16"),
    ("fp16_plain", "fp16"),
    ("fp16", "fp8"),
    ("bf16", "fp8"),
    ("fp8", "fp4"),
    ("int8", "int4"),
)


def memory(tables: Tables) -> list[Finding]:
    """Return findings for GPUs whose stated, labelled and driver-reported memory sizes contradict each other."""
    return table_findings(tables, "gpus", _memory)


def _memory(row: Row) -> Iterator[Fault]:
    mib, reported = row["memory_mib"], row["memory_reported_mib"]
    label = re.fullmatch(r"(\d+(?:\.\d+)?) GB", row["memory_label"] or "")
    if mib and (label is None or not Decimal("0.97") <= Decimal(mib) / (Decimal(label[1]) * 1024) <= Decimal("1.03")):
        yield "memory-label", "memory_mib", msg("finding.memory-label", mib=mib, label=row["memory_label"])
    if mib and reported and not Decimal("0.85") <= Decimal(reported) / mib <= Decimal("1.02"):
        yield "memory-reported", "memory_reported_mib", msg("finding.memory-reported", reported=reported, mib=mib)


def bandwidth(tables: Tables) -> list[Finding]:
    """Return findings for bandwidths more than 3% from bus width times data rate."""
    return table_findings(tables, "gpus", _bandwidth)


def _bandwidth(row: Row) -> Iterator[Fault]:
    bits, rate, stated = row["memory_bus_bits"], row["memory_rate_mtps"], row["memory_bandwidth_gbs"]
    if bits and rate and stated and abs(stated / (computed := bits * rate / 8000) - 1) > BANDWIDTH_TOLERANCE:
        detail = msg("finding.bandwidth-arithmetic", stated=stated, computed=round(computed, 1))
        yield "bandwidth-arithmetic", "memory_bandwidth_gbs", detail


def rates(tables: Tables) -> list[Finding]:
    """Return findings for peaks more than 5% from SMs x operations per clock x clock; twice as high is likely a sparse peak."""
    units = {row["id"]: row for row in tables["rates"].rows}
    return table_findings(tables, "gpus", lambda row: _rates(row, units.get(row["rates"] or "")))


def _rates(row: Row, unit: Row | None) -> Iterator[Fault]:
    if unit is None:
        yield from _without_unit(row)
        return
    if row["cores"] and row["sms"] and unit["cores"] and row["cores"] != row["sms"] * unit["cores"]:
        detail = msg("finding.cores-arithmetic", stated=row["cores"], computed=int(row["sms"] * unit["cores"]))
        yield "cores-arithmetic", "cores", detail
    for dtype in PEAKS:
        column = f"{dtype}_tflops"
        stated, computed = row[column], computed_peak(row, unit, dtype)
        if stated is None or row["sms"] is None or row["boost_clock_mhz"] is None:
            continue
        if computed is None:
            yield "no-unit", column, msg("finding.no-unit", dtype=dtype, rates=unit["id"])
        elif abs(stated / computed - 1) > RATE_TOLERANCE:
            check = "sparse-peak" if abs(stated / computed - 2) < Decimal("0.1") else "rate-arithmetic"
            yield check, column, msg(f"finding.{check}", stated=stated, computed=round(computed, 2))


def computed_peak(row: Row, unit: Row, dtype: str) -> Decimal | None:
    """Return the peak TFLOP/s of a dtype: SMs x operations per SM and clock x clock; None if one of them is unknown."""
    sms, rate = row["sms"], unit[dtype]
    non_tensor = dtype in NON_TENSOR or (dtype in ("fp16", "bf16") and rate == unit[f"{dtype}_plain"])
    clock = row["boost_clock_mhz"] if non_tensor else row["tensor_clock_mhz"] or row["boost_clock_mhz"]
    return None if rate is None or sms is None or clock is None else Decimal(sms * rate * clock / 10**6)


def _without_unit(row: Row) -> Iterator[Fault]:
    """Yield a fault if a GPU's fp32 peak is not cores x 2 x clock; used for GPUs without published rates per SM and clock."""
    cores, clock, stated = row["cores"], row["boost_clock_mhz"], row["fp32_tflops"]
    if cores and clock and stated and abs(stated * 10**6 / (cores * 2 * clock) - 1) > RATE_TOLERANCE:
        detail = msg("finding.rate-arithmetic", stated=stated, computed=round(cores * 2 * clock / 10**6, 2))
        yield "rate-arithmetic", "fp32_tflops", detail


def order_of_precisions(tables: Tables) -> list[Finding]:
    """Return findings for GPUs on which a wider dtype is faster than a narrower one on the same arithmetic units."""
    return table_findings(tables, "gpus", _precisions)


def _precisions(row: Row) -> Iterator[Fault]:
    for wide, narrow in NARROWING:
        slow, fast = row[f"{wide}_tflops"], row[f"{narrow}_tflops"]
        if slow and fast and slow > fast * (1 + RATE_TOLERANCE):
            detail = msg("finding.precision-order", wide=wide, narrow=narrow, slow=slow, fast=fast)
            yield "precision-order", f"{wide}_tflops", detail


def plausible(tables: Tables) -> list[Finding]:
    """Return findings for GPU values outside the range of any accelerator, and for launch prices without a currency."""
    return table_findings(tables, "gpus", _plausible)


def _plausible(row: Row) -> Iterator[Fault]:
    yield from out_of_range(row, PLAUSIBLE)
    if (row["launch_price"] is None) != (row["launch_currency"] is None):
        yield "currency", "launch_currency", msg("finding.currency")


def names(tables: Tables) -> list[Finding]:
    """Return findings for GPU names and aliases that two variants share, or that are the family name of another product."""
    owners: dict[str, str] = {}
    findings = []
    families = {squash(row["family"] or ""): row["family"] for row in tables["gpus"].rows}
    for row in tables["gpus"].rows:
        for alias in row["aliases"]:
            family = families.get(squash(alias), row["family"])
            if family != row["family"]:
                detail = msg("finding.shared-name", name=alias, other=family)
                findings.append(Finding("gpus", row["id"] or "", "shared-name", "aliases", detail))
        for name in {squash(text) for text in (row["id"] or "", row["name"] or "", *row["aliases"])}:
            if owners.setdefault(name, row["id"]) != row["id"]:
                detail = msg("finding.shared-name", name=name, other=owners[name])
                findings.append(Finding("gpus", row["id"], "shared-name", "aliases", detail))
    return findings
