"""gpuhunt's CSV of one provider: a line per instance and location, spot or on-demand, in USD.

Has no reserved terms, no variants (SXM and PCIe look the same) and no history: a catalog is of one day, its version.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.rows import InstanceLookup, OfferRow, ReadCounts, RejectedRow, parse_price
from whichgpu.catalog.live.source_tables import provider_names

NEEDED = frozenset({"instance_name", "location", "price", "gpu_count", "gpu_name", "gpu_memory", "spot"})


def is_layout(header: Iterable[str]) -> bool:
    """Whether a CSV header is that of a gpuhunt file."""
    return set(header) >= NEEDED


def gpuhunt_rows(
    lines: Iterable[str], provider: str, machine_of: InstanceLookup, read: ReadCounts
) -> Iterator[OfferRow | RejectedRow]:
    """Yield the prices in one provider's gpuhunt file, and rejected rows; `provider` is gpuhunt's name for it."""
    reader = csv.DictReader(lines)
    if not is_layout(reader.fieldnames or ()):
        raise DataError("not-a-catalog", msg("error.not-a-catalog", name=provider, layout="gpuhunt"), msg("hint.not-a-catalog"))
    ours = provider_names().get(("gpuhunt", provider), provider)
    for cells in reader:
        read.rows += 1
        if None in cells or None in cells.values():
            yield RejectedRow("malformed", str(list(cells.values())))
            continue
        if not cells["gpu_name"] and machine_of(ours, cells["instance_name"]) is None:
            read.aside += 1
            continue
        try:
            yield _row(cells, ours)
        except ValueError:
            yield RejectedRow("malformed", ",".join(cells.values()))


def _row(cells: dict[str, str], provider: str) -> OfferRow:
    count = float(cells["gpu_count"] or 0) or None
    memory = float(cells["gpu_memory"] or 0) or None
    name, location = cells["gpu_name"], cells["location"]
    instance = cells["instance_name"]
    if provider == "vast":  # Vast's instance name is the id of one machine on one day.
        instance = f"{count or 0:g}x-{name}"
    elif provider == "gcp" and instance.startswith("n1-"):  # The name is that of the host, to which the GPUs are attached.
        instance = f"{instance}+{count or 0:g}x{name.lower()}"
    elif provider == "runpod":
        instance = f"{count or 0:g}x {instance}"
    zoned = provider == "gcp"
    return OfferRow(
        provider=provider,
        instance=instance,
        region=location.rpartition("-")[0] if zoned else location,
        accelerator=name,
        count=count,
        memory_mib=memory * 1024 if memory else None,
        term="spot" if cells["spot"].lower() == "true" else "on-demand",
        price=parse_price(cells["price"]),
        zone=location if zoned else "",
        names=(cells["instance_name"],) if provider == "runpod" else (),
    )
