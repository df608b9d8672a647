"""`whichgpu catalog status` and `whichgpu catalog check`."""

from __future__ import annotations

from whichgpu import api
from whichgpu.base.codec import to_json
from whichgpu.base.messages import msg
from whichgpu.surface.cli.frame import Group, catalog_of, command
from whichgpu.surface.cli.session import Session


@command("status")
def status(session: Session) -> None:
    """Size, age and digest of the catalog."""
    answer = api.catalog_status(catalog_of(session))
    rows = sum(table.rows for table in answer.tables)
    newest = max((table.checked_newest for table in answer.tables if table.checked_newest), default="–")
    headline = msg("catalog.status", n=rows, tables=len(answer.tables), newest=newest, digest=answer.digest)
    session.show(answer, answer.tables, (), headline)


@command("check")
def check(session: Session) -> int:
    """Every integrity check; exit 3 when something unexplained is found."""
    report = api.catalog_check(session.catalog_folder, session.today)
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
        session.out.write(to_json({"ok": report.ok, "rows": report.rows, "findings": told, "explained": explained}))
    else:
        total = sum(report.rows.values())
        id = "catalog.check-ok" if report.ok else "catalog.check-bad"
        session.say(msg(id, n=len(told), rows=total, explained=len(report.explained)))
        if told:
            session.table([session.language.text(f"field.{name}") for name in told[0]], [list(row.values()) for row in told])
    return 0 if report.ok else 3


catalog = Group("catalog", commands={"status": status, "check": check}, help="command.catalog.short", no_args_is_help=True)
