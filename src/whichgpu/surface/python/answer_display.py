"""Conversion of answers to JSON, rows, text, HTML and charts, by recording the output of their command."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from html import escape
from typing import Any, cast

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import SOURCE_LANGUAGE, Language, current_language, language, msg
from whichgpu.surface import tables
from whichgpu.surface.charts.chart_file import check_chart_file, write_chart
from whichgpu.surface.commands.command import command_named
from whichgpu.surface.commands.render.recording_session import RecordedTable, RecordingSession
from whichgpu.surface.commands.session import language_code
from whichgpu.surface.python.call import with_hint

# Command that displays each type of answer.
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
    "ExplainAnswer": "explain",
    "CheckAnswer": "check",
    "EstimateAnswer": "estimate",
    "RecommendAnswer": "recommend",
    "PlanAnswer": "plan",
    "BuyAnswer": "buy",
    "EvidenceAnswer": "evidence",
    "AccuracyAnswer": "accuracy",
    "Report": "doctor",
    "MeasureAnswer": "measure",
    "VerifyAnswer": "measure",
    "StatusAnswer": "catalog status",
    "CheckReport": "catalog check",
    "HistoryAnswer": "catalog history",
    "DiffAnswer": "catalog diff",
}
MAX_ROWS = 30  # Rows of a table displayed in a notebook.
VEGA_LITE = "application/vnd.vegalite.v5+json"


def json_text(answer: object, lang: str | None = None) -> str:
    """Return an answer as the JSON text that `--json` prints."""
    return cast("io.StringIO", _record(answer, "json", lang).out).getvalue()


def records(answer: object) -> list[dict[str, Any]]:
    """Return the rows of an answer that `--csv` prints, with money as numbers."""
    return _record(answer, "csv", None).rows


def chart(answer: object, lang: str | None = None) -> dict[str, Any]:
    """Return the Vega-Lite spec of the chart of an answer that `--plot` draws."""
    name = type(answer).__name__
    command = command_named(COMMANDS[name])
    if not command.chart:
        charted = tuple(kind for kind, name in COMMANDS.items() if command_named(name).chart)
        raise with_hint(NoAnswer("no-chart", msg("error.no-chart", name=name), msg("hint.no-chart", names=charted)))
    return command.draw(answer, _language(lang))


def headline(answer: object, lang: str | None = None) -> str:
    """Return the first sentence of an answer."""
    return next((part for part in _record(answer, "table", lang).parts if isinstance(part, str)), "")


def text(answer: object) -> str:
    """Return the first sentence and the first table of an answer as text."""
    recorded = _record(answer, "table", None)
    table = next((part for part in recorded.parts if isinstance(part, RecordedTable)), None)
    sentence = next((part for part in recorded.parts if isinstance(part, str)), "")
    if table is None:
        return sentence
    cells = tables.text_of(tables.write_terminal, table.header, table.rows[:MAX_ROWS]).rstrip("\n")
    return f"{sentence}\n{cells}" + _left_out(table, recorded.language, "\n{}")


def html(answer: object) -> str:
    """Return an answer as HTML: first sentence, tables, and the other sentences collapsed; all text is escaped."""
    recorded = _record(answer, "table", None)
    sentences = [part for part in recorded.parts if isinstance(part, str)]
    parts = [f"<p><strong>{escape(sentences[0])}</strong></p>"] if sentences else []
    parts += [_table(part, recorded.language) for part in recorded.parts if isinstance(part, RecordedTable)]
    if rest := [line.strip() for line in sentences[1:]]:
        lines = "".join(f"<li>{escape(line)}</li>" for line in rest)
        parts.append(f"<details><summary>{escape(recorded.language.text('notebook.more'))}</summary><ul>{lines}</ul></details>")
    return f'<div class="whichgpu">{"".join(parts)}</div>'


def save(spec: dict[str, Any], path: str) -> None:
    """Write a chart in the format of the file's ending; needs vl-convert."""
    check_chart_file(path)
    write_chart(spec, path)


def bundle(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a chart as a MIME bundle: its spec, its titles as text, and its SVG if vl-convert is installed."""
    titles = [one["title"] for one in (spec, *spec.get("vconcat", ())) if "title" in one]
    content: dict[str, Any] = {VEGA_LITE: spec, "text/plain": f"<Chart: {', '.join(titles)}>"}
    try:
        import vl_convert
    except ModuleNotFoundError:
        return content
    return content | {"image/svg+xml": vl_convert.vegalite_to_svg(spec)}


def _record(answer: object, form: str, lang: str | None) -> RecordingSession:
    show = command_named(COMMANDS[type(answer).__name__]).show
    session = RecordingSession(_language(lang), format=form, out=io.StringIO(), err=io.StringIO())
    show(session, answer)
    return session


def _language(code: str | None) -> Language:
    """Return the language named, else that of `set_language`, else of WHICHGPU_LANG, else English."""
    if code is not None:
        return language(language_code(str(code)))
    chosen = current_language()
    return chosen if chosen.code != SOURCE_LANGUAGE else language(os.environ.get("WHICHGPU_LANG") or SOURCE_LANGUAGE)


def _table(table: RecordedTable, language: Language) -> str:
    right = tables.right_aligned(len(table.header), table.rows)
    head = _cells("th", table.header, right)
    body = "".join(f"<tr>{_cells('td', row, right)}</tr>" for row in table.rows[:MAX_ROWS])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_left_out(table, language, '<p>{}</p>')}"


def _cells(tag: str, row: Sequence[str], right: Sequence[bool]) -> str:
    sides = ["right" if is_right else "left" for is_right in right]
    cells = zip(row, sides, strict=True)
    return "".join(f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for cell, side in cells)


def _left_out(table: RecordedTable, language: Language, frame: str) -> str:
    left = len(table.rows) - MAX_ROWS
    return frame.format(language.text("notebook.rows", n=left)) if left > 0 else ""
