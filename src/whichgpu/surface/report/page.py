"""The page that `--report` writes about a command's answer: what is printed of it, the question, the chart, alternatives."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from whichgpu.api.request.field import Field
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.surface.charts.memory import estimate_chart
from whichgpu.surface.commands.render.recording_session import RecordedTable
from whichgpu.surface.commands.session import Session
from whichgpu.surface.report.alternatives import alternatives_table
from whichgpu.surface.report.report_file import write_report
from whichgpu.surface.report.sections import report_of


class ReportedCommand(Protocol):
    """What a report needs of a command."""

    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, Field]: ...
    @property
    def show(self) -> Callable[[Any, Any], object]: ...
    def draw(self, answer: Any, language: Language) -> dict[str, Any]: ...
    def words(self, request: Mapping[str, Any]) -> list[str]: ...


def write_page(command: ReportedCommand, session: Session, request: Mapping[str, Any], answer: Any, path: str) -> None:
    """Write the report of an answer to a file."""
    stated = {
        name: value
        for name, value in request.items()
        if (not command.fields[name].is_local or name == "trace") and name not in ("emit", "report")
    }
    language, day = session.language, str(session.as_of or session.today)
    line = shlex.join(["whichgpu", *command.words({**stated, "as_of": day})])
    sources = {one.id: f"{one.title} ({one.publisher}) {one.url}" for one in session.catalog.sources.values()}
    question = language.text("report.question", what=f"{in_words(command.words(stated))} ({day})")
    tables, chart = _further_parts(command, session, stated, answer)
    write_report(report_of(answer, command.show, language, line, sources, question, tables), chart, path, language)


def _further_parts(
    command: ReportedCommand, session: Session, request: Mapping[str, Any], answer: Any
) -> tuple[Sequence[RecordedTable], dict[str, Any] | None]:
    """Return what a page has beside what is printed: an estimate's alternatives, and the chart."""
    is_estimate = command.name == "estimate"
    tables = alternatives_table(answer, request, session) if is_estimate else []
    try:
        return tables, command.draw(answer, session.language)
    except WhichGpuError:  # An estimate without a load has no curve.
        return tables, estimate_chart(answer, session.language) if is_estimate else None


def in_words(words: Sequence[str]) -> str:
    """Return a command line as a reader says it: the arguments, then the fields that were set.

    >>> in_words(["estimate", "--gpu=H100 SXM", "--seq-in=5", "--", "serve", "gpt2"])
    'estimate serve gpt2, gpu H100 SXM, seq in 5'
    """
    flags = [word[2:].partition("=") for word in words if word.startswith("--") and word != "--"]
    names = [word for word in words if not word.startswith("--")]
    return ", ".join([" ".join(names), *(f"{name.replace('-', ' ')} {value}".strip() for name, _, value in flags)])
