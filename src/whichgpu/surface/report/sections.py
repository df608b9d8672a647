"""Content of a report: what a command prints about its answer, sorted into sections by the ids of its messages."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from whichgpu.base.messages import Language, Message
from whichgpu.surface.commands.render.recording_session import RecordedTable, RecordingSession

MAX_ROWS, MAX_LINES = 5, 5  # Rows of a table and lines of a section: all of it fits one printed page.
# Sections in reading order: their headings, and the messages that belong to each. Ids that end in a dash are beginnings.
SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cost": (
        "report.cost",
        (
            "recommend.unit-costs", "recommend.cost-lines", "recommend.terms", "recommend.shares", "recommend.precision-step",
            "plan.bill", "plan.alone-list", "plan.own-", "recommend.front", "recommend.any-seller", "recommend.fallback",
        ),
    ),
    "why": ("web.because", ("recommend.because", "plan.bound", "plan.simulated-", "serving.", "estimate.")),
    "risk": (
        "web.mind",
        ("recommend.lacks", "recommend.risk", "recommend.safest", "recommend.measured", "recommend.narrow-", "fit.warning",
         "plan.breaks", "web.saturated"),
    ),
    "evidence": ("report.evidence", ("evidence.line", "evidence.neighbourhood", "estimate.tier-")),
    "assumed": ("web.assumed", ("recommend.assumed", "fit.assumed")),
    "sources": ("web.sources", ("sources.rest",)),
    "reproduce": ("web.same-command", ("recommend.reproduce",)),
}  # fmt: skip
UNPREFIXED_MESSAGES = (
    "recommend.because",
    "recommend.lacks",
    "recommend.assumed",
    "fit.warning",
)  # Their section's heading says the first word.
FIRST_LINES = ("evidence.neighbourhood", "recommend.unit-costs")  # First lines of their sections, which are cut at the end.
LEFT_OUT_MESSAGES = (
    "sources.heading", "evidence.nearest", "recommend.verify", "recommend.considered", "recommend.considered-all", "fit.remedies",
    "fit.largest",
)  # fmt: skip


class Section(msgspec.Struct, frozen=True):
    """Lines of a report under a heading; a command to type is no sentence."""

    heading: str
    lines: tuple[str, ...]
    is_command: bool = False


class ReportPage(msgspec.Struct, frozen=True):
    """One page about an answer: its sentence, tables and sections, in the reader's language."""

    sentence: str
    tables: tuple[RecordedTable, ...]
    sections: tuple[Section, ...]


class _ReportSession(RecordingSession):
    """Session that records messages by section; a line without a message is a source."""

    lines: dict[str, list[str]] = msgspec.field(default_factory=dict)
    sentence: str = ""

    def say(self, message: Message) -> None:
        if message.id in LEFT_OUT_MESSAGES:
            return
        if not self.sentence:
            self.sentence = self.language.render(message)
            return
        what = message.values.get("what") if message.id in UNPREFIXED_MESSAGES else None
        text = self.language.render(what if isinstance(what, Message) else message)
        lines = self.lines.setdefault(_section_of(message.id), [])
        lines.insert(0 if message.id in FIRST_LINES else len(lines), text.strip())

    def note(self, text: str) -> None:
        self.lines.setdefault("sources", []).append(text.strip())


def report_of(
    answer: Any, show: Callable[[Any, Any], object], language: Language, command: str, sources: Mapping[str, str]
) -> ReportPage:
    """Return the report of an answer that `show` displays; `command` reproduces it, `sources` are titles by id."""
    session = _ReportSession(language, format="markdown", out=io.StringIO(), err=io.StringIO())
    session.request = {"evidence": True, "long": True, "names": True}
    show(session, msgspec.structs.replace(answer, emitted={}) if getattr(answer, "emitted", None) else answer)
    lines = session.lines
    lines.setdefault("sources", [sources[id] for id in getattr(answer, "sources", ()) if isinstance(id, str) and id in sources])
    lines["reproduce"] = [text.partition(": ")[2] or text for text in lines.get("reproduce", [])] or [command]
    sections = tuple(
        Section(language.text(heading), tuple(lines[name][:MAX_LINES]), name == "reproduce")
        for name, (heading, _) in SECTIONS.items()
        if lines.get(name)
    )
    tables = [part for part in session.parts if isinstance(part, RecordedTable)]
    return ReportPage(
        session.sentence, tuple(msgspec.structs.replace(one, rows=one.rows[:MAX_ROWS]) for one in tables[:2]), sections
    )


def _section_of(id: str) -> str:
    """Return the section of a message: the one that names its whole id, else the one with the longest beginning of it."""
    matches = [
        (len(pattern), name)
        for name, (_, ids) in SECTIONS.items()
        for pattern in ids
        if id == pattern or (pattern[-1] in "-." and id.startswith(pattern))
    ]
    return max(matches)[1] if matches else "why"
