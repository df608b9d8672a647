"""`estimate --requests`: one output line per input line, in order. Several processes answer a long file, model by model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from whichgpu.api.workloads.stream import Numbered, Reply, line_groups, replies, untrusted_cache
from whichgpu.base.codec import to_json_line
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Language, language, msg
from whichgpu.base.parallel.process_pool import ProcessPool, cores
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.surface.commands.line_reader import Lines, batch_size, open_source
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document, error_body, without_blanks

OPTIONAL_FIELDS = (
    "fits usable headroom time time_device time_host throughput ttft tpot bound tier new_on group run serving calibrated checked"
).split()
MIN_POOL_LINES = 200  # Fewer lines are answered in this process sooner than other processes start.
MAX_PROCESSES = 4  # Largest number of processes, since each loads the catalog and builds its own tables.
MODEL = re.compile(rb'"model"\s*:\s*("[^"]*"|.{0,64})')


class AnswerSettings(NamedTuple):
    """Inputs common to the answers of all lines, as plain values that can be sent to another process."""

    folder: Path | None
    as_known: date | int | None
    own: bool
    language: str


class ReplyLine(NamedTuple):
    """A reply as a line of JSON, and the exit code of a run with only this line."""

    line: int
    text: str
    code: int


def answer_requests(session: Session, source: str, own: bool = True) -> int:
    """Answer every line of a file or of standard input; return 0 if any line succeeds, else the first error's exit code."""
    first_error = 0
    with open_source(source, lambda: session.say(msg("requests.waiting", name=source))) as stream:
        lines = Lines(stream, source)
        for reply in _reply_lines(lines, session, batch_size(stream), own):
            session.out.write(reply.text)
            session.out.flush()
            lines.answered += reply.code == 0
            first_error = first_error or reply.code
    if lines.answered:
        return 0
    if not first_error:
        raise UsageError("no-requests", msg("error.no-requests", name=source), msg("hint.request"))
    return first_error


def reply_document(reply: Reply, language: Language) -> dict[str, Any]:
    """Return the reply to one request line as a JSON document: its id, and the answer, or the error with the line number."""
    if reply.error is not None:
        return {"id": reply.id, "ok": False, "line": reply.line, "error": error_body(reply.error, language)}
    return {"id": reply.id, "ok": True, **without_blanks(document(reply.answer, language), *OPTIONAL_FIELDS)}


def _reply_lines(lines: Iterable[bytes], session: Session, batch: int, own: bool) -> Iterator[ReplyLine]:
    """Yield the replies to request lines in order, answering `batch` lines at a time."""
    lookups = untrusted_cache(session.catalog, own)
    settings = AnswerSettings(session.catalog_folder, session.as_known, own, session.language.code)
    with ExitStack() as stack:
        processes, count = None, 1
        for group in line_groups(lines, batch):
            if len(group) >= MIN_POOL_LINES and processes is None and (count := min(cores(), MAX_PROCESSES)) > 1:
                processes = stack.enter_context(ProcessPool(count))
            if processes is None or len(group) < MIN_POOL_LINES:
                yield from _replies(group, lookups, session.language)
                continue
            parts = _by_model(group, len(group) // (2 * count))
            done = processes.run(_answer_part, [(settings, part) for part in parts])
            yield from sorted(reply for _, part in done for reply in part)


def _by_model(lines: Sequence[Numbered], max_lines: int) -> list[list[Numbered]]:
    """Group lines by model into parts of at most `max_lines`, the largest first."""
    groups: dict[bytes, list[Numbered]] = {}
    for number, line in lines:
        match = MODEL.search(line)
        groups.setdefault(match[1] if match else b"", []).append((number, line))
    parts = [group[first : first + max_lines] for group in groups.values() for first in range(0, len(group), max_lines)]
    return sorted(parts, key=len, reverse=True)


def _answer_part(settings: AnswerSettings, lines: Sequence[Numbered]) -> list[ReplyLine]:
    return list(_replies(lines, _lookups(settings), language(settings.language)))


@lru_cache(maxsize=1)
def _lookups(settings: AnswerSettings) -> LookupCache:
    return untrusted_cache(Catalog(settings.folder, settings.as_known), settings.own)


def _replies(lines: Sequence[Numbered], lookups: LookupCache, words: Language) -> Iterator[ReplyLine]:
    for reply in replies(lines, lookups):
        yield ReplyLine(reply.line, to_json_line(reply_document(reply, words)), reply.error.exit_code if reply.error else 0)
