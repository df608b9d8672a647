"""Queries of the price store: offers on a day, price history, changes between snapshots, age of sources."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from whichgpu.catalog.offer import STALE_DAYS, Observation

FOREVER = date.max.toordinal()
NO_BATCH = (1 << 62) - 1  # A snapshot number above all others, for queries without a limit.


class OfferQuery(msgspec.Struct, frozen=True):
    """Constraints on the offers to read from the price store; None is no constraint."""

    gpus: frozenset[str] | None = None
    provider: str | None = None
    region: str | None = None
    instance: str | None = None
    terms: frozenset[str] | None = None


class SeriesStatus(msgspec.Struct, frozen=True):
    """Status of one part of a price source (such as one region): number of offers, and age of its content."""

    source: str
    scope: str
    snapshots: int
    last_snapshot: int  # snapshot number, as in `catalog diff @A @B`
    last_look: str  # day of the last snapshot
    content: str  # day the content last changed, as the source states or else as first seen
    age_days: int  # days since `content`
    stale: bool
    offers: int
    quarantined: int
    unknown: int


_OFFER = "o.provider, o.instance, o.region, o.gpu, o.gpus, o.term, o.payment, o.currency, o.includes"
_PRICE = "p.amount, p.upfront, p.first, p.last, p.ended, p.end_batch, p.batch, p.series"

Row = tuple[object, ...]


class _Snapshots:
    """Days of all snapshots in the price store up to the number `horizon`, in memory, so that queries need no SQL joins."""

    def __init__(self, connection: sqlite3.Connection, horizon: int) -> None:
        self.horizon = horizon
        self._sources = dict(connection.execute("SELECT id, source FROM series"))
        query = "SELECT id, series, seen, recorded FROM batch WHERE id <= ? ORDER BY id"
        self._newest: dict[int, int] = {}
        self._recorded: dict[int, str] = {}
        for id, series, day, recorded in connection.execute(query, (horizon,)):
            self._newest[series] = max(day, self._newest.get(series, 0))
            self._recorded[id] = _iso(recorded)

    def observation(self, row: tuple[Any, ...]) -> Observation:
        """Build the observation of a stored price; it counts as still listed if a snapshot after `horizon` ended it."""
        (provider, instance, region, gpu, gpus, term, payment, currency, includes, amount, upfront, first, last, ended,
         end_batch, batch, series, availability) = row  # fmt: skip
        if end_batch is None or end_batch > self.horizon:
            last, ended = self._newest[series], None
        return Observation(
            provider,
            instance,
            region,
            gpu,
            int(gpus) if gpus == int(gpus) else gpus,
            term,
            payment or None,
            _decimal(amount),
            currency,
            _decimal(upfront) if upfront else None,
            includes,
            _iso(first),
            _iso(last),
            None if ended is None else _iso(ended),
            self._sources[series],
            self._recorded[batch],
            availability or None,
        )


def snapshot_horizon(connection: sqlite3.Connection, known_by: date | int | None) -> int:
    """Return the highest snapshot number that a query may use: `known_by` itself, or that of the last snapshot by that day."""
    if known_by is None:
        return NO_BATCH
    if isinstance(known_by, int):
        return known_by
    newest = connection.execute("SELECT max(id) FROM batch WHERE recorded <= ?", (known_by.toordinal(),)).fetchone()[0]
    return int(newest or 0)


def offers_on(
    connection: sqlite3.Connection,
    day: date | None,
    known_by: date | int | None = None,
    query: OfferQuery = OfferQuery(),  # noqa: B008 - frozen
    also_ended: bool = False,
    cheapest: bool = False,
) -> list[Observation]:
    """Return the last observation of each offer and part of a source up to a day; those no longer listed if `also_ended`.

    `cheapest` reads only those that `alike.rank_alike` listed.
    """
    where, values = _conditions(query)
    offers = "alike_kept k CROSS JOIN offer o ON o.id = k.offer" if cheapest else "offer o"
    snapshots = _Snapshots(connection, snapshot_horizon(connection, known_by))
    values |= {"day": FOREVER if day is None else day.toordinal(), "h": snapshots.horizon}
    # CROSS JOIN fixes the order: one index look-up in `price` per offer and series, however long the history.
    sql = f"""
    SELECT {_OFFER}, {_PRICE}, (
        SELECT a.words FROM availability a WHERE a.offer = h.offer AND a.series = h.series AND a.batch <= :h
        ORDER BY a.batch DESC LIMIT 1
    ) FROM {offers}
    CROSS JOIN held h ON h.offer = o.id
    CROSS JOIN price p ON p.offer = h.offer AND p.series = h.series AND (p.first, p.batch) = (
        SELECT x.first, x.batch FROM price x
        WHERE x.offer = h.offer AND x.series = h.series AND x.first <= :day AND x.batch <= :h
        ORDER BY x.first DESC, x.batch DESC LIMIT 1
    )
    WHERE {where} AND ({int(also_ended)} OR NOT coalesce(p.end_batch <= :h AND p.ended <= :day, 0))
    """
    return list(map(snapshots.observation, connection.execute(sql, values)))


def price_history(connection: sqlite3.Connection, query: OfferQuery, known_by: date | int | None = None) -> Iterator[Observation]:
    """Yield every price of the matching offers, with the first and last day it was seen, oldest first."""
    where, values = _conditions(query)
    snapshots = _Snapshots(connection, snapshot_horizon(connection, known_by))
    values["h"] = snapshots.horizon
    sql = f"""SELECT {_OFFER}, {_PRICE}, '' FROM price p JOIN offer o ON o.id = p.offer
    WHERE {where} AND p.batch <= :h ORDER BY p.first, p.batch, o.id"""
    return map(snapshots.observation, connection.execute(sql, values))


def snapshot_observations(connection: sqlite3.Connection, number: int) -> list[Observation] | None:
    """Return the prices in one snapshot of the price store; None if there is none of that number."""
    series = connection.execute("SELECT series FROM batch WHERE id = ?", (number,)).fetchone()
    if series is None:
        return None
    snapshots = _Snapshots(connection, number)
    query = f"""SELECT {_OFFER}, {_PRICE}, '' FROM price p JOIN offer o ON o.id = p.offer
    WHERE p.series = :series AND p.batch <= :h AND (p.end_batch IS NULL OR p.end_batch > :h OR p.end_batch = p.batch)"""
    return list(map(snapshots.observation, connection.execute(query, {"series": series[0], "h": number})))


def changes_since(connection: sqlite3.Connection, number: int, query: OfferQuery) -> Iterator[tuple[Observation, bool]]:
    """Yield prices first listed (True) or no longer listed (False) after the snapshot of that number."""
    where, values = _conditions(query)
    values["since"] = number
    snapshots = _Snapshots(connection, NO_BATCH)
    sql = f"""SELECT p.batch, {_OFFER}, {_PRICE}, '' FROM price p JOIN offer o ON o.id = p.offer
    WHERE {where} AND (p.batch > :since OR p.end_batch > :since) ORDER BY p.first, p.batch, o.id"""
    for began, *row in connection.execute(sql, values):
        yield snapshots.observation(tuple(row)), began > number


def newest_snapshot(connection: sqlite3.Connection) -> int:
    """Return the number of the newest snapshot in the price store."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM batch").fetchone()[0])


def series_status(connection: sqlite3.Connection, today: date) -> list[SeriesStatus]:
    """Return the size and age of each part of each price source."""
    query = """
    SELECT s.source, s.scope, count(*), max(b.id), max(b.recorded),
        (SELECT coalesce(c.content, c.seen) FROM batch c WHERE c.series = s.id AND (c.content IS NOT NULL OR c.changes > 0)
         ORDER BY c.id DESC LIMIT 1)
    FROM series s JOIN batch b ON b.series = s.id GROUP BY s.id ORDER BY s.source, s.scope
    """
    return [_status(connection, row, today) for row in connection.execute(query)]


def quarantined_rows(connection: sqlite3.Connection, source: str | None = None) -> list[dict[str, str]]:
    """Return the price rows of the newest snapshots that failed a check (quarantined), each with its reason."""
    names = ("source", "scope", "reason", "detail", "provider", "instance", "region", "accelerator", "term", "price", "currency")
    query = """SELECT s.source, s.scope, q.reason, q.detail, q.provider, q.instance, q.region, q.accelerator, q.term, q.price,
        q.currency FROM quarantine q JOIN batch b ON b.id = q.batch JOIN series s ON s.id = b.series
        WHERE :source IS NULL OR s.source = :source ORDER BY s.source, s.scope, q.reason, q.id"""
    rows = connection.execute(query, {"source": source})
    return [dict(zip(names, ("" if cell is None else str(cell) for cell in row), strict=True)) for row in rows]


def _status(connection: sqlite3.Connection, row: Row, today: date) -> SeriesStatus:
    source, scope, count, batch, looked, content = row
    last = connection.execute("SELECT offers, reasons, unknown FROM batch WHERE id = ?", (batch,)).fetchone()
    assert isinstance(looked, int)
    day = date.fromordinal(content if isinstance(content, int) else looked)
    age = max(0, (today - day).days)
    return SeriesStatus(
        str(source),
        str(scope),
        int(str(count)),
        int(str(batch)),
        date.fromordinal(looked).isoformat(),
        day.isoformat(),
        age,
        age > STALE_DAYS,
        last[0],
        sum(json.loads(last[1]).values()),
        last[2],
    )


def _conditions(query: OfferQuery) -> tuple[str, dict[str, object]]:
    """Return the SQL conditions of a query on the table alias `o` (offers), and their values."""
    parts, values = ["1"], dict[str, object]()
    if query.gpus is not None:
        parts.append(f"o.gpu IN ({_placeholders('gpu', query.gpus, values)})")
    if query.terms is not None:
        parts.append(f"o.term IN ({_placeholders('term', query.terms, values)})")
    for name in ("provider", "region", "instance"):
        if getattr(query, name) is not None:
            parts.append(f"o.{name} = :{name}")
            values[name] = getattr(query, name)
    return " AND ".join(parts), values


def _placeholders(name: str, words: Iterable[str], values: dict[str, object]) -> str:
    keys = []
    for number, word in enumerate(sorted(words)):
        values[f"{name}{number}"] = word
        keys.append(f":{name}{number}")
    return ", ".join(keys) or "NULL"


@lru_cache(maxsize=8192)
def _iso(ordinal: int) -> str:
    return date.fromordinal(ordinal).isoformat()


@lru_cache(maxsize=8192)
def _decimal(text: str) -> Decimal:
    return Decimal(text)
