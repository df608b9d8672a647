"""`whichgpu evidence` and `whichgpu accuracy`: the measurements that estimates rest on, and the errors on those left out."""

from __future__ import annotations

from whichgpu.api.facts import accuracy as errors
from whichgpu.api.facts import evidence as verbs
from whichgpu.api.request.evidence import AccuracyRequest, EvidenceRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds
from whichgpu.estimate.time.accuracy_pairs import AccuracyPair
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


@command("accuracy", AccuracyRequest, errors.accuracy, undated="hint.no-as-of-now")
def show_accuracy(session: Session, answer: errors.AccuracyAnswer) -> None:
    """Print left-out errors by group, worst first, then the worst single cases."""
    total = answer.total
    columns: Columns = [
        ("group", lambda one: one.group),
        ("rows", lambda one: f"{one.rows:,}"),
        ("median", lambda one: f"{one.median:.1%}"),
        ("mean", lambda one: f"{one.mean:.1%}"),
        ("p90", lambda one: f"{one.p90:.1%}"),
        ("inside", lambda one: f"{one.inside:.0%}"),
    ]
    shares = {name: f"{getattr(total, name):.0%}" for name in ("median", "mean", "p90", "inside")}
    session.show_columns(answer, answer.scores, "accuracy.", columns, msg("accuracy.total", n=total.rows, **shares))
    if answer.worst:
        session.say(msg("accuracy.worst"))
    for pair in answer.worst:
        session.say(_case(session, pair))
    session.say(msg("accuracy.fitted", day=answer.fitted))


def _case(session: Session, pair: AccuracyPair) -> Message:
    """Return a single case as a line: predicted and measured time, and what was run."""
    gpu = session.catalog.gpu_by_id[pair.gpu].name
    return msg(
        "accuracy.case" if pair.inside else "accuracy.case-outside",
        measured=format_seconds(pair.measured), predicted=format_seconds(pair.predicted), error=f"{pair.error:+.0%}",
        task=pair.task, model=pair.model, gpus=gpus_text(pair.gpus, gpu), software=f"{pair.engine} {pair.year}",
        settings=settings_text(pair, session.language), source=pair.source,
    )  # fmt: skip
