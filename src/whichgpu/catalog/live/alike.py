"""Offers alike in all but the machine's name: of each such group in a large price store, only the cheapest are read.

A price list may name a million machines. Those of one seller with the same GPUs, region, term and currency differ in their price
alone, so an answer needs the cheapest of them and the number of the others. The tables here list both. They are rebuilt after
each import, and not used if another snapshot was saved since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection

from whichgpu.base.version import __version__
from whichgpu.catalog.live.price_store import transaction
from whichgpu.catalog.offer import KEPT_OFFERS, OfferGroup

MIN_OFFERS = 20_000  # Smaller stores are read whole, in a fraction of a second.

_TABLES = (
    "CREATE TABLE IF NOT EXISTS alike_state(snapshot INTEGER NOT NULL, snapshots INTEGER NOT NULL, version TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS alike_kept(offer INTEGER PRIMARY KEY)",
    """CREATE TABLE IF NOT EXISTS alike_left_out(
        gpu TEXT NOT NULL, provider TEXT NOT NULL, region TEXT NOT NULL, gpus REAL NOT NULL, term TEXT NOT NULL,
        payment TEXT NOT NULL, includes TEXT NOT NULL, currency TEXT NOT NULL, offers INTEGER NOT NULL
    )""",
)
_GROUP = "gpu, provider, region, gpus, term, payment, includes, currency"
_MACHINE = "gpu, provider, instance, region, gpus, term, payment, includes"
_SAME_GROUP = " AND ".join(f"g.{name} = o.{name}" for name in _GROUP.split(", "))
_STEPS = (
    f"CREATE TEMP TABLE alike_group(id INTEGER PRIMARY KEY, {_GROUP}, UNIQUE({_GROUP}))",
    f"INSERT OR IGNORE INTO temp.alike_group({_GROUP}) SELECT {_GROUP} FROM offer",
    # The newest interval of each offer in each series, with the last day for which it is evidence.
    f"""CREATE TEMP TABLE latest AS
    SELECT o.id AS offer, g.id AS alike, p.series, p.first, p.ended, CAST(p.amount AS REAL) AS value,
        p.upfront <> '' OR is_known(o.provider, o.instance) AS always,
        CASE WHEN p.end_batch IS NULL THEN n.day ELSE coalesce(p.ended, p.last) END AS known
    FROM offer o CROSS JOIN temp.alike_group g ON {_SAME_GROUP}
    CROSS JOIN held h ON h.offer = o.id
    CROSS JOIN price p ON p.offer = h.offer AND p.series = h.series AND (p.first, p.batch) = (
        SELECT x.first, x.batch FROM price x WHERE x.offer = h.offer AND x.series = h.series
        ORDER BY x.first DESC, x.batch DESC LIMIT 1
    )
    CROSS JOIN (SELECT series, max(seen) AS day FROM batch GROUP BY series) n ON n.series = p.series""",
    # Offers in several series or currencies: the one with the latest evidence is valid.
    f"""CREATE TEMP TABLE contested AS SELECT o.id AS offer, m.machine FROM (
        SELECT min(id) AS machine, {_MACHINE} FROM offer GROUP BY {_MACHINE} HAVING count(*) > 1
    ) m JOIN offer o USING ({_MACHINE})
    UNION SELECT offer, offer FROM held GROUP BY offer HAVING count(*) > 1""",
    """CREATE TEMP TABLE superseded AS SELECT id FROM (
        SELECT l.rowid AS id, row_number() OVER (PARTITION BY c.machine ORDER BY l.known DESC, l.first DESC) AS place
        FROM (SELECT offer, min(machine) AS machine FROM temp.contested GROUP BY offer) c JOIN temp.latest l USING (offer)
    ) WHERE place > 1""",
    """CREATE TEMP TABLE ranked AS
    SELECT offer, alike, always, row_number() OVER (PARTITION BY alike, series, known, always ORDER BY value, offer) AS place
    FROM temp.latest WHERE ended IS NULL AND rowid NOT IN (SELECT id FROM temp.superseded)""",
)


def rank_alike(connection: sqlite3.Connection, is_known: Callable[[str, str], bool]) -> None:
    """List which offers of a large price store are read: the cheapest of each group, and those of machines with own rules.

    `is_known` says of a provider and a machine's name whether the catalog has prices or rules for it.
    """
    if connection.execute("SELECT count(*) FROM offer").fetchone()[0] < MIN_OFFERS:
        return
    connection.create_function("is_known", 2, is_known, deterministic=True)
    with transaction(connection):
        for statement in (*_TABLES, "DELETE FROM alike_state", "DELETE FROM alike_kept", "DELETE FROM alike_left_out"):
            connection.execute(statement)
        for statement in _STEPS:
            connection.execute(statement)
        connection.execute("INSERT INTO alike_kept SELECT DISTINCT offer FROM temp.latest WHERE always")
        values = {"kept": KEPT_OFFERS}
        connection.execute("INSERT OR IGNORE INTO alike_kept SELECT offer FROM temp.ranked WHERE place <= :kept", values)
        connection.execute(
            f"""INSERT INTO alike_left_out SELECT {_GROUP}, count(*) FROM temp.ranked JOIN temp.alike_group g ON g.id = alike
            WHERE NOT always AND place > :kept GROUP BY alike""",
            values,
        )
        for table in ("alike_group", "latest", "contested", "superseded", "ranked"):
            connection.execute(f"DROP TABLE temp.{table}")
        connection.execute("INSERT INTO alike_state SELECT max(id), count(*), ? FROM batch", (__version__,))


def has_ranks(connection: sqlite3.Connection) -> bool:
    """Return whether the lists of the cheapest offers describe the store's newest snapshot."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alike_state'").fetchone():
        return False
    query = """SELECT 1 FROM alike_state WHERE version = ?
    AND (snapshot, snapshots) = (SELECT max(id), count(*) FROM batch)"""
    return connection.execute(query, (__version__,)).fetchone() is not None


def left_out(connection: sqlite3.Connection, gpus: Collection[str] | None) -> dict[OfferGroup, int]:
    """Return how many offers of these GPUs (None: all) are not among the cheapest of their group, by group."""
    groups: dict[OfferGroup, int] = {}
    for *names, offers in connection.execute(f"SELECT {_GROUP}, offers FROM alike_left_out"):
        gpu, provider, region, count, term, payment, includes, currency = names
        if gpus is None or gpu in gpus:
            number = int(count) if count == int(count) else count
            groups[OfferGroup(gpu, provider, region, number, term, payment or None, includes, currency)] = offers
    return groups
