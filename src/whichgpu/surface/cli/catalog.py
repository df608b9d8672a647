"""`whichgpu catalog`: age and integrity of the data, and the commands about prices that live in modules of their own."""

from __future__ import annotations

import click

from whichgpu import api
from whichgpu.base.codec import to_json
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.checks import CheckReport
from whichgpu.catalog.live.sources import find_source, source_names
from whichgpu.surface.cli.frame import Group, catalog_of, command, option
from whichgpu.surface.cli.pricehistory import diff, history, watch
from whichgpu.surface.cli.prices import export, forget, import_, refresh
from whichgpu.surface.cli.session import Session

SERIES = ("source", "scope", "offers", "content", "age_days", "stale", "quarantined", "unknown", "snapshots", "last_snapshot")
QUARANTINE = ("source", "scope", "reason", "detail", "instance", "region", "term", "price")


@command("status", undated="hint.no-as-of-status")
@option("--live", is_flag=True)
def status(session: Session, live: bool) -> api.StatusAnswer:  # noqa: ARG001 - of what is shown
    """Size, age and digest of the catalog, and the age of what the user's own store holds."""
    return api.catalog_status(catalog_of(session), session.today)


@status.shows
def show_status(session: Session, answer: api.StatusAnswer) -> None:
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


@command("check", undated="hint.no-as-of-now")
def check(session: Session) -> CheckReport:
    """Every integrity check."""
    return api.catalog_check(session.catalog_folder, session.today)


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
        session.out.write(
            to_json({"ok": report.ok, "rows": report.rows, "findings": told, "explained": explained, "altered": report.altered})
        )
    else:
        total = sum(report.rows.values())
        id = "catalog.check-ok" if report.ok else "catalog.check-bad"
        session.say(msg(id, n=len(told), rows=total, explained=len(report.explained)))
        if report.altered and report.ok:
            session.say(msg("catalog.altered", n=len(report.altered), names=report.altered))
        if told:
            session.table([session.language.text(f"field.{name}") for name in told[0]], [list(row.values()) for row in told])
    return 0 if report.ok else 3


@command("quarantine", "[OPTIONS]", epilog=True, undated="hint.no-as-of-now")
@option("--source", metavar="NAME", help="option.quarantine-source")
def quarantine(session: Session, source: str | None) -> int:
    """Rows of the newest snapshots that were not believed, and why; exit 1 where there are none."""
    if source is not None and source not in (*source_names(), "own"):
        raise unknown_word("source", source, (*source_names(), "own"))
    rows = api.catalog_quarantine(source)
    session.say(msg("prices.quarantined", n=len(rows)))
    if rows or session.format == "json":
        session.show({"quarantined": rows}, rows, QUARANTINE)
    return 0 if rows else 1


@command("sources", "[OPTIONS]", undated="hint.no-as-of-now")
def sources(session: Session) -> None:
    """The price sources there are, what each gives and what it needs."""
    rows = []
    for name in source_names():
        source = find_source(name)
        ours = f"source.{name}" in session.language
        gives = session.language.text(f"source.{name}") if ours else (type(source).__doc__ or "").strip().partition("\n")[0]
        rows.append({"source": name, "needs_key": source.key, "only_when_named": source.heavy, "gives": gives})
    session.show({"sources": rows}, rows, ())


class CatalogGroup(Group):
    """The commands under `catalog`; `watch` there is another than the one for this machine's GPUs."""

    def short(self, name: str) -> str:
        return "command.catalog-watch.short" if name == "watch" else super().short(name)


COMMANDS = (status, check, refresh, import_, export, diff, history, watch, quarantine, forget, sources)
catalog = CatalogGroup(
    "catalog",
    commands={found.name: found for found in COMMANDS if found.name},
    help="command.catalog.short",
    no_args_is_help=True,
    params=[click.Option(["--lang"], metavar="CODE", expose_value=False, help="option.lang")],  # read before all the others
)
