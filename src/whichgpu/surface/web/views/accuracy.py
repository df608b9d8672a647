"""Accuracy: predicted against measured, by GPU and task, the worst cases in sight."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from whichgpu.api.facts.accuracy import KEYS, AccuracyAnswer
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds
from whichgpu.estimate.time.accuracy_pairs import PAIR_COLUMNS, AccuracyPair, accuracy_pairs
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.views.chart_parts import INK, SECONDS, SOFT, coloured, decades, picture, quantity, shaped, tips
from whichgpu.surface.web.views.forms import Form, problem_of
from whichgpu.surface.web.views.shared_catalog import lookups
from whichgpu.surface.web.views.words import words

MOST_POINTS = 1500  # of a chart; all are in the table's twins
BOUND = 1.25  # the band drawn around equality


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked."""

    gpu: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    by: str = "gpu"
    worst: int = 15


@view("accuracy", State)
def accuracy(page: Page[State]) -> Shown:
    """The cloud of points, errors by group, and the farthest off."""
    from whichgpu.api.facts import accuracy as verbs

    state, language = page.state, page.language
    context: dict[str, Any] = {"form": _form(page), **words(page.language), "answer": None, "error": None}
    try:
        worst = max(1, min(state.worst, 500))
        answer = verbs.accuracy(state.gpu, state.task, state.source, state.by, worst, lookups().catalog)
    except WhichGpuError as error:
        told, status = problem_of(error, language)
        return Shown("accuracy.html", context | {"error": told}, document={"ok": False, "error": told}, status=status)
    names = {gpu.id: gpu.name for gpu in lookups().catalog.gpus}
    shown = {
        "answer": answer,
        "scores": [(names.get(one.group, _said(answer.by, one.group, language)), one) for one in answer.scores],
        "worst": [_case(pair, names, language) for pair in answer.worst],
    }
    rows = [[getattr(pair, name) for name in PAIR_COLUMNS] for pair in answer.pairs]
    charts = {"pairs": pairs_picture(answer, names, language), "errors": errors_picture(answer, names, language)}
    document = {name: getattr(answer, name) for name in ("by", "total", "scores", "worst", "fitted", "sources")}
    return Shown("accuracy.html", context | shown, None, charts, document | {"pairs": answer.pairs}, (PAIR_COLUMNS, rows))


def _said(by: str, group: str, language: Language) -> str:
    id = f"web.{by}-{group}"
    return language.text(f"web.{by}-{group}") if id in language else group


def _case(pair: AccuracyPair, names: dict[str, str], language: Language) -> dict[str, Any]:
    sizes = [
        language.text(f"web.size-{said}", n=value)
        for name, said in (("batch", "batch"), ("seq_in", "seq-in"), ("seq_out", "seq-out"), ("image", "image"))
        if (value := getattr(pair, name))
    ]
    return {
        "gpu": names.get(pair.gpu, pair.gpu), "work": language.listed((language.text(f"web.task-{pair.task}"), pair.model)),
        "how": language.listed((pair.engine, pair.precision, *sizes)),
        "source": pair.source, "measured": format_seconds(pair.measured),
        "predicted": format_seconds(pair.predicted), "range": f"{format_seconds(pair.low)} – {format_seconds(pair.high)}",
        "error": f"{pair.error:+.0%}", "inside": pair.inside,
    }  # fmt: skip


def pairs_picture(answer: AccuracyAnswer, names: dict[str, str], language: Language) -> dict[str, Any]:
    """Predicted over measured, both on a log scale; on the line they are equal."""
    text = language.text
    step = max(1, -(-len(answer.pairs) // MOST_POINTS))
    tasks = [
        task for task in ("train", "forward", "prefill", "decode", "generate") if any(pair.task == task for pair in answer.pairs)
    ]
    words = {task: text(f"web.task-{task}") for task in tasks}
    points = [
        {"measured": pair.measured, "predicted": pair.predicted, "task": words[pair.task], "gpu": names.get(pair.gpu, pair.gpu),
         "model": pair.model, "error": f"{pair.error:+.0%}"}
        for pair in answer.pairs[::step]
    ]  # fmt: skip
    low = min(min(pair.measured, pair.predicted) for pair in answer.pairs)
    high = max(max(pair.measured, pair.predicted) for pair in answer.pairs)
    ends = [low / 1.2, high * 1.2]
    axis = {"labelExpr": SECONDS, "values": decades(*ends)}
    x = quantity("measured", text("web.axis-measured"), axis=axis, scale={"type": "log", "domain": ends})
    y = quantity("predicted", text("web.axis-predicted"), axis=axis, scale={"type": "log", "domain": ends})
    sides = [{"measured": end * side, "predicted": end, "side": side} for side in (1, BOUND, 1 / BOUND) for end in ends]
    equal = {
        "data": {"values": sides},
        "mark": {"type": "line", "color": INK, "strokeWidth": 1, "clip": True},
        "encoding": {
            "x": x, "y": y, "detail": {"field": "side"},
            "strokeDash": {"condition": {"test": "datum.side == 1", "value": [1, 0]}, "value": [4, 4]},
            "opacity": {"condition": {"test": "datum.side == 1", "value": 0.8}, "value": 0.5},
        },
    }  # fmt: skip
    said = tips(
        ("gpu", text("web.tip-gpu")), ("model", text("web.field-model")), ("task", text("web.field-task")),
        ("measured", x["title"]), ("predicted", y["title"]), ("error", text("web.column-error")),
    )  # fmt: skip
    dots = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.55},
        "encoding": {
            "x": x, "y": y, "color": coloured("task", list(words.values())), "shape": shaped("task", list(words.values())),
            "tooltip": said,
        },
    }  # fmt: skip
    described = text(
        "web.described-pairs", n=len(points), median=f"{answer.total.median:.0%}", inside=f"{answer.total.inside:.0%}"
    )
    return picture(described, 420, width=560, layer=[equal, dots])


def errors_picture(answer: AccuracyAnswer, names: dict[str, str], language: Language) -> dict[str, Any]:
    """Median and 90th percentile of the error of each group."""
    text = language.text
    rows = sorted(answer.scores[:24], key=lambda one: one.median)
    order = [names.get(one.group, _said(answer.by, one.group, language)) for one in rows]
    points = [
        {"group": name, "median": round(100 * one.median, 1), "p90": round(100 * one.p90, 1), "rows": one.rows}
        for name, one in zip(order, rows, strict=True)
    ]
    y = {
        "field": "group",
        "type": "nominal",
        "sort": order,
        "title": None,
        "axis": {"ticks": False, "domain": False, "labelColor": INK},
    }
    x = quantity("median", text("web.axis-error"))
    said = tips(
        ("group", text("web.tip-line")), ("median", text("web.column-median")), ("p90", "p90"), ("rows", text("web.column-rows"))
    )
    bar = {"mark": {"type": "bar", "color": "var(--c1, #0072B2)", "height": 9}, "encoding": {"y": y, "x": x, "tooltip": said}}
    rule = {
        "mark": {"type": "rule", "color": SOFT, "strokeWidth": 1.5},
        "encoding": {"y": y, "x": x, "x2": {"field": "p90"}},
    }
    end = {
        "mark": {"type": "tick", "color": INK, "thickness": 2, "size": 11},
        "encoding": {"y": y, "x": quantity("p90", x["title"]), "tooltip": said},
    }
    return picture(
        text("web.described-errors", n=len(points)),
        20 * len(points) + 20,
        width=560,
        data={"values": points},
        layer=[rule, bar, end],
    )


@cache
def _known(key: str) -> tuple[str, ...]:
    return tuple(sorted({getattr(pair, key) for pair in accuracy_pairs()}))


def _form(page: Page[State]) -> dict[str, Any]:
    form = Form(page)
    return {
        "gpu": form.field("gpu", known="gpus"),
        "task": form.checks("task", _known("task"), "web.task-"),
        "source": form.field("source", known="sources"),
        "by": form.select("by", KEYS, "web.by-"),
        "sources": _known("source"),
    }
