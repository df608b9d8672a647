"""How answers show themselves: each by its command's own way of showing it, kept instead of printed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from html import escape
from importlib import import_module
from typing import Any, cast

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import SOURCE_LANGUAGE, Language, current_language, language, msg
from whichgpu.surface import tables
from whichgpu.surface.commands.command import command_named
from whichgpu.surface.commands.session import chosen_language
from whichgpu.surface.python.call import noted
from whichgpu.surface.python.chart_files import bundle as bundle
from whichgpu.surface.python.chart_files import save as save
from whichgpu.surface.python.recording_session import Recording, Table

# Whose answers they are; the command shows them.
COMMANDS = {
    "GpusAnswer": "gpus",
    "InstancesAnswer": "instances",
    "CpusAnswer": "cpus",
    "RegionsAnswer": "regions",
    "OffersAnswer": "offers",
    "Comparison": "compare",
    "ModelsAnswer": "models",
    "EnginesAnswer": "engines",
    "FitAnswer": "fit",
    "EstimateAnswer": "estimate",
    "RecommendAnswer": "recommend",
    "PlanAnswer": "plan",
    "BuyAnswer": "buy",
    "Report": "doctor",
    "MeasureAnswer": "measure",
    "VerifyAnswer": "measure",
    "StatusAnswer": "catalog status",
    "CheckReport": "catalog check",
    "HistoryAnswer": "catalog history",
    "DiffAnswer": "catalog diff",
}
# What draws them, where a command has --plot.
CHARTS = {
    "FitAnswer": ("vega", "memory_chart"),
    "EstimateAnswer": ("serving", "curve_chart"),
    "RecommendAnswer": ("front", "front_chart"),
    "PlanAnswer": ("plan", "plan_chart"),
    "HistoryAnswer": ("price", "history_chart"),
}
ROWS = 30  # of a table shown in a notebook


def json_text(answer: object, lang: str | None = None) -> str:
    """The document `--json` prints."""
    return cast("io.StringIO", _shown(answer, "json", lang).out).getvalue()


def records(answer: object) -> list[dict[str, Any]]:
    """The rows `--csv` prints, money as numbers."""
    return _shown(answer, "csv", None).rows


def chart(answer: object, lang: str | None = None) -> dict[str, Any]:
    """The picture `--plot` draws."""
    name = type(answer).__name__
    if name not in CHARTS:
        raise noted(NoAnswer("no-chart", msg("error.no-chart", name=name), msg("hint.no-chart", names=tuple(CHARTS))))
    module, function = CHARTS[name]
    draw: Callable[..., dict[str, Any]] = getattr(import_module(f"whichgpu.surface.charts.{module}"), function)
    return draw(answer, _language(lang))


def headline(answer: object, lang: str | None = None) -> str:
    """The answer in a sentence."""
    return next((part for part in _shown(answer, "table", lang).told if isinstance(part, str)), "")


def text(answer: object) -> str:
    """The sentence and the table."""
    told = _shown(answer, "table", None)
    table = next((part for part in told.told if isinstance(part, Table)), None)
    said = next((part for part in told.told if isinstance(part, str)), "")
    return f"{said}\n{_drawn(table, told.language)}" if table else said


def html(answer: object) -> str:
    """The sentence, the tables, and all that is said under them, folded away. Every word is escaped."""
    told = _shown(answer, "table", None)
    said = [part for part in told.told if isinstance(part, str)]
    parts = [f"<p><strong>{escape(said[0])}</strong></p>"] if said else []
    parts += [_table(part, told.language) for part in told.told if isinstance(part, Table)]
    if rest := [line.strip() for line in said[1:]]:
        lines = "".join(f"<li>{escape(line)}</li>" for line in rest)
        parts.append(f"<details><summary>{escape(told.language.text('notebook.more'))}</summary><ul>{lines}</ul></details>")
    return f'<div class="whichgpu">{"".join(parts)}</div>'


def _shown(answer: object, form: str, lang: str | None) -> Recording:
    show = command_named(COMMANDS[type(answer).__name__]).show
    session = Recording(_language(lang), format=form, out=io.StringIO(), err=io.StringIO())
    show(session, answer)
    return session


def _language(code: str | None) -> Language:
    """The one named, else what `set_language` chose, else WHICHGPU_LANG, else English."""
    if code is not None:
        return chosen_language(str(code))
    chosen = current_language()
    return chosen if chosen.code != SOURCE_LANGUAGE else language(os.environ.get("WHICHGPU_LANG") or SOURCE_LANGUAGE)


def _table(table: Table, speech: Language) -> str:
    right = [tables.is_numeric([row[place] for row in table.rows]) for place in range(len(table.header))]
    head = "".join(f"<th{_aligned(side)}>{escape(title)}</th>" for title, side in zip(table.header, right, strict=True))
    body = "".join(f"<tr>{_cells(row, right)}</tr>" for row in table.rows[:ROWS])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_left_out(table, speech, '<p>{}</p>')}"


def _cells(row: Sequence[str], right: Sequence[bool]) -> str:
    return "".join(f"<td{_aligned(side)}>{escape(cell)}</td>" for cell, side in zip(row, right, strict=True))


def _aligned(right: bool) -> str:
    return f' style="text-align:{"right" if right else "left"}"'


def _drawn(table: Table, speech: Language) -> str:
    stream = io.StringIO()
    right = [tables.is_numeric([row[place] for row in table.rows]) for place in range(len(table.header))]
    tables.write_terminal(stream, table.header, table.rows[:ROWS], right)
    return stream.getvalue().rstrip("\n") + _left_out(table, speech, "\n{}")


def _left_out(table: Table, speech: Language, frame: str) -> str:
    left = len(table.rows) - ROWS
    return frame.format(speech.text("notebook.rows", n=left)) if left > 0 else ""
