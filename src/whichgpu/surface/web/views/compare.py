"""The compare page: one workload on several GPUs, with bars for speed, cost and memory, and a reason where it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.api.request.load import CompareRequest
from whichgpu.api.workloads.compare import ComparedSpeed, Comparison, compare_workload
from whichgpu.api.workloads.compare_costs import ComparedCost, compared_costs
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory, significant
from whichgpu.catalog.currency import DOLLAR
from whichgpu.surface.commands.compare import compared_workload
from whichgpu.surface.commands.offers import money_text
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.cards import range_text
from whichgpu.surface.web.panels.subjects import FULL_BAR
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import adapter_links, context_of, near_content, page_words
from whichgpu.workload.tasks import TASKS

DEFAULT_NAMES = ("H100 SXM", "A100 SXM 80GB", "L40S", "RTX 4090", "L4", "T4")
MAX_COMPARED = 24  # Largest number of GPUs compared on a page; estimates of each take milliseconds.
ADAPTERS = ("lora", "lora_rank", "qlora")  # Fields that only a fine-tune has; values left from one are not part of a request.
MORE_FIELDS = (
    "qlora",
    "lora_rank",
    "batch",
    "seq_in",
    "seq_out",
    "gpus",
    "image",
    "precision",
    "engine",
)  # Fields of the workload in the form below the model.


@view("compare", CompareRequest, defaults={"name": DEFAULT_NAMES, "task": "decode", "model": "llama-3.1-8b"})
def compare(page: Page) -> PageContent:
    """Return the compare page: the form, and the workload's speed, cost and memory on each GPU."""
    request = page.request(CompareRequest, *(ADAPTERS if page.state["task"] != "finetune" else ()))
    command = "compare", request
    context: dict[str, Any] = {**page_words(page.language), "form": _form(page), "rows": None, "error": None}
    try:
        page.check()
        answer = compare_workload(request, context_of(page), MAX_COMPARED)  # type: ignore[arg-type]
        costs = compared_costs(answer, context_of(page))
    except WhichGpuError as error:
        return error_content("compare.html", context, error, page, command=command)
    requests = [one.estimate.request for one in answer.speed or () if one.estimate]
    context |= {
        "rows": _rows(answer, costs, page.language), "unit": _unit(answer), "sources": answer.sources,
        "workload": compared_workload(answer), "sentence": _best(answer, costs),
        "adapters": adapter_links(requests[0], page) if requests else [],
    }  # fmt: skip
    return PageContent("compare.html", context, command)


def _best(answer: Comparison, costs: Sequence[ComparedCost]) -> Message:
    """Return the sentence with the answer: the fastest and the cheapest of those that hold the workload, or that none does."""
    speeds = {one.name: speed for one in answer.speed or () if (speed := _throughput(one)) is not None}
    prices = {one.name: price for one, cost in zip(answer.compared, costs, strict=True) if (price := cost.cost) is not None}
    if not speeds:
        return msg("web.compare-none")
    name = max(speeds, key=lambda one: speeds[one].value)
    fast = {"name": name, "speed": significant(speeds[name].value), "unit": speeds[name].unit}
    if name not in prices:
        return msg("web.compare-fastest", **fast)
    cheap = min(speeds.keys() & prices.keys(), key=lambda one: prices[one].value)
    what = {"cost": significant(prices[cheap].value), "currency": DOLLAR, "per": fast["unit"].partition("/")[0]}
    if cheap == name:
        return msg("web.compare-both", **fast, **what)
    ratios = speeds[name].value / speeds[cheap].value, prices[name].value / prices[cheap].value
    return msg("web.compare-best", **fast, **what, cheap=cheap, times=significant(ratios[0]), dearer=significant(ratios[1]))


def _unit(answer: Comparison) -> str:
    """Return the unit of throughput of a comparison; empty if there is no estimate."""
    figures = (one.estimate.throughput for one in answer.speed or () if one.estimate)
    return next((figure.unit for figure in figures if figure), "")


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
        "name": compared.name, "gpu": compared.gpu.id, "reason": reason, "fits": estimate.fits if estimate else "no",
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
        "hidden": form.hidden("name", "task", "model", *MORE_FIELDS),
        "name": form.field("name"),
        "task": form.field("task", "select", TASKS),
        "model": form.field("model", completions="models"),
        "more": form.fields(*MORE_FIELDS),
    }
