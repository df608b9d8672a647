"""SkyPilot's CSV of one cloud: a line per instance, region and zone with on-demand and current spot prices in USD.

Has no reserved or committed terms and no dates; for several clouds it is years old. Tables in `live/data` correct its faults:
memory in other units than the field says, GCP's hosts and GPUs on separate lines (joined in `hosts`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.layouts.hosts import Joiner
from whichgpu.catalog.live.rows import InstanceLookup, OfferRow, ReadCounts, RejectedRow, parse_price, row_at_price
from whichgpu.catalog.live.source_tables import memory_units

NEEDED = frozenset({"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region"})

_MEMORY = re.compile(r"""SizeInMiB['"]:\s*([0-9.]+)""")
_NAME = re.compile(r"""['"]Name['"]:\s*['"]([^'"]+)['"]""")


def is_layout(header: Iterable[str]) -> bool:
    """Whether a CSV header is that of a SkyPilot file."""
    return set(header) >= NEEDED


def skypilot_rows(
    lines: Iterable[str], provider: str, machine_of: InstanceLookup, read: ReadCounts
) -> Iterator[OfferRow | RejectedRow]:
    """Yield the prices, and rejected rows, in one cloud's file of the SkyPilot catalog."""
    reader = csv.DictReader(lines)
    if not is_layout(reader.fieldnames or ()):
        raise DataError("not-a-catalog", msg("error.not-a-catalog", name=provider, layout="SkyPilot"), msg("hint.not-a-catalog"))
    joiner = Joiner(provider, machine_of)
    for cells in reader:
        read.rows += 1
        if None in cells or None in cells.values():
            yield RejectedRow("malformed", _text(cells))
            continue
        try:
            prices = _prices(cells)
            row = _row(cells, provider)
        except ValueError:
            yield RejectedRow("malformed", _text(cells))
            continue
        if joiner.collect(row, prices):
            read.aside += not row.accelerator
        elif not row.accelerator and machine_of(provider, row.instance) is None:
            read.aside += 1
        else:
            yield from _offers(row, prices, cells)
    yield from joiner.join()


def _prices(cells: dict[str, str]) -> dict[str, Decimal]:
    stated = {"on-demand": cells["Price"], "spot": cells["SpotPrice"]}
    return {term: parse_price(cell) for term, cell in stated.items() if cell not in ("", "nan")}


def _row(cells: dict[str, str], provider: str) -> OfferRow:
    info, accelerator = cells.get("GpuInfo") or "", cells["AcceleratorName"]
    slice_ = accelerator.startswith("tpu-")  # A TPU slice is an instance, and its name has the chip count.
    count = None if slice_ else float(cells["AcceleratorCount"] or 0) or None
    memory, name = _MEMORY.search(info), _NAME.search(info)
    return OfferRow(
        provider=provider,
        instance=accelerator if slice_ else cells["InstanceType"],
        region=cells["Region"],
        accelerator=accelerator,
        count=count,
        memory_mib=_memory(float(memory[1]), provider, count) if memory else None,
        term="on-demand",
        price=Decimal(0),
        zone=cells.get("AvailabilityZone") or "",
        names=tuple(filter(None, (cells.get("UpstreamCloudId"), name[1] if name else None))),
    )


def _memory(stated: float, provider: str, count: float | None) -> float | None:
    """Return the MiB of one GPU from a SkyPilot row's memory field, whose unit depends on the cloud; None if unknown."""
    holds = memory_units().get(("skypilot", provider), "mib")
    scale = {"mib": 1.0, "gb": 1024.0, "total": 1 / (count or 1)}[holds]
    return stated * scale or None


def _offers(row: OfferRow, prices: dict[str, Decimal], cells: dict[str, str]) -> Iterator[OfferRow | RejectedRow]:
    if not prices:
        yield RejectedRow("no-price", _text(cells))
    for term, price in prices.items():
        yield row_at_price(row, term, price)


def _text(cells: dict[str, str]) -> str:
    return ",".join(str(cell) for cell in cells.values())
