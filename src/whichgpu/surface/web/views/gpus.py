"""GPUs: the spec table, with columns to choose, filters, orders, a basket to compare, and rooflines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from whichgpu.base.codec import columns as columns_of
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.names import unknown_word
from whichgpu.base.units import parse_bandwidth, parse_bytes
from whichgpu.catalog.gpu import PEAKS, Gpu
from whichgpu.catalog.select import GpuFilter, parse_capability
from whichgpu.surface.cells import chosen, field_named, flat_rows, human, label
from whichgpu.surface.commands.compare import USUAL as COMPARED
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.views.chart_parts import PLAIN, coloured, dashed, decades, picture, quantity, tips
from whichgpu.surface.web.views.forms import Form, day_of, given, problem_of
from whichgpu.surface.web.views.shared_catalog import lookups
from whichgpu.surface.web.views.words import words

if TYPE_CHECKING:
    from whichgpu.api.facts.catalog import Comparison

USUAL = (
    "name", "architecture", "memory_bytes", "memory_bandwidth", "peaks.bf16", "peaks.fp16", "peaks.fp8", "tdp_watts",
    "launch_date",
)  # fmt: skip
FILTERS = ("vendor", "arch", "min_memory", "min_bandwidth", "supports", "compute_capability", "form_factor", "as_of")
MOST_LINES = 8
ROOFED = ("b200", "h200-sxm", "h100-sxm", "mi300x", "a100-sxm-80gb", "l40s", "rtx-4090", "t4")  # where none is chosen
INTENSITIES = tuple(2.0 ** (step / 2) for step in range(-2, 25))  # FLOP a byte, half octaves


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked."""

    name: tuple[str, ...] = ()
    vendor: str | None = None
    arch: str | None = None
    form_factor: str | None = None
    min_memory: str | None = None
    min_bandwidth: str | None = None
    supports: tuple[str, ...] = ()
    compute_capability: str | None = None
    as_of: str | None = None
    sort: str = "-launch_date"
    columns: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    dtype: str = "bf16"


@view("gpus", State)
def gpus(page: Page[State]) -> Shown:
    """The table, the basket's GPUs side by side, and their rooflines."""
    from whichgpu.api.facts import catalog as verbs

    state, language, catalog = page.state, page.language, lookups().catalog
    texts = given(state, (*FILTERS, "sort", "columns"))
    command = "gpus", {**texts, "names": state.name}
    context: dict[str, Any] = {"form": _form(page), **words(page.language), "rows": None, "error": None, "compared": None}
    try:
        sort = field_named(state.sort, Gpu, language)
        answer = verbs.select_gpus(state.name, _filter(state), sort, catalog)
        basket = verbs.compare_hardware(state.compare, catalog) if state.compare else None
        cells = flat_rows(answer.gpus)
        names = chosen(",".join(("name", *state.columns)) if state.columns else None, cells, USUAL, language)
        lines = [one.gpu for one in basket.compared] if basket else _roofed(answer.gpus)
        charts = {"roofline": roofline(lines[:MOST_LINES], state.dtype, language)} if lines else {}
    except WhichGpuError as error:
        told, status = problem_of(error, language)
        return Shown("gpus.html", context | {"error": told}, command, status=status)
    rows = [
        (gpu.id, gpu.id in state.compare, [human(name, row[name], language) for name in names])
        for gpu, row in zip(answer.gpus, cells, strict=True)
    ]
    return Shown(
        "gpus.html",
        context
        | {
            "rows": rows,
            "heads": [(name, label(name, language), _order(state.sort, name)) for name in names],
            "checked": min(gpu.checked for gpu in answer.gpus),
            "documents": len(answer.sources),
            "kept": parse_qsl(page.url(compare=()).partition("?")[2]),
            "compared": _side_by_side(basket, language) if basket else None,
        },
        command,
        charts,
    )


def _filter(state: State) -> GpuFilter:
    return GpuFilter(
        vendor=state.vendor,
        arch=state.arch,
        min_memory=parse_bytes(state.min_memory) if state.min_memory else None,
        min_bandwidth=parse_bandwidth(state.min_bandwidth) if state.min_bandwidth else None,
        supports=state.supports,
        compute_capability=parse_capability(state.compute_capability) if state.compute_capability else None,
        form_factor=state.form_factor,
        as_of=day_of(state.as_of),
    )


def _order(sort: str, name: str) -> str:
    """The state of a column's order, as aria-sort says it."""
    if sort.lstrip("-") not in (name, name.removeprefix("peaks.")):
        return "none"
    return "descending" if sort.startswith("-") else "ascending"


def _side_by_side(basket: Comparison, language: Language) -> dict[str, Any]:
    cells = flat_rows([one.gpu for one in basket.compared])
    facts = [name for name in COMPARED if any(row.get(name) not in (None, "") for row in cells)]
    return {
        "names": [one.name for one in basket.compared],
        "facts": [(label(name, language), [human(name, row[name], language) for row in cells]) for name in facts],
    }


def _roofed(found: Sequence[Gpu]) -> list[Gpu]:
    """Well-known ones among those shown, or the first."""
    known = [gpu for id in ROOFED for gpu in found if gpu.id == id]
    return known or list(found[:MOST_LINES])


def roofline(found: Sequence[Gpu], dtype: str, language: Language) -> dict[str, Any]:
    """Rate against work a byte: bandwidth bounds it up to the ridge, arithmetic beyond."""
    text = language.text
    if dtype not in PEAKS:
        raise unknown_word("precision", dtype, PEAKS)
    rated = [(gpu, gpu.peaks.get(dtype) or gpu.peaks.get("fp16") or gpu.peaks.get("fp32")) for gpu in found]
    lines = [(gpu, peak) for gpu, peak in rated if peak]
    points = [
        {"gpu": gpu.name, "intensity": round(work, 4), "rate": float(f"{min(peak, gpu.memory_bandwidth * work) / 1e12:.4g}")}
        for gpu, peak in lines
        for work in sorted({*INTENSITIES, peak / gpu.memory_bandwidth})
    ]
    names = [gpu.name for gpu, _ in lines]
    x = quantity("intensity", text("web.axis-intensity"), log=True, axis={"format": PLAIN, "values": decades(0.1, 1e4)})
    y = quantity("rate", text("web.axis-rate", dtype=dtype), log=True, axis={"format": PLAIN, "values": decades(0.01, 1e5)})
    return picture(
        text("web.described-roofline", n=len(names), names=tuple(names), dtype=dtype),
        340,
        data={"values": points},
        mark={"type": "line", "strokeWidth": 2.2},
        encoding={
            "x": x, "y": y, "color": coloured("gpu", names), "strokeDash": dashed("gpu", names),
            "tooltip": tips(("gpu", text("web.tip-gpu")), ("intensity", "FLOP/byte"), ("rate", "TFLOP/s")),
        },
    )  # fmt: skip


@cache
def _known() -> dict[str, tuple[str, ...]]:
    """Words the filters may be."""
    found = lookups().catalog.gpus
    return {
        "vendor": tuple(sorted({gpu.vendor for gpu in found})),
        "arch": tuple(sorted({gpu.architecture for gpu in found})),
        "form_factor": tuple(sorted({gpu.form_factor for gpu in found})),
        "supports": tuple(sorted({feature for gpu in found for feature in gpu.supports})),
    }


def _form(page: Page[State]) -> dict[str, Any]:
    form, known, state = Form(page), _known(), page.state
    shown = ("name", *state.columns) if state.columns else USUAL
    return {
        "name": form.field("name", known="gpus"),
        "filters": [
            form.select("vendor", known["vendor"]),
            form.select("arch", known["arch"]),
            form.select("form_factor", known["form_factor"]),
            form.field("min_memory", example="24GB"),
            form.field("min_bandwidth", example="900GB/s"),
            form.field("compute_capability", example="8.0+"),
            form.field("as_of", "date"),
        ],
        "supports": form.checks("supports", known["supports"]),
        "dtype": form.select("dtype", ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")),
        "columns": [
            (name, label(name, page.language), name in shown, name in USUAL) for name in columns_of(Gpu) if name != "name"
        ],
    }
