"""Checks of GPU rows by arithmetic and by what is physically plausible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from whichgpu.base.messages import Message, msg
from whichgpu.base.names import squash
from whichgpu.catalog.gpu import PEAKS
from whichgpu.catalog.tables import Finding, Row, Table

Tables = Mapping[str, Table]

RATE_TOLERANCE = Decimal("0.05")
BANDWIDTH_TOLERANCE = Decimal("0.03")
PLAIN = ("fp64", "fp64_tensor", "fp32", "fp16_plain", "bf16_plain")

# Column -> lowest and highest value any accelerator since 2010 has had, with room to grow.
PLAUSIBLE: dict[str, tuple[int, int]] = {
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
# A wider type is never faster than a narrower one on the same units.
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
    """The counted, the labelled and the reported memory agree."""
    return [
        Finding("gpus", row["id"], check, column, detail) for row in tables["gpus"].rows for check, column, detail in _memory(row)
    ]


def _memory(row: Row) -> Iterator[tuple[str, str, Message]]:
    mib, reported = row["memory_mib"], row["memory_reported_mib"]
    label = re.fullmatch(r"(\d+(?:\.\d+)?) GB", row["memory_label"] or "")
    if mib and (label is None or not Decimal("0.97") <= Decimal(mib) / (Decimal(label[1]) * 1024) <= Decimal("1.03")):
        yield "memory-label", "memory_mib", msg("finding.memory-label", mib=mib, label=row["memory_label"])
    if mib and reported and not Decimal("0.85") <= Decimal(reported) / mib <= Decimal("1.02"):
        yield "memory-reported", "memory_reported_mib", msg("finding.memory-reported", reported=reported, mib=mib)


def bandwidth(tables: Tables) -> list[Finding]:
    """Bandwidth is bus width times data rate, within 3%."""
    found = []
    for row in tables["gpus"].rows:
        bits, rate, stated = row["memory_bus_bits"], row["memory_rate_mtps"], row["memory_bandwidth_gbs"]
        if bits and rate and stated:
            computed = bits * rate / 8000
            if abs(stated / computed - 1) > BANDWIDTH_TOLERANCE:
                detail = msg("finding.bandwidth-arithmetic", stated=stated, computed=round(computed, 1))
                found.append(Finding("gpus", row["id"], "bandwidth-arithmetic", "memory_bandwidth_gbs", detail))
    return found


def rates(tables: Tables) -> list[Finding]:
    """Every peak is SMs times operations a clock times clock, within 5%; one twice too high is likely a sparse figure."""
    units = {row["id"]: row for row in tables["rates"].rows}
    found: list[Finding] = []
    for row in tables["gpus"].rows:
        unit = units.get(row["rates"] or "")
        if unit is None:
            found += _without_unit(row)
            continue
        if row["cores"] and row["sms"] and unit["cores"] and row["cores"] != row["sms"] * unit["cores"]:
            detail = msg("finding.cores-arithmetic", stated=row["cores"], computed=int(row["sms"] * unit["cores"]))
            found.append(Finding("gpus", row["id"], "cores-arithmetic", "cores", detail))
        for dtype in PEAKS:
            stated, computed = row[f"{dtype}_tflops"], computed_peak(row, unit, dtype)
            if stated is None or row["sms"] is None or row["boost_clock_mhz"] is None:
                continue
            column = f"{dtype}_tflops"
            if computed is None:
                detail = msg("finding.no-unit", dtype=dtype, rates=unit["id"])
                found.append(Finding("gpus", row["id"], "no-unit", column, detail))
            elif abs(stated / computed - 1) > RATE_TOLERANCE:
                check = "sparse-peak" if abs(stated / computed - 2) < Decimal("0.1") else "rate-arithmetic"
                detail = msg(f"finding.{check}", stated=stated, computed=round(computed, 2))
                found.append(Finding("gpus", row["id"], check, column, detail))
    return found


def computed_peak(row: Row, unit: Row, dtype: str) -> Decimal | None:
    """TFLOP/s of a dtype by arithmetic: SMs x operations an SM completes in a clock x clock."""
    sms, rate = row["sms"], unit[dtype]
    plain = dtype in PLAIN or (dtype in ("fp16", "bf16") and rate == unit[f"{dtype}_plain"])
    clock = row["boost_clock_mhz"] if plain else row["tensor_clock_mhz"] or row["boost_clock_mhz"]
    return None if rate is None or sms is None or clock is None else Decimal(sms * rate * clock / 10**6)


def _without_unit(row: Row) -> Iterator[Finding]:
    """Where no unit counts are published, at least fp32 must be cores times two times clock."""
    cores, clock, stated = row["cores"], row["boost_clock_mhz"], row["fp32_tflops"]
    if cores and clock and stated and abs(stated * 10**6 / (cores * 2 * clock) - 1) > RATE_TOLERANCE:
        detail = msg("finding.rate-arithmetic", stated=stated, computed=round(cores * 2 * clock / 10**6, 2))
        yield Finding("gpus", row["id"], "rate-arithmetic", "fp32_tflops", detail)


def order_of_precisions(tables: Tables) -> list[Finding]:
    """A narrower type is at least as fast as a wider one on the same units."""
    found = []
    for row in tables["gpus"].rows:
        for wide, narrow in NARROWING:
            slow, fast = row[f"{wide}_tflops"], row[f"{narrow}_tflops"]
            if slow and fast and slow > fast * (1 + RATE_TOLERANCE):
                detail = msg("finding.precision-order", wide=wide, narrow=narrow, slow=slow, fast=fast)
                found.append(Finding("gpus", row["id"], "precision-order", f"{wide}_tflops", detail))
    return found


def plausible(tables: Tables) -> list[Finding]:
    """Every number is one an accelerator can have."""
    found = []
    for row in tables["gpus"].rows:
        for column, (low, high) in PLAUSIBLE.items():
            value = row[column]
            if value is not None and not low <= value <= high:
                detail = msg("finding.implausible", value=value, low=low, high=high)
                found.append(Finding("gpus", row["id"], "implausible", column, detail))
        if (row["launch_price"] is None) != (row["launch_currency"] is None):
            found.append(Finding("gpus", row["id"], "currency", "launch_currency", msg("finding.currency")))
    return found


def names(tables: Tables) -> list[Finding]:
    """No name or alias means two variants, nor another product's family."""
    owners: dict[str, str] = {}
    found = []
    families = {squash(row["family"] or ""): row["family"] for row in tables["gpus"].rows}
    for row in tables["gpus"].rows:
        for alias in row["aliases"]:
            family = families.get(squash(alias), row["family"])
            if family != row["family"]:
                detail = msg("finding.shared-name", name=alias, other=family)
                found.append(Finding("gpus", row["id"] or "", "shared-name", "aliases", detail))
        for name in {squash(text) for text in (row["id"] or "", row["name"] or "", *row["aliases"])}:
            if owners.setdefault(name, row["id"]) != row["id"]:
                detail = msg("finding.shared-name", name=name, other=owners[name])
                found.append(Finding("gpus", row["id"], "shared-name", "aliases", detail))
    return found
