"""The GPU page: the table of specifications, with filters, chosen columns, a selection to compare, and rooflines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.request.catalog import GpusRequest
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Names, Plain
from whichgpu.api.workloads.compare import Comparison, compare_hardware
from whichgpu.base.codec import columns as columns_of
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.names import unknown_word
from whichgpu.catalog.gpu import PEAKS, Gpu
from whichgpu.surface.cells import cell_text, chosen_columns, flat_rows, heading, with_sort_field
from whichgpu.surface.charts.palette import THREE_DIGITS
from whichgpu.surface.charts.parts import MAX_LINES, coloured, dashed, decades, picture, quantity, tips
from whichgpu.surface.commands.compare import GPU_FACTS
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import context_of, page_words, sort_order

COLUMNS = (
    "name", "architecture", "memory_bytes", "memory_bandwidth", "peaks.bf16", "peaks.fp16", "peaks.fp8", "tdp_watts",
    "launch_date",
)  # fmt: skip
# GPUs whose rooflines are drawn if none is chosen.
ROOFLINE_GPUS = ("b200", "h200-sxm", "h100-sxm", "mi300x", "a100-sxm-80gb", "l40s", "rtx-4090", "t4")
INTENSITIES = tuple(2.0 ** (step / 2) for step in range(-2, 25))  # FLOP per byte, in steps of half an octave
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")


@view(
    "gpus",
    GpusRequest,
    extra={"columns": Field(Names()), "compare": Field(Names("gpus")), "dtype": Field(Plain())},
    defaults={"sort": "-fp16", "dtype": "bf16"},
)
def gpus(page: Page) -> PageContent:
    """Return the GPU page: the table of specifications, the selected GPUs side by side, and their rooflines."""
    state, language = page.state, page.language
    request = page.request(GpusRequest)
    command = "gpus", request | ({"columns": state["columns"]} if state["columns"] else {})
    context: dict[str, Any] = {"form": _form(page), **page_words(language), "rows": None, "error": None, "compared": None}
    try:
        page.check()
        answer = verbs.gpus(with_sort_field(page.request(GpusRequest, "as_of"), Gpu, language), context_of(page))  # type: ignore[arg-type]
        comparison = compare_hardware(state["compare"], catalog()) if state["compare"] else None
        cells = flat_rows(answer.gpus)
        chosen = ",".join(("name", *state["columns"])) if state["columns"] else None
        names = chosen_columns(chosen, cells, COLUMNS, language)
        lines = [one.gpu for one in comparison.compared] if comparison else _roofline_gpus(answer.gpus)
        charts = {"roofline": roofline(lines[:MAX_LINES], state["dtype"], language)} if lines else {}
    except WhichGpuError as error:
        return error_content("gpus.html", context, error, page, command=command)
    sort = state["sort"]
    context |= {
        "rows": [
            (gpu.id, gpu.id in state["compare"], [cell_text(name, row[name], language) for name in names])
            for gpu, row in zip(answer.gpus, cells, strict=True)
        ],
        "heads": [(name, heading(name, language), sort_order(sort, name, name.removeprefix("peaks."))) for name in names],
        "checked": min(gpu.checked for gpu in answer.gpus),
        "documents": len(answer.sources),
        "kept": parse_qsl(page.url(compare=()).partition("?")[2]),
        "compared": _side_by_side(comparison, language) if comparison else None,
    }
    return PageContent("gpus.html", context, command, charts)


def _side_by_side(comparison: Comparison, language: Language) -> dict[str, Any]:
    cells = flat_rows([one.gpu for one in comparison.compared])
    facts = [name for name in GPU_FACTS if any(row.get(name) not in (None, "") for row in cells)]
    return {
        "names": [one.name for one in comparison.compared],
        "facts": [(heading(name, language), [cell_text(name, row[name], language) for row in cells]) for name in facts],
    }


def _roofline_gpus(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs whose rooflines are drawn: the well-known ones among those in the table, or else the first ones."""
    common = [gpu for id in ROOFLINE_GPUS for gpu in gpus if gpu.id == id]
    return common or list(gpus[:MAX_LINES])


def roofline(gpus: Sequence[Gpu], dtype: str, language: Language) -> dict[str, Any]:
    """Return a chart of attainable TFLOP/s against FLOP per byte: memory-bound up to the ridge, compute-bound beyond."""
    text = language.text
    if dtype not in PEAKS:
        raise unknown_word("precision", dtype, PEAKS)
    peaks = [(gpu, gpu.peaks.get(dtype) or gpu.peaks.get("fp16") or gpu.peaks.get("fp32")) for gpu in gpus]
    lines = [(gpu, peak) for gpu, peak in peaks if peak]
    points = [
        {"gpu": gpu.name, "intensity": round(work, 4), "rate": float(f"{min(peak, gpu.memory_bandwidth * work) / 1e12:.4g}")}
        for gpu, peak in lines
        for work in sorted({*INTENSITIES, peak / gpu.memory_bandwidth})
    ]
    names = [gpu.name for gpu, _ in lines]
    axis = {"format": THREE_DIGITS}
    x = quantity("intensity", text("web.axis-intensity"), log=True, axis=axis | {"values": decades(0.1, 1e4)})
    y = quantity("rate", text("web.axis-rate", dtype=dtype), log=True, axis=axis | {"values": decades(0.01, 1e5)})
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


def _words(field: str) -> list[str]:
    """Return the distinct values that a field of GPUs has in the catalog, as choices of a filter."""
    return sorted({getattr(gpu, field) for gpu in catalog().gpus})


def _form(page: Page) -> dict[str, Any]:
    form, state = Form(page), page.state
    current = ("name", *state["columns"]) if state["columns"] else COLUMNS
    return {
        "name": form.field("name"),
        "filters": [
            form.field("vendor", choices=_words("vendor")),
            form.field("arch"),
            form.field("form_factor", choices=_words("form_factor")),
            *form.fields("min_memory", "min_bandwidth", "compute_capability", "as_of"),
        ],
        "supports": form.field("supports"),
        "dtype": form.field("dtype", choices=DTYPES),
        "columns": [
            (name, heading(name, page.language), name in current, name in COLUMNS) for name in columns_of(Gpu) if name != "name"
        ],
    }
