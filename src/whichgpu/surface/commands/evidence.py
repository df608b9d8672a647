"""`whichgpu evidence`: search the measurements that estimates rest on."""

from __future__ import annotations

from whichgpu.api.facts import evidence as verbs
from whichgpu.api.request.evidence import EvidenceRequest
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import format_seconds
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.session import Columns, Session

SIZES = {"batch": "batch", "seq_in": "seq-in", "seq_out": "seq-out", "image": "image"}  # Fields with a message `web.size-…`.


@command("evidence", EvidenceRequest, verbs.evidence, row_type=verbs.EvidenceRow, undated="hint.no-as-of-now")
def show_evidence(session: Session, answer: verbs.EvidenceAnswer) -> None:
    """Print measurements in a table, then their sources with licences."""
    columns: Columns = [
        ("work", lambda row: f"{row.task} {row.model}"),
        ("gpus", lambda row: f"{row.gpus}x {row.gpu}" if (row.gpus or 1) > 1 else row.gpu),
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


def settings_text(row: verbs.EvidenceRow, language: Language) -> str:
    """Return how a measured workload was run: precision, layout, batch, lengths and, of an operator, its sizes."""
    sizes = [language.text(f"web.size-{id}", n=size) for name, id in SIZES.items() if (size := getattr(row, name))]
    return language.listed(
        part for part in (row.precision, row.layout.replace(",", " "), *sizes, row.details.replace(",", " ")) if part
    )
