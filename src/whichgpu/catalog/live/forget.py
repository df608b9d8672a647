"""Deletion of a source from the user's store."""

from __future__ import annotations

import sqlite3

from whichgpu.base.names import unknown_word
from whichgpu.catalog.live.price_store import transaction


def forget(connection: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Delete a price source or one part of it (`own/colo`); return the snapshots deleted and the offers no other source has.

    Late snapshots of a part go with it: `colo@2026-01-01` with `colo`.
    """
    with transaction(connection):
        parts = connection.execute("SELECT id, source, scope FROM series ORDER BY source, scope").fetchall()
        chosen = [(id,) for id, *words in parts if _is_part(name, *words)]
        if not chosen:
            names = dict.fromkeys(word for _, source, scope in parts for word in (source, f"{source}/{scope}"))
            raise unknown_word("series", name, tuple(names))
        count = sum(connection.execute("SELECT count(*) FROM batch WHERE series = ?", one).fetchone()[0] for one in chosen)
        connection.executemany("DELETE FROM quarantine WHERE batch IN (SELECT id FROM batch WHERE series = ?)", chosen)
        for table in ("price", "held", "availability", "batch"):
            connection.executemany(f"DELETE FROM {table} WHERE series = ?", chosen)
        connection.executemany("DELETE FROM series WHERE id = ?", chosen)
        gone = connection.execute("DELETE FROM offer WHERE id NOT IN (SELECT offer FROM held)").rowcount
        connection.execute("DELETE FROM validator")  # Cached HTTP validators do not name their source, so all are deleted.
    return count, gone


def _is_part(name: str, source: str, scope: str) -> bool:
    wanted_source, slash, part = name.partition("/")
    return wanted_source == source and (not slash or scope == part or scope.startswith(f"{part}@"))
