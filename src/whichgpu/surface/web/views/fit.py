"""The fit page: memory by part on each GPU, with sliders that redraw the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from whichgpu.surface.web.views.shared import SETTINGS, is_set, lookup_cache, page_words
from whichgpu.workload.tasks import RUN_TASKS

# GPUs displayed if none is named: common ones to rent and own, by memory.
DEFAULT_GPUS = (
    "rtx-4060-ti-16gb", "l4", "rtx-4090", "rtx-5090", "a100-sxm-40gb", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200",
    "mi300x",
)  # fmt: skip
MAX_BARS = 16  # Largest number of GPUs in the chart of a page.
TRAINING = "train finetune"
SLIDER_TASKS = {"seq_out": "serve batch"}  # Tasks that use a slider, if not all.
# Changes that a table row proposes, and their fields on this page.
REMEDIES = {
    "shorter-context": ("seq_in",), "lora": ("lora_rank",), "qlora": ("qlora", "lora_rank"), "more-gpus": ("gpus",),
    "quantise": ("precision",), "kv-cache": ("kv_precision",), "next-gpu": ("gpu",),
}  # fmt: skip
MAX_PROPOSED_GPUS = 8  # Largest number of GPUs that a row proposes: those of one machine.
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
        "remedies": {row.gpu: _remedies(row, page) for row in answer.gpus},
        "reads": any(row.largest_context is not None for row in answer.gpus),
        "request": answer.request,
        "settings": SETTINGS,
        "is_set": is_set,
    }


def _remedies(row: FitRow, page: Page) -> list[tuple[Message, str]]:
    """Return the changes with which a workload fits the GPU, several GPUs among them, each with the URL of the page with it."""
    single = _single_remedies(row, page)
    return [*(_adapters(row, page) if single.keys() <= {"next-gpu", "more-gpus"} else ()), *single.values()]


def _adapters(row: FitRow, page: Page) -> list[tuple[Message, str]]:
    """Return the first fine-tuning of adapters (LoRA, QLoRA) that fits the GPU, together with the changes suggested before it."""
    changes: dict[str, Any] = {}
    reasons: list[Message] = []
    for one in row.remedies:
        changes |= one.change
        reasons.append(one.what)
        if one.id in ("lora", "qlora") and one.together != "no" and changes.keys() <= page.view.fields.keys():
            what = page.language.listed(page.language.render(reason) for reason in reasons)
            values = {name: value if isinstance(value, bool) else str(value) for name, value in changes.items()}
            return [(msg("hint.remedies", what=what), page.url(gpu=(row.gpu,), **values))]
    return []


def _single_remedies(row: FitRow, page: Page) -> dict[str, tuple[Message, str]]:
    """Return the changes that suffice by themselves, by id; a tight workload gets those with which it surely fits."""
    verdicts = ("fits",) if row.fits == "tight" else ("fits", "tight")
    working = {one.id: one for one in reversed(row.remedies) if one.fits in verdicts and one.id in REMEDIES}
    if "more-gpus" in working and working["more-gpus"].change["gpus"] > MAX_PROPOSED_GPUS:
        del working["more-gpus"]
    return {
        id: (working[id].what, page.url(**{"gpu": (row.gpu,)} | {name: _stated(name, working[id].change) for name in fields}))
        for id, fields in REMEDIES.items()
        if id in working
    }


def _stated(name: str, change: Mapping[str, Any]) -> Any:
    """Return a changed field's value as the page's state has it."""
    value = change.get(name)
    return (value,) if name == "gpu" else value if isinstance(value, bool) or value is None else str(value)


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
