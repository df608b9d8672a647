"""`whichgpu evidence`: search the measurements that estimates rest on."""

from __future__ import annotations

from whichgpu.api.facts import evidence as verbs
from whichgpu.api.request.evidence import EvidenceRequest
from whichgpu.base.messages import msg
from whichgpu.base.units import format_seconds
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.evidence import gpus_text, settings_text
from whichgpu.surface.commands.session import Columns, Session


@command("evidence", EvidenceRequest, verbs.evidence, row_type=verbs.EvidenceRow, undated="hint.no-as-of-now")
def show_evidence(session: Session, answer: verbs.EvidenceAnswer) -> None:
    """Print measurements in a table, then their sources with licences."""
    columns: Columns = [
        ("work", lambda row: f"{row.task} {row.model}"),
        ("gpus", lambda row: gpus_text(row.gpus, row.gpu)),
        ("software", lambda row: row.software),
        ("how", lambda row: settings_text(row, session.language)),
        ("measured", lambda row: format_seconds(row.measured)),
        ("source", lambda row: row.source),
    ]
    count = msg("evidence.count", n=answer.matching, rows=f"{answer.rows:,}")
    session.show_columns(answer, answer.evidence, "evidence.", columns, count)
    if answer.matching > len(answer.evidence):
        session.say(msg("evidence.first", n=len(answer.evidence)))
    for row in {row.source: row for row in answer.evidence}.values():
        session.say(msg("evidence.from", source=row.source, publisher=row.publisher, url=row.url, licence=row.licence))
