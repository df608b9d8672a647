"""`estimate --requests`: a line out for each line in, in order. A long file is answered by several processes, model by model."""

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
from whichgpu.surface.commands.line_reader import Lines, opened, together
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document, error_body, without_blanks

OPTIONAL = (
    "fits usable headroom time time_device time_host throughput ttft tpot bound tier group run serving calibrated checked"
).split()
FEW = 200  # lines that this process has answered by the time others have started
MOST = 4  # processes: each reads the catalog and makes its own tables
MODEL = re.compile(rb'"model"\s*:\s*("[^"]*"|.{0,64})')


class Settings(NamedTuple):
    """What decides answers besides the lines; plain values that another process can be told."""

    folder: Path | None
    as_known: date | int | None
    own: bool
    language: str


class Written(NamedTuple):
    """A reply as it is written, and the exit code it would have alone."""

    line: int
    text: str
    code: int


def answer_requests(session: Session, source: str, own: bool = True) -> int:
    """Every line of a file, or of standard input as they come; succeeds where any line does."""
    first_error = 0
    with opened(source) as stream:
        lines = Lines(stream, source)
        for written in _written(lines, session, together(stream), own):
            session.out.write(written.text)
            session.out.flush()
            lines.answered += written.code == 0
            first_error = first_error or written.code
    if lines.answered:
        return 0
    if not first_error:
        raise UsageError("no-requests", msg("error.no-requests", name=source), msg("hint.request"))
    return first_error


def reply_document(reply: Reply, language: Language) -> dict[str, Any]:
    """A reply as it is written."""
    if reply.error is not None:
        return {"id": reply.id, "ok": False, "line": reply.line, "error": error_body(reply.error, language)}
    return {"id": reply.id, "ok": True, **without_blanks(document(reply.answer, language), *OPTIONAL)}


def _written(lines: Iterable[bytes], session: Session, most: int, own: bool) -> Iterator[Written]:
    """Replies in order; lines are taken so many at a time."""
    lookups = untrusted_cache(session.catalog, own)
    settings = Settings(session.catalog_folder, session.as_known, own, session.language.code)
    with ExitStack() as stack:
        processes, count = None, 1
        for group in line_groups(lines, most):
            if len(group) >= FEW and processes is None and (count := min(cores(), MOST)) > 1:
                processes = stack.enter_context(ProcessPool(count))
            if processes is None or len(group) < FEW:
                yield from _told(group, lookups, session.language)
                continue
            parts = _by_model(group, len(group) // (2 * count))
            done = processes.run(_answered, [(settings, part) for part in parts])
            yield from sorted(written for _, told in done for written in told)


def _by_model(lines: Sequence[Numbered], most: int) -> list[list[Numbered]]:
    """Lines parted so that those of one model stay together, as far as one process has not most of them; the largest first."""
    found: dict[bytes, list[Numbered]] = {}
    for number, line in lines:
        named = MODEL.search(line)
        found.setdefault(named[1] if named else b"", []).append((number, line))
    parts = [alike[first : first + most] for alike in found.values() for first in range(0, len(alike), most)]
    return sorted(parts, key=len, reverse=True)


def _answered(settings: Settings, lines: Sequence[Numbered]) -> list[Written]:
    return list(_told(lines, _desk(settings), language(settings.language)))


@lru_cache(maxsize=1)
def _desk(settings: Settings) -> LookupCache:
    return untrusted_cache(Catalog(settings.folder, settings.as_known), settings.own)


def _told(lines: Sequence[Numbered], lookups: LookupCache, words: Language) -> Iterator[Written]:
    for reply in replies(lines, lookups):
        yield Written(reply.line, to_json_line(reply_document(reply, words)), reply.error.exit_code if reply.error else 0)
