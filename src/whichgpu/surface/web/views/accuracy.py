"""The accuracy page: predicted against measured times by GPU and task, with the largest errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from whichgpu.api.facts.accuracy import AccuracyAnswer, Score
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Names, Plain, Words
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds
from whichgpu.estimate.time.accuracy_pairs import KEYS, PAIR_COLUMNS, AccuracyPair, accuracy_pairs
from whichgpu.surface.charts.palette import COLOURS, INK, SECONDS, SOFT
from whichgpu.surface.charts.parts import coloured, decades, picture, quantity, row_names, shaped, tips
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import page_words

MAX_POINTS = 1500  # Largest number of points in a chart; JSON and CSV have all.
MAX_WORST = 500  # Largest number of rows in the table of the largest errors.
BAND = 1.25  # Lines are drawn where predicted time is this multiple, or fraction, of the measured one.
FILTERS = ("gpu", "task", "source", "model", "engine")
TASKS = ("train", "forward", "prefill", "decode", "generate")


@cache
def _values(key: str) -> tuple[str, ...]:
    return tuple(sorted({getattr(pair, key) for pair in accuracy_pairs()}))


@view(
    "accuracy",
    extra={
        "gpu": Field(Names("gpus")), "task": Field(Words("task", partial(_values, "task"), many=True)), "source": Field(Names()),
        "model": Field(Names()), "engine": Field(Names("engines")),
        "by": Field(Words("group", KEYS)), "worst": Field(Plain(), "N"),
    },
    defaults={"by": "gpu", "worst": "15"},
)  # fmt: skip
def accuracy(page: Page) -> PageContent:
    """Return the accuracy page: predicted against measured times, errors by group, and the largest errors."""
    from whichgpu.api.facts import accuracy as verbs

    state, language = page.state, page.language
    context: dict[str, Any] = {"form": _form(page), **page_words(language), "answer": None, "error": None}
    try:
        page.check()
        worst = page.number("worst", MAX_WORST)
        pairs = verbs.matching_pairs({name: state[name] for name in FILTERS}, catalog())
        answer = verbs.accuracy_answer(pairs, state["by"], worst, catalog())
    except WhichGpuError as error:
        return error_content("accuracy.html", context, error, page)
    names = {gpu.id: gpu.name for gpu in catalog().gpus}
    context |= {
        "answer": answer,
        "scores": [(names.get(one.group, _group_name(answer.by, one.group, language)), one) for one in _by_rows(answer)],
        "worst": [_case(pair, names, language) for pair in answer.worst],
        "more_worst": min(len(pairs), MAX_WORST) - len(answer.worst),
    }
    rows = [[getattr(pair, name) for name in PAIR_COLUMNS] for pair in pairs]
    charts = {"pairs": pairs_picture(answer, pairs, names, language), "errors": errors_picture(answer, names, language)}
    document = {name: getattr(answer, name) for name in ("by", "total", "scores", "worst", "fitted", "sources")}
    document["pairs"] = pairs
    return PageContent("accuracy.html", context, charts=charts, document=document, table=(PAIR_COLUMNS, rows))


def _by_rows(answer: AccuracyAnswer) -> list[Score]:
    """Return the scores of groups, those of the most rows first."""
    return sorted(answer.scores, key=lambda one: (-one.rows, one.group))


def _group_name(by: str, group: str, language: Language) -> str:
    id = f"web.{by}-{group}"
    return language.text(id) if id in language else group


def _case(pair: AccuracyPair, names: dict[str, str], language: Language) -> dict[str, Any]:
    sizes = [
        language.text(f"web.size-{id}", n=value)
        for name, id in (("batch", "batch"), ("seq_in", "seq-in"), ("seq_out", "seq-out"), ("image", "image"))
        if (value := getattr(pair, name))
    ]
    return {
        "gpu": names.get(pair.gpu, pair.gpu), "work": language.listed((language.text(f"web.task-{pair.task}"), pair.model)),
        "how": language.listed((pair.engine, pair.precision, *sizes)),
        "source": pair.source, "measured": format_seconds(pair.measured),
        "predicted": format_seconds(pair.predicted), "range": f"{format_seconds(pair.low)} – {format_seconds(pair.high)}",
        "error": f"{pair.error:+.0%}", "inside": pair.inside,
    }  # fmt: skip


def pairs_picture(
    answer: AccuracyAnswer, pairs: Sequence[AccuracyPair], names: dict[str, str], language: Language
) -> dict[str, Any]:
    """Return a chart of predicted against measured seconds, both on a log scale, with the line of equality."""
    text = language.text
    step = max(1, -(-len(pairs) // MAX_POINTS))
    tasks = [task for task in TASKS if any(pair.task == task for pair in pairs)]
    words = {task: text(f"web.task-{task}") for task in tasks}
    points = [
        {"measured": pair.measured, "predicted": pair.predicted, "task": words[pair.task], "gpu": names.get(pair.gpu, pair.gpu),
         "model": pair.model, "error": f"{pair.error:+.0%}", "low": pair.low, "high": pair.high,
         "range": language.text("web.range", low=format_seconds(pair.low), high=format_seconds(pair.high))}
        for pair in pairs[::step]
    ]  # fmt: skip
    low = min(min(pair.measured, pair.predicted) for pair in pairs)
    high = max(max(pair.measured, pair.predicted) for pair in pairs)
    ends = [low / 1.2, high * 1.2]
    axis = {"labelExpr": SECONDS, "values": decades(*ends)}
    x = quantity("measured", text("web.axis-measured"), axis=axis, scale={"type": "log", "domain": ends})
    y = quantity("predicted", text("web.axis-predicted"), axis=axis, scale={"type": "log", "domain": ends})
    sides = [{"measured": end * side, "predicted": end, "side": side} for side in (1, BAND, 1 / BAND) for end in ends]
    equal = {
        "data": {"values": sides},
        "mark": {"type": "line", "color": INK, "strokeWidth": 1, "clip": True},
        "encoding": {
            "x": x, "y": y, "detail": {"field": "side"},
            "strokeDash": {"condition": {"test": "datum.side == 1", "value": [1, 0]}, "value": [4, 4]},
            "opacity": {"condition": {"test": "datum.side == 1", "value": 0.8}, "value": 0.5},
        },
    }  # fmt: skip
    titles = tips(
        ("gpu", text("web.tip-gpu")), ("model", text("web.field-model")), ("task", text("web.field-task")),
        ("measured", x["title"]), ("predicted", y["title"]), ("error", text("web.column-error")),
        ("range", text("web.column-range")),
    )  # fmt: skip
    dots = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.55},
        "encoding": {
            "x": x, "y": y, "color": coloured("task", list(words.values())), "shape": shaped("task", list(words.values())),
            "tooltip": titles,
        },
    }  # fmt: skip
    ranges = {
        "data": {"values": points},
        "mark": {"type": "rule", "color": SOFT, "opacity": 0.12, "aria": False},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
    }
    description = text(
        "web.described-pairs", n=len(points), median=f"{answer.total.median:.0%}", inside=f"{answer.total.inside:.0%}"
    )
    return picture(description, 420, width=560, layer=[ranges, equal, dots])


def errors_picture(answer: AccuracyAnswer, names: dict[str, str], language: Language) -> dict[str, Any]:
    """Return a chart of the median and 90th percentile of the prediction error of each group (GPU, task or source)."""
    text = language.text
    rows = sorted(_by_rows(answer)[:24], key=lambda one: one.median)
    order = [names.get(one.group, _group_name(answer.by, one.group, language)) for one in rows]
    points = [
        {"group": name, "median": round(100 * one.median, 1), "p90": round(100 * one.p90, 1), "rows": one.rows}
        for name, one in zip(order, rows, strict=True)
    ]
    y = row_names("group", order)
    x = quantity("median", text("web.axis-error"))
    titles = tips(
        ("group", text("web.tip-line")), ("median", text("web.column-median")), ("p90", "p90"), ("rows", text("web.column-rows"))
    )
    bar = {"mark": {"type": "bar", "color": COLOURS[0], "height": 9}, "encoding": {"y": y, "x": x, "tooltip": titles}}
    rule = {"mark": {"type": "rule", "color": SOFT, "strokeWidth": 1.5}, "encoding": {"y": y, "x": x, "x2": {"field": "p90"}}}
    end = {
        "mark": {"type": "tick", "color": INK, "thickness": 2, "size": 11},
        "encoding": {"y": y, "x": quantity("p90", x["title"]), "tooltip": titles},
    }
    height = 20 * len(points) + 20
    return picture(text("web.described-errors", n=len(points)), height, 560, data={"values": points}, layer=[rule, bar, end])


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    return {
        "gpu": form.field("gpu"),
        "task": form.field("task", "checks"),
        "source": form.field("source", completions="sources"),
        "more": [form.field("model", completions="models"), form.field("engine")],
        "by": form.field("by"),
        "sources": _values("source"),
    }
