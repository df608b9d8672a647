"""Where the figures shown come from, said after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from whichgpu.base.messages import msg
from whichgpu.catalog.host import Source
from whichgpu.surface.commands.session import Session


def say_sources(session: Session, sources: Sequence[Source], most: int | None = None) -> None:
    """One line a source, with its address and the day it was published where known; the first few where there are many."""
    if not sources:
        return
    session.say(msg("sources.heading"))
    for source in sources[:most]:
        dated = f", {source.published}" if source.published else ""
        session.note(f"  {source.title} ({source.publisher}{dated}) {source.url}")
    if most is not None and len(sources) > most:
        session.say(msg("sources.rest", n=len(sources) - most))


class Checked(Protocol):
    """A row that says when it was last checked."""

    @property
    def checked(self) -> str:
        """The day."""
        ...


def say_where_from(session: Session, rows: Sequence[Checked], sources: Sequence[Source]) -> None:
    """Under a list: how many documents stand behind it, when its rows were checked, and where to see them."""
    oldest = min(row.checked for row in rows)
    session.say(msg("sources.count", n=len(sources), checked=oldest))
