"""Names of the user's records of measurements among the sources of an estimate."""

from __future__ import annotations

from collections.abc import Iterable

from whichgpu.base.messages import Message, msg

RECORD_PREFIX = "measured-"  # how the names of records begin


def own_record_note(sources: Iterable[str]) -> tuple[Message, ...]:
    """Return a note that names the user's records among the sources of step times; nothing if there are none."""
    records = tuple(one for one in dict.fromkeys(sources) if one.startswith(RECORD_PREFIX))
    return (msg("note.own-records", records=records),) if records else ()
