"""Content of a report: what a command prints about its answer, sorted into sections by the ids of its messages."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from whichgpu.base.messages import Language, Message
from whichgpu.surface.commands.render.recording_session import RecordedTable, RecordingSession

MAX_ROWS, MAX_LINES, MAX_TABLES = 5, 5, 2  # Rows of a printed table, lines of a section, and tables: it fits one page.
NEIGHBOURHOODS = ("evidence.neighbourhood", "evidence.neighbourhood-other-gpus")  # Messages on the error of near measurements.
# Sections in reading order: their headings, and the messages that belong to each. Ids that end in a dash are beginnings.
SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cost": (
        "report.cost",
        (
            "recommend.unit-costs", "recommend.cost-lines", "recommend.terms", "recommend.shares", "recommend.precision-step",
            "plan.bill", "plan.alone-list", "plan.own-", "recommend.cheapest",
            "recommend.cheapest-risk", "recommend.fastest", "recommend.any-seller",
            "recommend.fallback", "recommend.fallback-likely", "recommend.commitment", "recommend.near-",
        ),
    ),
    "why": ("web.because", ("recommend.because", "plan.bound", "plan.simulated-", "serving.", "estimate.")),
    "risk": (
        "web.mind",
        ("recommend.lacks", "recommend.risk", "recommend.safest", "recommend.measured", "recommend.narrow-", "fit.warning",
         "plan.breaks", "web.saturated"),
    ),
    "evidence": ("report.evidence", ("evidence.line", *NEIGHBOURHOODS, "evidence.none", "estimate.tier-")),
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
FIRST_LINES = (
    "evidence.neighbourhood",
    "evidence.neighbourhood-other-gpus",
    "recommend.unit-costs",
)  # First lines of their sections, which are cut at the end.
LEFT_OUT_MESSAGES = (
    "sources.heading", "evidence.nearest", "recommend.verify", "recommend.considered", "recommend.considered-all", "fit.remedies",
    "fit.largest",
)  # fmt: skip
_PREFIX = re.compile(r"^[^:：]{1,20}[:：]\s*")  # "evidence: ", the heading's word
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)")
_BRACKETED_FLAGS = re.compile(r" ?\((?:--[a-z0-9-]+(?: [a-z]+)?(?:, )?)+\)")
_FLAGS_AFTER_WORDS = re.compile(r"; (?:--[a-z0-9-]+(?:, )?)+(?=\))")


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
    question: str = ""


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
        lines = self.lines.setdefault(_section_of(message.id), [])
        lines.insert(0 if message.id in FIRST_LINES else len(lines), _line(message, self.language))

    def note(self, text: str) -> None:
        self.lines.setdefault("sources", []).append(text.strip())


def _line(message: Message, language: Language) -> str:
    """Return a message as a line of its section: without the words of the heading, and without flags, which no reader types."""
    if message.id == "fit.assumed":
        return language.text("report.assumed", values=message.values["values"])
    what = message.values.get("what") if message.id in UNPREFIXED_MESSAGES else None
    text = language.render(what if isinstance(what, Message) else message).strip()
    if message.id.startswith("estimate.tier-"):
        text = _PREFIX.sub("", text)
    return text if message.id == "recommend.reproduce" else without_flags(text)


def without_flags(text: str) -> str:
    """Return a text without the flags in parentheses that a terminal's reader would type; a whole command keeps its own.

    >>> without_flags("sorted by cost (--rank), vllm (default; --in, --out), spot (--risk even: sure)")
    'sorted by cost, vllm (default), spot (risk even: sure)'
    """
    if "whichgpu " in text:
        return text
    text = _BRACKETED_FLAGS.sub("", text)
    return _FLAG.sub(lambda match: match[1].replace("-", " "), _FLAGS_AFTER_WORDS.sub("", text))


def report_of(
    answer: Any,
    show: Callable[[Any, Any], object],
    language: Language,
    command: str,
    sources: Mapping[str, str],
    question: str = "",
    further_tables: Sequence[RecordedTable] = (),
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
    printed = [part for part in session.parts if isinstance(part, RecordedTable)]
    shortened = [msgspec.structs.replace(one, rows=one.rows[:MAX_ROWS]) for one in printed]
    tables = (*shortened[: MAX_TABLES - len(further_tables)], *further_tables)
    return ReportPage(session.sentence, tables, sections, question)


def _section_of(id: str) -> str:
    """Return the section of a message: the one that names its whole id, else the one with the longest beginning of it."""
    matches = [
        (len(pattern), name)
        for name, (_, ids) in SECTIONS.items()
        for pattern in ids
        if id == pattern or (pattern[-1] in "-." and id.startswith(pattern))
    ]
    return max(matches)[1] if matches else "why"
