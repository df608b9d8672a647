"""Display of catalog rows as a list, or of every fact about one named row, with their sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.host import Source
from whichgpu.surface.commands.session import Session


def show_listing(
    session: Session,
    answer: object,
    rows: Sequence[Any],
    sources: Sequence[Source],
    columns: Sequence[str],
    count: Message,
    sentence: Callable[[Any], Message],
    extra_facts: Sequence[tuple[str, str]] = (),
) -> None:
    """Print catalog rows: one named row as facts under a sentence, or several as a table under their count."""
    if session.has_names and len(rows) == 1:
        session.show_one(answer, rows[0], sentence(rows[0]), extra_facts)
        say_sources(session, sources)
    else:
        session.show(answer, rows, columns, count)
        say_source_count(session, rows, sources)


def say_sources(session: Session, sources: Sequence[Source], max_count: int | None = None) -> None:
    """Print one line per source with its address and date; at most `max_count`, then how many more there are."""
    if not sources:
        return
    session.say(msg("sources.heading"))
    for source in sources[:max_count]:
        day = f", {source.published}" if source.published else ""
        session.note(f"  {source.title} ({source.publisher}{day}) {source.url}")
    if max_count is not None and len(sources) > max_count:
        session.say(msg("sources.rest", n=len(sources) - max_count))


def say_source_count(session: Session, rows: Sequence[Any], sources: Sequence[Source]) -> None:
    """Print on how many documents a list is based, and when its oldest row was checked."""
    session.say(msg("sources.count", n=len(sources), checked=min(row.checked for row in rows)))
