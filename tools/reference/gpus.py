"""The table of GPUs, from the catalog."""

from __future__ import annotations

from reference.markdown import anchor, code, heading, table, text
from reference.translator import Translator
from whichgpu.base.units import format_bandwidth, format_flops, format_memory, significant
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog

HEAD = ("id", "name", "architecture", "memory", "bandwidth", "fp32", "16 bit", "8 bit", "power", "launched")
ABOUT = (
    "The {count} variants of the catalog, newest first. Rates are dense, on matrix units where there are some: bf16 or fp16 "
    "under *16 bit*, fp8 or int8 under *8 bit*. An empty cell is not known or not there. "
    "`whichgpu gpus NAME` shows every field of one with its sources; "
    "[How to add a GPU]({up}how-to-add/gpu.md) says how one that is missing gets in."
)


def page(translator: Translator) -> str:
    """The page."""
    catalog = Catalog()
    vendors: dict[str, list[Gpu]] = {}
    for gpu in sorted(catalog.gpus, key=lambda gpu: gpu.launch_date, reverse=True):
        vendors.setdefault(gpu.vendor, []).append(gpu)
    say = translator.say
    parts = [f"# {say('GPUs')}\n\n", say(ABOUT, count=len(catalog.gpus), up=translator.up), "\n"]
    head = [say(column) for column in HEAD]
    for vendor, gpus in vendors.items():
        parts.append(heading(2, text(vendor), anchor(vendor)))
        parts.append(table(head, (_row(gpu) for gpu in gpus)))
    return "".join(parts)


def _row(gpu: Gpu) -> tuple[str, ...]:
    return (
        code(gpu.id),
        text(gpu.name),
        text(gpu.architecture),
        format_memory(gpu.memory_bytes),
        format_bandwidth(gpu.memory_bandwidth) if gpu.memory_bandwidth else "",
        _rate(gpu, "fp32"),
        _rate(gpu, "bf16", "fp16"),
        _rate(gpu, "fp8", "int8"),
        f"{significant(gpu.tdp_watts, 4)} W" if gpu.tdp_watts else "",
        text(gpu.launch_date),
    )


def _rate(gpu: Gpu, *dtypes: str) -> str:
    rate = next((gpu.peaks[dtype] for dtype in dtypes if gpu.peaks.get(dtype)), None)
    return format_flops(int(rate)).replace("FLOP", "OP") if rate else ""
