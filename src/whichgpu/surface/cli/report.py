"""`whichgpu report-error`: print everything that a correction needs, ready to paste."""

from __future__ import annotations

import click

from whichgpu.api.request.kinds import Names
from whichgpu.base.codec import flat
from whichgpu.surface.cli.click_parts import command, value_type
from whichgpu.surface.commands.session import Session


@command("report-error", epilog=True)
@click.argument("id", type=value_type(Names("gpus and instances", many=False)), metavar="ID")
def report_error(session: Session, id: str) -> None:
    """Print a catalog row by its id, its sources, the versions, and blanks to fill in for the correction."""
    from whichgpu.api.facts import catalog as verbs

    answer = verbs.report_error(id, session.catalog)
    if session.format in ("json", "csv"):
        session.show(answer, [answer.row], ())
        return
    text = session.language.text
    lines = [
        f"# {text('report.title', id=answer.id)}",
        "",
        f"- {text('report.field')}:",
        f"- {text('report.right')}:",
        f"- {text('report.source')}:",
        "",
        f"## {text('report.row', kind=answer.kind, id=answer.id)}",
        *(f"- {name}: {value}" for name, value in flat(answer.row).items() if value not in (None, "")),
        "",
        f"## {text('report.cited')}",
        *(f"- {source.id}: {source.title} {source.url}" for source in answer.sources),
        "",
        f"whichgpu {answer.version}, {text('report.digest', digest=answer.catalog_digest)}",
    ]
    session.out.write("\n".join(lines) + "\n")
