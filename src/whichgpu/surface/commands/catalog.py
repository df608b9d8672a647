"""`whichgpu catalog status`, `check` and `sources`: age and integrity of the data, and where prices come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whichgpu.api.facts.catalog import check as answer_check
from whichgpu.api.prices.store import status as answer_status
from whichgpu.api.request.catalog import DataRequest, StatusRequest
from whichgpu.base.messages import msg
from whichgpu.catalog.checks import CheckReport
from whichgpu.catalog.live.sources import find_source, source_names
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.prices.store import StatusAnswer

SERIES = ("source", "scope", "offers", "content", "age_days", "stale", "quarantined", "unknown", "snapshots", "last_snapshot")


@command("catalog status", StatusRequest, undated="hint.no-as-of-status")
def status(session: Session, request: Request) -> StatusAnswer:
    """Size, age and digest of the catalog, and the age of what the user's own store holds."""
    return answer_status(request, session.context())  # type: ignore[arg-type]


@status.shows
def show_status(session: Session, answer: StatusAnswer) -> None:
    """The tables and a word on the store; with --live the store."""
    own = answer.live
    if session.asked.get("live"):
        if not own.exists:
            session.say(msg("catalog.no-live"))
        session.show(own, own.series, SERIES)
        return
    rows = sum(table.rows for table in answer.tables)
    newest = max((table.checked_newest for table in answer.tables if table.checked_newest), default="–")
    headline = msg("catalog.status", n=rows, tables=len(answer.tables), newest=newest, digest=answer.digest)
    session.show(answer, answer.tables, (), headline)
    if not own.exists:
        session.say(msg("catalog.no-live"))
        return
    stale = sum(row.stale for row in own.series)
    session.say(msg("catalog.live", n=len(own.series), store=own.store or "", stale=stale))
    session.say(msg("catalog.see-live"))


@command("catalog check", DataRequest, undated="hint.no-as-of-now")
def check(session: Session, request: Request) -> CheckReport:
    """Every integrity check."""
    return answer_check(request, session.context())  # type: ignore[arg-type]


@check.shows
def show_check(session: Session, report: CheckReport) -> int:
    """What was found; exit 3 when something of it is unexplained."""
    told = [
        {
            "table": finding.table,
            "key": finding.key,
            "check": finding.check,
            "column": finding.column,
            "detail": session.language.render(finding.detail),
        }
        for finding in report.findings
    ]
    if session.format == "json":
        explained = [{"table": found.table, "key": found.key, "check": found.check, "column": found.column, "why": why}
                     for found, why in report.explained]  # fmt: skip
        session.emit({"ok": report.ok, "rows": report.rows, "findings": told, "explained": explained, "altered": report.altered})
    else:
        total = sum(report.rows.values())
        id = "catalog.check-ok" if report.ok else "catalog.check-bad"
        session.say(msg(id, n=len(told), rows=total, explained=len(report.explained)))
        if report.altered and report.ok:
            session.say(msg("catalog.altered", n=len(report.altered), names=report.altered))
        if told:
            session.table([session.language.text(f"field.{name}") for name in told[0]], [list(row.values()) for row in told])
    return 0 if report.ok else 3


@command("catalog sources", DataRequest, undated="hint.no-as-of-now")
def sources(session: Session, request: Request) -> dict[str, list[dict[str, Any]]]:  # noqa: ARG001
    """The price sources there are, what each gives and what it needs."""
    rows = []
    for name in source_names():
        source = find_source(name)
        ours = f"source.{name}" in session.language
        gives = session.language.text(f"source.{name}") if ours else (type(source).__doc__ or "").strip().partition("\n")[0]
        rows.append({"source": name, "needs_key": source.key, "only_when_named": source.heavy, "gives": gives})
    return {"sources": rows}


@sources.shows
def show_sources(session: Session, answer: dict[str, list[dict[str, Any]]]) -> None:
    """One row a source."""
    session.show(answer, answer["sources"], ())
