"""`whichgpu catalog status`, `check` and `sources`: age and integrity of the data, and where prices come from."""

from __future__ import annotations

from typing import Any

from whichgpu.api.facts.catalog import check as answer_check
from whichgpu.api.prices.store import StatusAnswer
from whichgpu.api.prices.store import status as answer_status
from whichgpu.api.request.catalog import DataRequest, StatusRequest
from whichgpu.base.messages import msg
from whichgpu.catalog.checks import CheckReport
from whichgpu.catalog.live.sources import find_source, source_names
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.session import Session

SERIES = ("source", "scope", "offers", "content", "age_days", "stale", "quarantined", "unknown", "snapshots", "last_snapshot")
FINDING = ("table", "key", "check", "column")


@command("catalog status", StatusRequest, answer_status, has_examples=False, undated="hint.no-as-of-status")
def show_status(session: Session, answer: StatusAnswer) -> None:
    """Print the catalog's tables and the state of the price store; with --live, the age of each source's prices in it."""
    live = answer.live
    if session.request.get("live"):
        if not live.exists:
            session.say(msg("catalog.no-live"))
        session.show(live, live.series, SERIES)
        return
    rows = sum(table.rows for table in answer.tables)
    newest = max((table.checked_newest for table in answer.tables if table.checked_newest), default="–")
    headline = msg("catalog.status", n=rows, tables=len(answer.tables), newest=newest, digest=answer.digest)
    session.show(answer, answer.tables, (), headline)
    if not live.exists:
        session.say(msg("catalog.no-live"))
        return
    stale = sum(row.stale for row in live.series)
    session.say(msg("catalog.live", n=len(live.series), store=live.store or "", stale=stale))
    session.say(msg("catalog.see-live"))


@command("catalog check", DataRequest, answer_check, has_examples=False, undated="hint.no-as-of-now")
def show_check(session: Session, report: CheckReport) -> int:
    """Print the findings of the catalog's integrity checks; exit code 3 if any is not an explained exception."""
    findings = [_row(finding) | {"detail": session.language.render(finding.detail)} for finding in report.findings]
    if session.format == "json":
        explained = [_row(finding) | {"why": why} for finding, why in report.explained]
        session.emit(
            {"ok": report.ok, "rows": report.rows, "findings": findings, "explained": explained, "altered": report.altered}
        )
    else:
        id = "catalog.check-ok" if report.ok else "catalog.check-bad"
        session.say(msg(id, n=len(findings), rows=sum(report.rows.values()), explained=len(report.explained)))
        if report.altered and report.ok:
            session.say(msg("catalog.altered", n=len(report.altered), names=report.altered))
        if findings:
            header = [session.language.text(f"field.{name}") for name in findings[0]]
            session.table(header, [list(row.values()) for row in findings])
    return 0 if report.ok else 3


def _row(finding: Any) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in FINDING}


def sources(session: Session, request: Request) -> dict[str, list[dict[str, Any]]]:  # noqa: ARG001
    """Return the price sources, what each provides and what it needs."""
    rows = []
    for name in source_names():
        source = find_source(name)
        is_ours = f"source.{name}" in session.language
        gives = session.language.text(f"source.{name}") if is_ours else (type(source).__doc__ or "").strip().partition("\n")[0]
        rows.append({"source": name, "needs_key": source.key, "only_when_named": source.heavy, "gives": gives})
    return {"sources": rows}


@command("catalog sources", DataRequest, ask=sources, has_examples=False, undated="hint.no-as-of-now")
def show_sources(session: Session, answer: dict[str, list[dict[str, Any]]]) -> None:
    """Print a row per price source: what it provides and what it needs."""
    session.show(answer, answer["sources"], ())
