"""The fit page: memory by part on each GPU, with sliders that redraw the chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Plain
from whichgpu.api.request.load import FitRequest
from whichgpu.api.request.read import workload
from whichgpu.api.workloads import fit as verbs
from whichgpu.api.workloads.fit import FitAnswer, FitRow, GpuNeed
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.kinds import Flag
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory, format_memory_gb
from whichgpu.surface.charts.memory import UNITS, MemoryBar, memory_picture
from whichgpu.surface.commands.fit import sentence
from whichgpu.surface.commands.render.workload import part_name
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.launch_panel import launch_content
from whichgpu.surface.web.views.shared import SETTINGS, adapter_links, is_set, lookup_cache, page_words
from whichgpu.workload.tasks import RUN_TASKS

# GPUs displayed if none is named: common ones to rent and own, by memory.
DEFAULT_GPUS = (
    "rtx-4060-ti-16gb", "l4", "rtx-4090", "rtx-5090", "a100-sxm-40gb", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200",
    "mi300x",
)  # fmt: skip
MAX_BARS = 16  # Largest number of GPUs in the chart of a page.
TRAINING = "train finetune"
SLIDER_TASKS = {"seq_out": "serve batch"}  # Tasks that use a slider, if not all.
LAYOUT = "parallel"  # Field of a remedy that pages lack: the number of GPUs alone has the same layout.
MARKS = {"fits": "✓", "tight": "≈", "no": "✕"}


@view(
    "fit",
    FitRequest,
    extra={"quick": Field(Flag()), "unit": Field(Plain())},
    defaults={"model": "llama-3.1-8b", "task": "serve", "unit": "GiB"},
)
def fit(page: Page) -> PageContent:
    """Return the fit page: memory bars by GPU, whether each fits, and largest sizes; the field `quick` leaves only the bars."""
    names = page.state["gpu"] or DEFAULT_GPUS
    request = page.request(FitRequest) | {"gpu": names}
    command = "fit", request
    unit = page.state["unit"] if page.state["unit"] in UNITS else page.view.defaults["unit"]
    context: dict[str, Any] = {
        "form": _form(page),
        **page_words(page.language),
        "answer": None,
        "error": None,
        "unit": unit,
        "units": tuple(UNITS),
    }
    try:
        page.check()
        question = workload(request, str, without=("gpu",))
        needs = verbs.needs(question, names, lookup_cache())
        charts = {"memory": _chart(needs.gpus[:MAX_BARS], unit, page.language)}
        context["request"] = needs.request
        if page.state["quick"]:
            return PageContent("fit_bars.html", context, command, charts)
        answer = verbs.fit_workload(question, names, catalog=catalog())
    except WhichGpuError as error:
        return error_content("fit.html", context, error, page, command=command)
    context |= _content(answer, page, unit) | launch_content(answer, request, page)
    return PageContent("fit.html", context, command, charts)


def _chart(needs: Sequence[GpuNeed], unit: str, language: Language) -> dict[str, Any]:
    bars = [MemoryBar(one.gpu_name, one.fits, one.needed, one.usable, one.parts) for one in needs]
    return memory_picture(bars, language, lambda bar: f"{MARKS[bar.fits]} {bar.share}", 52, unit)


def _content(answer: FitAnswer, page: Page, unit: str) -> dict[str, Any]:
    total = answer.needed.value
    format_size = format_memory_gb if unit == "GB" else format_memory
    parts = [
        {
            "name": part_name(name, page.language),
            "size": format_size(int(figure.value)),
            "share": f"{figure.value / total * 100:.0f}%",
            "basis": figure.basis,
        }
        for name, figure in answer.memory_parts.items()
    ]
    return {
        "answer": answer,
        "sentence": sentence(answer),
        "parts": parts,
        "rows": [
            (
                row,
                format_size(row.needed),
                format_size(row.usable),
                ("−" if row.headroom < 0 else "") + format_size(abs(row.headroom)),
            )
            for row in answer.gpus
        ],
        "adapters": adapter_links(answer.request, page),
        "remedies": {row.gpu: _remedies(row, page) for row in answer.gpus},
        "reads": any(row.largest_context is not None for row in answer.gpus),
        "request": answer.request,
        "settings": SETTINGS,
        "is_set": is_set,
    }


def _remedies(row: FitRow, page: Page) -> list[tuple[Message, str]]:
    """Return the smallest changes with which a workload fits, each with the URL of the page with it; empty if it fits."""
    links = []
    for cure in row.cures:
        chosen = [row.remedies[place] for place in cure]
        changes = {name: value for one in chosen for name, value in one.change.items() if name != LAYOUT}
        what = chosen[0].what if len(chosen) == 1 else msg("hint.remedies", what=tuple(one.what for one in chosen))
        if changes.keys() <= page.view.fields.keys():
            values = {"gpu": row.gpu} | changes
            links.append((what, page.url(**{name: _stated(name, value) for name, value in values.items()})))
    return links or ([(msg("fit.no-cure"), "")] if row.fits == "no" else [])


def _stated(name: str, value: Any) -> Any:
    """Return a changed field's value as the page's state has it."""
    return (value,) if name == "gpu" else value if isinstance(value, bool) else str(value)


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    sliders = (("batch", 1, 10), ("seq_in", 16, 13), ("seq_out", 16, 11))  # Field, lowest value, and octaves above it.
    return {
        "model": form.field("model", completions="models"),
        "task": form.field("task", choices=RUN_TASKS),
        "sliders": [
            (form.field(name, "number", only=SLIDER_TASKS.get(name, "")), low, octaves) for name, low, octaves in sliders
        ],
        "precision": form.field("precision", "radios", ("fp32", "bf16", "fp8", "int8", "int4")),
        "more": [
            form.field("kv_precision", choices=("bf16", "fp8", "int8", "int4")),
            form.field("engine"),
            form.field("gpus", "number"),
            form.field("image", "number", only=TRAINING),
            form.field("optimizer", only=TRAINING),
            form.field("checkpointing", only=TRAINING),
        ],
        "adapters": [form.field("qlora", only="finetune"), form.field("lora_rank", "number", only="finetune")],
        "gpu": form.field("gpu"),
    }
