"""Fit: what takes the memory on each GPU, with sliders that redraw at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whichgpu.api.request.read import workload
from whichgpu.api.workloads.fit import FitAnswer, GpuNeed
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.units import GIB, format_memory
from whichgpu.catalog.engines.registry import engine_ids
from whichgpu.surface.charts.vega import GREYS
from whichgpu.surface.commands.fit import sentence
from whichgpu.surface.commands.render.workload import part_name
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.views.chart_parts import COLOURS, INK, picture, quantity, tips
from whichgpu.surface.web.views.forms import Form, given, problem_of
from whichgpu.surface.web.views.shared_catalog import lookups
from whichgpu.surface.web.views.words import words
from whichgpu.workload.precisions import PRECISIONS
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.tasks import RUN_TASKS
from whichgpu.workload.workload import CHECKPOINTING, OPTIMIZERS

# Shown where none is named: what people rent and own, small to large.
USUAL_GPUS = (
    "rtx-4060-ti-16gb", "l4", "rtx-4090", "rtx-5090", "a100-sxm-40gb", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200",
    "mi300x",
)  # fmt: skip
MOST_BARS = 16
FIELDS = (
    "precision", "kv_precision", "batch", "seq_in", "seq_out", "engine", "image", "optimizer", "checkpointing", "lora_rank",
    "qlora", "gpus",
)  # fmt: skip
TRAINING = "train finetune"
VIVID = {
    "weights": 0, "kv_cache": 4, "activations": 2, "optimizer": 5, "gradients": 6, "temporary": 1, "workspace": 3,
    "cuda_graphs": 8, "master_weights": 9, "cast_weights": 7, "adapters": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked; `quick` leaves out all but the bars."""

    model: str = "llama-3.1-8b"
    task: str = "serve"
    precision: str | None = None
    batch: int | None = None
    seq_in: int | None = None
    seq_out: int | None = None
    kv_precision: str | None = None
    engine: str | None = None
    image: int | None = None
    optimizer: str | None = None
    checkpointing: str | None = None
    lora_rank: int | None = None
    qlora: bool = False
    gpus: int | None = None
    gpu: tuple[str, ...] = ()
    quick: bool = False


@view("fit", State)
def fit(page: Page[State]) -> Shown:
    """Bars by GPU, verdicts, largest sizes."""
    from whichgpu.api.workloads import fit as verbs

    state = page.state
    texts = given(state, FIELDS)
    names = state.gpu or USUAL_GPUS
    request = {"task": state.task, **texts, "gpu": names, "model": state.model}
    command = "fit", request
    context: dict[str, Any] = {
        "form": _form(page),
        **words(page.language),
        "answer": None,
        "error": None,
        "needs": (),
        "bars": "",
    }
    try:
        asked = workload(request, str, without=("gpu",))
        needs = verbs.needs(asked, names, lookups())
        charts = {"memory": memory_picture(needs.gpus[:MOST_BARS], page.language)}
        context |= {"needs": _cells(needs.gpus, page.language), "request": needs.request}
        if state.quick:
            return Shown("fit_bars.html", context, command, charts)
        answer = _whole(asked, names)
    except WhichGpuError as error:
        told, status = problem_of(error, page.language)
        return Shown("fit.html", context | {"error": told}, command, status=status)
    return Shown("fit.html", context | _told(answer, page.language), command, charts)


def _whole(asked: ParsedWorkload, names: tuple[str, ...]) -> FitAnswer:
    from whichgpu.api.workloads.fit import fit_workload

    return fit_workload(asked, names, catalog=lookups().catalog)


def _told(answer: FitAnswer, language: Language) -> dict[str, Any]:
    total = answer.needed.value
    parts = [
        {
            "name": part_name(name, language),
            "size": format_memory(int(figure.value)),
            "share": f"{figure.value / total * 100:.0f}%",
            "basis": figure.basis,
        }
        for name, figure in answer.memory_parts.items()
    ]
    return {
        "answer": answer,
        "sentence": sentence(answer),
        "parts": parts,
        "rows": [(row, format_memory(row.needed), format_memory(row.usable), _room(row.headroom)) for row in answer.gpus],
        "reads": any(row.largest_context is not None for row in answer.gpus),
        "request": answer.request,
    }


def _room(headroom: int) -> str:
    return ("−" if headroom < 0 else "") + format_memory(abs(headroom))


def _cells(found: tuple[GpuNeed, ...], language: Language) -> list[dict[str, Any]]:
    return [
        {
            "name": one.gpu_name,
            "fits": one.fits,
            "word": language.text(f"verdict.{one.fits}"),
            "needed": format_memory(int(one.needed.value)),
            "usable": format_memory(one.usable),
        }
        for one in found
    ]


def memory_picture(found: tuple[GpuNeed, ...], language: Language) -> dict[str, Any]:
    """A stacked bar a GPU, a tick where its usable memory ends, and the verdict in words."""
    text = language.text
    names = [one.gpu_name for one in found]
    kinds = list(dict.fromkeys(name for one in found for name in one.parts))
    labels = {name: part_name(name, language) for name in kinds}
    bars = [
        {"gpu": one.gpu_name, "part": labels[name], "gib": round(figure.value / GIB, 3), "order": kinds.index(name)}
        for one in found
        for name, figure in one.parts.items()
    ]
    marks = {"fits": "✓", "tight": "≈", "no": "✕"}
    limits = [
        {
            "gpu": one.gpu_name,
            "gib": round(one.usable / GIB, 3),
            "end": round(max(one.usable, one.needed.value) / GIB, 3),
            "text": f"{marks[one.fits]} {text(f'verdict.{one.fits}')}",
            "fits": one.fits,
        }
        for one in found
    ]
    y = {
        "field": "gpu",
        "type": "nominal",
        "sort": names,
        "title": None,
        "axis": {"domain": False, "ticks": False, "labelColor": INK},
    }
    x = quantity("gib", text("chart.axis"), stack="zero", axis={"tickCount": 6})
    grey = iter(f"var(--g{place}, {colour})" for place, colour in enumerate(GREYS, start=1))
    colours = [
        next(grey) if name in ("context", "slack") else COLOURS[VIVID.get(name, place) % len(COLOURS)]
        for place, name in enumerate(kinds)
    ]
    bar = {
        "data": {"name": "bars", "values": bars},
        "mark": {"type": "bar", "stroke": "var(--card, #fff)", "strokeWidth": 1, "cornerRadius": 1},
        "encoding": {
            "y": y, "x": x, "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "part", "type": "nominal", "title": None, "sort": list(labels.values()),
                "scale": {"domain": list(labels.values()), "range": colours}, "legend": {"columns": 4, "symbolType": "square"},
            },
            "tooltip": tips(("gpu", text("web.tip-gpu")), ("part", text("column.part")), ("gib", "GiB")),
        },
    }  # fmt: skip
    tick = {
        "data": {"name": "limits", "values": limits},
        "mark": {"type": "tick", "thickness": 3, "size": 24, "color": INK},
        "encoding": {"y": y, "x": quantity("gib", x["title"])},
    }
    words = {
        "data": {"name": "limits"},
        "mark": {"type": "text", "align": "left", "dx": 8, "fontSize": 12},
        "encoding": {"y": y, "x": quantity("end", x["title"]), "text": {"field": "text"}},
    }
    fitting = [one.gpu_name for one in found if one.fits == "fits"]
    described = text("web.described-memory", n=len(names), fitting=tuple(fitting) or ("–",))
    return picture(described, 32 * len(names), layer=[bar, tick, words], padding={"left": 4, "top": 4, "bottom": 4, "right": 52})


def _form(page: Page[State]) -> dict[str, Any]:
    form = Form(page)
    return {
        "model": form.field("model", known="models"),
        "task": form.radios("task", RUN_TASKS, "web.task-"),
        "sliders": [
            (form.field("batch", "number"), 1, 10),
            (form.field("seq_in", "number"), 16, 13),
            (form.field("seq_out", "number"), 16, 11),
        ],
        "precision": form.radios("precision", ("fp32", "bf16", "fp8", "int8", "int4")),
        "more": [
            form.select("kv_precision", ("bf16", "fp8", "int8", "int4")),
            form.select("engine", engine_ids()),
            form.field("gpus", "number"),
            form.field("image", "number", only=TRAINING),
            form.select("optimizer", OPTIMIZERS, only=TRAINING),
            form.select("checkpointing", CHECKPOINTING, only=TRAINING),
            form.field("lora_rank", "number", only="finetune"),
            form.field("qlora", "switch", only="finetune"),
        ],
        "gpu": form.field("gpu", known="gpus"),
        "precisions": PRECISIONS,
    }
