"""Display of the stored records of measurements."""

from __future__ import annotations

from whichgpu.api.measure.stored_records import RecordsAnswer, StoredRecord
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import significant
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document

COLUMNS = ("id", "origin", "gpu", "steps", "used-for", "ratio")


def show_records(session: Session, answer: RecordsAnswer) -> int:
    """Print each record with the kinds of steps whose estimates use it; return 1 if there is none."""
    if session.format == "json":
        session.emit({"ok": True, **document(answer, session.language)})
        return 0
    if answer.forgotten:
        session.say(msg("records.forgotten", id=answer.forgotten))
        return 0
    session.say(msg("records.headline", n=len(answer.records)))
    text = session.language.text
    session.table([text(f"records.column.{name}") for name in COLUMNS], [_row(one, session.language) for one in answer.records])
    return 0 if answer.records else 1


def _row(one: StoredRecord, language: Language) -> tuple[str, ...]:
    if one.problem is not None:
        return one.id, language.text(f"records.{one.origin}"), "", "", language.render(one.problem), ""
    used = ", ".join(one.used_for) or language.text("records.unused")
    ratio = "" if one.ratio is None else f"{significant(one.ratio)}"
    return one.id, language.text(f"records.{one.origin}"), one.gpu, str(one.steps), used, ratio
