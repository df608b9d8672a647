"""The compare page: one workload on several GPUs, with bars for speed, cost and memory, and a reason where it does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whichgpu.api.request.load import CompareRequest
from whichgpu.api.workloads.compare import ComparedSpeed, Comparison, compare_workload
from whichgpu.api.workloads.compare_costs import ComparedCost, compared_costs
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language
from whichgpu.base.units import format_memory, significant
from whichgpu.surface.commands.offers import money_text
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.cards import range_text
from whichgpu.surface.web.panels.subjects import FULL_BAR
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import SETTINGS, adapter_links, context_of, is_set, near_content, page_words
from whichgpu.workload.tasks import TASKS

DEFAULT_NAMES = ("H100 SXM", "A100 SXM 80GB", "L40S", "RTX 4090", "L4", "T4")
MAX_COMPARED = 24  # Largest number of GPUs compared on a page; estimates of each take milliseconds.
MORE_FIELDS = ("batch", "seq_in", "seq_out", "gpus", "image")  # Fields of the workload in the form below the model.
ADAPTERS = ("qlora", "lora_rank")  # Fields of a fine-tuning.


@view("compare", CompareRequest, defaults={"name": DEFAULT_NAMES, "task": "decode", "model": "llama-3.1-8b"})
def compare(page: Page) -> PageContent:
    """Return the compare page: the form, and the workload's speed, cost and memory on each GPU."""
    left_over = () if page.state["task"] == "finetune" else ("lora", *ADAPTERS)  # Values left from a fine-tuning.
    request = page.request(CompareRequest, *left_over)
    command = "compare", request
    context: dict[str, Any] = {**page_words(page.language), "form": _form(page), "rows": None, "error": None}
    try:
        page.check()
        answer = compare_workload(request, context_of(page), MAX_COMPARED)  # type: ignore[arg-type]
        costs = compared_costs(answer, context_of(page))
    except WhichGpuError as error:
        return error_content("compare.html", context, error, page, command=command)
    rows = _rows(answer, costs, page.language)
    context |= {
        "rows": rows,
        "unit": _unit(answer),
        "sources": answer.sources,
        "sentence_of": _sentence(rows, page.language),
        "common": _common_settings(answer),
        "adapters": next((adapter_links(one.estimate.request, page) for one in answer.speed or () if one.estimate), []),
    }
    return PageContent("compare.html", context, command)


def _unit(answer: Comparison) -> str:
    """Return the unit of throughput of a comparison; empty if there is no estimate."""
    figures = (one.estimate.throughput for one in answer.speed or () if one.estimate)
    return next((figure.unit for figure in figures if figure), "")


def _common_settings(answer: Comparison) -> dict[str, Any]:
    """Return the settings that the estimates of all GPUs share, by name of the field."""
    requests = [one.estimate.request for one in answer.speed or () if one.estimate]
    shared = {name: requests[0].get(name) for name in SETTINGS} if requests else {}
    if shared.get("accumulation") == 1:
        del shared["accumulation"]
    return {name: value for name, value in shared.items() if is_set(value) and all(one.get(name) == value for one in requests)}


def _own_settings(answer: Comparison, place: int) -> str:
    """Return the settings of one GPU's estimate that other GPUs do not have, as text."""
    estimate, common = (answer.speed or ())[place].estimate, _common_settings(answer)
    request = estimate.request if estimate else {}
    return ", ".join(str(request[name]) for name in ("precision", "engine") if request.get(name) and name not in common)


def _sentence(rows: Sequence[Mapping[str, Any]], language: Language) -> str:
    """Return the answer as one sentence: the fastest GPU and the one whose work costs least; empty if none can do it."""
    able = [row for row in rows if row["speed_raw"]]
    if not able:
        return language.text("web.compare-none")
    fastest = max(able, key=lambda row: row["speed_raw"])
    cheapest = min((row for row in able if row["cost_raw"]), key=lambda row: row["cost_raw"], default=None)
    if cheapest is None or cheapest is fastest:
        return language.text("web.compare-best" if cheapest else "web.compare-fastest", fastest=fastest["name"])
    return language.text(
        "web.compare-two", fastest=fastest["name"], cheapest=cheapest["name"],
        faster=significant(fastest["speed_raw"] / cheapest["speed_raw"]),
        dearer=significant(fastest["cost_raw"] / cheapest["cost_raw"]) if fastest["cost_raw"] else "–",
    )  # fmt: skip


def _rows(answer: Comparison, costs: Sequence[ComparedCost], language: Language) -> list[dict[str, Any]]:
    speeds = [_throughput(one) for one in answer.speed or ()]
    fastest = max((figure.high for figure in speeds if figure), default=1.0)
    dearest = max((one.cost.high for one, speed in zip(costs, speeds, strict=True) if one.cost and speed), default=1.0)
    rows = [_row(answer, place, speed, costs[place], (fastest, dearest), language) for place, speed in enumerate(speeds)]
    return sorted(rows, key=lambda row: (row["reason"] != "", -row["speed_raw"]))


def _throughput(one: ComparedSpeed) -> Figure | None:
    """Return the throughput of a workload on a GPU; None if it does not fit there or has no estimate."""
    return one.estimate.throughput if one.estimate and one.estimate.fits != "no" else None


def _row(
    answer: Comparison, place: int, speed: Figure | None, cost: ComparedCost, longest: tuple[float, float], language: Language
) -> dict[str, Any]:
    compared, one = answer.compared[place], (answer.speed or ())[place]
    estimate = one.estimate
    needed, usable = (int(estimate.memory_device.value), estimate.usable or 0) if estimate else (0, 0)
    reason = language.render(one.problem) if one.problem else ""
    if estimate and estimate.fits == "no":
        reason = language.text("web.needs-of", needed=format_memory(needed), usable=format_memory(usable))
    price = cost.cost if speed else None
    return {
        "name": compared.name, "gpu": compared.gpu.id, "reason": reason,
        "how": _own_settings(answer, place), "fits": estimate.fits if estimate else "no",
        "speed": significant(speed.value) if speed else "", "speed_raw": speed.value if speed else 0.0,
        "speed_range": _range(speed, language), "speed_bar": _bar(speed, longest[0]),
        "cost": significant(price.value) if price else "", "cost_raw": price.value if price else 0.0,
        "currency": cost.offer.price_per_gpu_hour.currency if cost.offer else "",
        "cost_range": _range(price, language), "cost_bar": _bar(price, longest[1]),
        "share": min(round(100 * needed / usable), 100) if usable else None, "memory": format_memory(needed) if needed else "",
        "price": money_text(cost.offer.price_per_gpu_hour) if cost.offer else "",
        "price_raw": float(cost.offer.price_per_gpu_hour.amount) if cost.offer else 0.0,
        "seen": cost.offer.observed_at if cost.offer else "", "provider": cost.offer.provider if cost.offer else "",
        "term": language.text(f"term.{cost.offer.term}") if cost.offer else "", "stale": bool(cost.offer and cost.offer.stale),
        "near": near_content(estimate.evidence, estimate.evidence_error, language) if estimate else None,
    }  # fmt: skip


def _range(figure: Figure | None, language: Language) -> str:
    return range_text(figure, significant, language, always=True) if figure else ""


def _bar(figure: Figure | None, longest: float) -> tuple[int, ...]:
    """Return the lengths of a figure's bar and of the ends of its range, of FULL_BAR."""
    return tuple(round(FULL_BAR * value / longest) for value in (figure.value, figure.low, figure.high)) if figure else ()


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    return {
        "name": form.field("name"),
        "task": form.field("task", "select", TASKS),
        "model": form.field("model", completions="models"),
        "adapters": [form.field(name) for name in ADAPTERS],
        "hidden": form.hidden("name", "task", "model", "precision", "engine", "lora", *ADAPTERS, *MORE_FIELDS),
        "more": [*(form.field(name) for name in MORE_FIELDS), form.field("precision"), form.field("engine")],
    }
