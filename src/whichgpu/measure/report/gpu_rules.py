"""Rules of `doctor` that find problems of one GPU from its driver's data and its specification in the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from whichgpu.base.units import GIB, format_memory, significant
from whichgpu.catalog.gpu import Gpu, Software
from whichgpu.measure.drivers.card import Card
from whichgpu.measure.drivers.throttle import SUPPLY, THERMAL
from whichgpu.measure.host import Host
from whichgpu.measure.match import VariantMatch
from whichgpu.measure.report.finding import DoctorFinding, Level, finding, version_numbers

LITTLE_FREE = 0.2  # Share of the memory below which little is free (assumed).
UNEXPLAINED_USE = 0.05  # Share of the memory in use without a visible process that is reported (assumed).
BUSY_PERCENT = 50  # Utilisation in percent from which the PCIe link should run at full speed (assumed).
NEAR_CELSIUS = 4  # Degrees below the slowdown temperature from which a GPU counts as hot (assumed).
LIMIT_SHARE = 0.98  # A power limit below this share of the default counts as lowered (allows for rounding).


def card_findings(
    card: Card, match: VariantMatch, gpu: Gpu | None, software: Software | None, host: Host, several: bool
) -> Iterator[DoctorFinding]:
    """Yield findings about one GPU: `gpu` is its catalog row, `software` supports it, `several` if the machine has others."""
    if card.now.lost:
        yield finding("lost", "problem", card.index)
        return
    if match.why is not None:
        yield finding("match", "note", card.index, why=match.why)
    if card.odd:
        yield finding("odd", "note", card.index, fields=card.odd)
    yield from _slowed(card)
    yield from _pcie(card, gpu, host)
    yield from _memory(card, gpu)
    yield from _modes(card, host)
    yield from _driver(card, software)
    if several:
        yield from _links(card, gpu)


def _slowed(card: Card) -> Iterator[DoctorFinding]:
    """Yield findings about heat, power supply, power limits and fixed clocks."""
    reasons = set(card.now.throttle or ())
    temperature = card.now.temperature_celsius
    if reasons & THERMAL:
        yield finding("thermal", "warning", card.index, now=temperature if temperature is not None else "?")
    elif temperature is not None and card.slowdown_celsius and temperature > card.slowdown_celsius - NEAR_CELSIUS:
        yield finding("hot", "warning", card.index, now=temperature, limit=card.slowdown_celsius)
    if reasons & SUPPLY or ("hardware-slowdown" in reasons and not reasons & THERMAL):
        yield finding("power-brake", "warning", card.index)
    if "power-cap" in reasons:
        yield finding("power-cap", "note", card.index, limit=_watts(card.now.power_limit_watts))
    if "application-clocks" in reasons:
        yield finding("application-clocks", "note", card.index)
    limit, usual = card.now.power_limit_watts, card.power_default_watts
    if limit and usual and limit < LIMIT_SHARE * usual:
        yield finding("power-limit", "warning", card.index, limit=_watts(limit), usual=_watts(usual))


def _pcie(card: Card, gpu: Gpu | None, host: Host) -> Iterator[DoctorFinding]:
    """Yield findings about the PCIe link: a narrow one is a fault, a slow one only while the GPU is busy."""
    link = card.pcie
    if link is None:
        return
    level: Level = "note" if host.virtual == "vm" else "warning"  # A virtual machine may not report the real slot.
    slot_width = gpu.pcie.lanes if gpu and gpu.pcie else None
    best = max((width for width in (link.width_max, slot_width) if width), default=None)
    if link.width and best and link.width < best:
        yield finding("pcie-width", level, card.index, width=link.width, best=best)
    busy = (card.now.utilisation_percent or 0) >= BUSY_PERCENT
    if busy and link.generation and link.generation_max and link.generation < link.generation_max:
        yield finding("pcie-speed", level, card.index, generation=link.generation, best=link.generation_max)
    if link.generation_max and link.generation_gpu and link.generation_max < link.generation_gpu:
        yield finding("pcie-slot", "note", card.index, generation=link.generation_max, best=link.generation_gpu)


def _memory(card: Card, gpu: Gpu | None) -> Iterator[DoctorFinding]:
    total, used = card.now.memory_bytes, card.now.memory_used_bytes
    if total and used is not None:
        sizes = {"free": format_memory(total - used), "total": format_memory(total), "n": card.now.processes or 0}
        if card.now.processes == 0 and used > max(UNEXPLAINED_USE * total, 2 * GIB) and not card.mig:
            yield finding("memory-held", "warning", card.index, used=format_memory(used), **sizes)
        elif total - used < LITTLE_FREE * total:
            yield finding("memory-little", "warning", card.index, **sizes)
    if card.ecc_errors:
        yield finding("ecc-errors", "problem", card.index, count=card.ecc_errors)
    if card.ecc is not None and card.ecc_pending is not None and card.ecc != card.ecc_pending:
        yield finding("ecc-pending", "note", card.index)
    elif card.ecc is False and gpu and gpu.ecc in ("yes", "optional") and gpu.segment == "datacenter":
        yield finding("ecc-off", "note", card.index)
    elif card.ecc and gpu and gpu.memory_type.startswith("GDDR"):
        yield finding("ecc-on", "note", card.index)


def _modes(card: Card, host: Host) -> Iterator[DoctorFinding]:
    if card.mig and not card.slices:
        yield finding("mig-empty", "problem", card.index)
    elif card.mig:
        yield finding("mig-on", "note", card.index, slices=tuple(part.profile for part in card.slices))
    if card.compute_mode == "prohibited":
        yield finding("compute-prohibited", "problem", card.index)
    elif card.compute_mode == "exclusive":
        yield finding("compute-exclusive", "note", card.index)
    if card.persistence is False and host.container is None and host.virtual != "wsl":
        yield finding("persistence", "note", card.index)


def _driver(card: Card, software: Software | None) -> Iterator[DoctorFinding]:
    if software is None or card.vendor != "nvidia":
        return
    have, first = version_numbers(card.api_version), version_numbers(software.toolkit_first)
    if have and first and have < first:
        values = {"have": card.api_version, "first": software.toolkit_first, "capability": card.compute_capability or "?"}
        yield finding("driver-old", "problem", card.index, **values)
    if version_numbers(software.driver_last):
        yield finding("driver-last", "note", card.index, last=software.driver_last)


def _links(card: Card, gpu: Gpu | None) -> Iterator[DoctorFinding]:
    linked = any(peer.path == "nvlink" for peer in card.peers)
    if card.nvlinks and card.nvlinks_active is not None and 0 < card.nvlinks_active < card.nvlinks:
        yield finding("nvlink-some", "warning", card.index, active=card.nvlinks_active, count=card.nvlinks)
    elif gpu and gpu.form_factor == "sxm" and gpu.link and gpu.link.kind.startswith("nvlink") and card.peers and not linked:
        yield finding("nvlink-down", "warning", card.index)


def _watts(value: float | None) -> str:
    return f"{significant(value, 4)} W" if value is not None else "?"
