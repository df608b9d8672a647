"""Keeping a batch: its runs of prices opened, closed or left as they are, all in one transaction."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace
from datetime import date

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.jumps import mark_jumps
from whichgpu.catalog.live.plausibility import mark_contradictions
from whichgpu.catalog.live.price_store import transaction
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import PriceBatch
from whichgpu.catalog.live.staging import BatchSummary, count_staged, drop_staging_tables, stage_batch

KEY = "gpu, provider, instance, region, gpus, term, payment, includes, currency"
FEWEST, SHARE = 50, 0.2  # a list of so many that shrinks below this share is more likely broken than short


@dataclass(frozen=True, slots=True)
class _Series:
    id: int
    newest: int | None  # day of its last look
    side: int | None  # a look older than the last: the day of the look after it


def save_batch(
    connection: sqlite3.Connection, batch: PriceBatch, resolver: Resolver, today: date, reader: str, trusting: bool = False
) -> BatchSummary:
    """Stage, inspect and keep a batch. An error at any point leaves the store as it was."""
    if batch.unchanged:
        with transaction(connection):
            return _unchanged(connection, batch, today)
    prices, seen = stage_batch(connection, batch, resolver, today)
    with transaction(connection):
        series = _series(connection, batch, seen)
        if connection.execute("SELECT 1 FROM offer LIMIT 1").fetchone():
            connection.execute(_FIND)
        goes_on = batch.complete and series.side is None and not trusting
        mark_contradictions(connection)
        if not trusting:
            mark_jumps(connection, series.id, seen, resolver)
        kept, reasons, unknown = count_staged(connection)
        offers = _match(connection, dated=not batch.complete)
        if goes_on:
            _refuse_shrunk(connection, series.id, offers, batch)
        content = batch.content or (seen if seen != batch.seen else None)
        read = (batch.read.rows, batch.read.aside, prices, kept, offers, sum(unknown.values()))
        taken = BatchSummary(batch.source, batch.scope, seen, *read, reasons, unknown, content)
        id = _record(connection, series.id, taken, today, batch.read.digest)
        changed = _write(connection, batch, series, id, seen)
        connection.execute("UPDATE batch SET changes = ? WHERE id = ?", (changed, id))
        _quarantine(connection, series.id, id)
        _validators(connection, batch, reader)
    drop_staging_tables(connection)
    return replace(taken, changed=changed)


def _series(connection: sqlite3.Connection, batch: PriceBatch, seen: date) -> _Series:
    """The series a batch goes on with; a look older than the last one gets a series of its own beside it."""
    found = _series_id(connection, batch.source, batch.scope)
    newest = connection.execute("SELECT max(seen) FROM batch WHERE series = ?", (found,)).fetchone()[0]
    if not batch.complete or newest is None or seen.toordinal() >= newest:
        return _Series(found, newest, None)
    later = connection.execute(
        """SELECT min(seen) FROM batch WHERE seen > :seen AND series IN (
            SELECT id FROM series WHERE source = :source AND (scope = :scope OR scope GLOB :scope || '@*'))""",
        {"seen": seen.toordinal(), "source": batch.source, "scope": batch.scope},
    )
    after = later.fetchone()[0]
    return _Series(_series_id(connection, batch.source, f"{batch.scope}@{seen.isoformat()}"), None, after)


def _series_id(connection: sqlite3.Connection, source: str, scope: str) -> int:
    connection.execute("INSERT OR IGNORE INTO series(source, scope) VALUES (?, ?)", (source, scope))
    found = connection.execute("SELECT id FROM series WHERE source = ? AND scope = ?", (source, scope)).fetchone()[0]
    assert isinstance(found, int)
    return found


_FIND = f"""
UPDATE temp.kind SET store = offer.id FROM offer WHERE {" AND ".join(f"offer.{name} = kind.{name}" for name in KEY.split(", "))}
"""


def _match(connection: sqlite3.Connection, dated: bool) -> int:
    """Make the offers the store lacks, and merge zones and repeated lines, lowest price first; how many offers there are."""
    last = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM offer").fetchone()[0]
    connection.execute(
        f"""INSERT INTO offer(id, {KEY}) SELECT ? + id, {KEY} FROM temp.kind
        WHERE store IS NULL AND id IN (SELECT kind FROM temp.incoming WHERE reason IS NULL)""",
        (last,),
    )
    connection.execute("UPDATE temp.kind SET store = ? + id WHERE store IS NULL", (last,))
    zones = "''" if dated else "substr(coalesce('zones: ' || group_concat(DISTINCT nullif(zone, '')), ''), 1, 300)"
    connection.execute(
        f"""CREATE TEMP TABLE matched AS
        SELECT k.store AS offer, day, amount, upfront, min(value) AS value,
            coalesce(nullif(availability, ''), {zones}) AS availability
        FROM temp.incoming i JOIN temp.kind k ON k.id = i.kind WHERE reason IS NULL
        GROUP BY i.kind{", day" if dated else ""}"""
    )
    connection.execute("CREATE INDEX temp.matched_offer ON matched(offer, day)")
    what = "DISTINCT offer" if dated else "*"
    found = connection.execute(f"SELECT count({what}) FROM temp.matched").fetchone()[0]
    assert isinstance(found, int)
    return found


def _refuse_shrunk(connection: sqlite3.Connection, series: int, offers: int, batch: PriceBatch) -> None:
    before = connection.execute("SELECT count(*) FROM price WHERE series = ? AND last IS NULL", (series,)).fetchone()[0]
    if (before and not offers) or (before >= FEWEST and offers < before * SHARE):
        name = f"{batch.source}/{batch.scope}"
        raise DataError("shrunk", msg("error.shrunk", name=name, before=before, now=offers), msg("hint.shrunk"))


def _record(connection: sqlite3.Connection, series: int, taken: BatchSummary, today: date, digest: str | None) -> int:
    cursor = connection.execute(
        """INSERT INTO batch(series, seen, recorded, content, digest, rows, aside, prices, kept, offers, unknown, reasons)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            series,
            taken.seen.toordinal(),
            today.toordinal(),
            taken.content.toordinal() if taken.content else None,
            digest,
            taken.rows,
            taken.aside,
            taken.prices,
            taken.kept,
            taken.offers,
            taken.unknown,
            json.dumps(taken.reasons),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _write(connection: sqlite3.Connection, batch: PriceBatch, series: _Series, id: int, seen: date) -> int:
    """The runs; how many offers are new, gone or at another price."""
    days = {"seen": seen.toordinal(), "before": series.newest, "after": series.side}
    values = {"series": series.id, "batch": id, "source": batch.source, "scope": batch.scope, **days}
    if not batch.complete:
        changed = connection.execute(_DATED if series.newest is None else _DATED + _UNLESS_KNOWN, values).rowcount
    elif series.side is not None:
        changed = connection.execute(_ASIDE, values).rowcount
    elif series.newest is None:
        changed = connection.execute(_OPEN, values).rowcount
    else:
        closed = connection.execute(_CLOSE, values).rowcount
        opened = connection.execute(_OPEN + _UNLESS_OPEN, values).rowcount
        both = connection.execute(_BOTH, values).fetchone()[0]
        changed = closed + opened - both
    connection.execute(_HELD, values)
    if connection.execute(_ANY_WORDS, values).fetchone():
        connection.execute(_AVAILABILITY, values)
    return changed


_CLOSE = """
UPDATE price SET last = :before, ended = :seen, end_batch = :batch
WHERE series = :series AND last IS NULL AND NOT EXISTS (
    SELECT 1 FROM temp.matched m WHERE m.offer = price.offer AND m.amount = price.amount AND m.upfront = price.upfront
)
"""
_OPEN = """
INSERT INTO price(offer, series, first, batch, amount, upfront)
SELECT m.offer, :series, :seen, :batch, m.amount, m.upfront FROM temp.matched m
"""
_UNLESS_OPEN = """
WHERE NOT EXISTS (SELECT 1 FROM price p WHERE p.series = :series AND p.offer = m.offer AND p.last IS NULL)
"""
_BOTH = """
SELECT count(*) FROM price p WHERE p.series = :series AND p.end_batch = :batch
AND EXISTS (SELECT 1 FROM price n WHERE n.offer = p.offer AND n.series = :series AND n.batch = :batch)
"""
# A look that comes in late ends an offer only where the look after it, of its own part of the source, does not have it.
_ASIDE = """
INSERT OR IGNORE INTO price(offer, series, first, batch, last, ended, end_batch, amount, upfront)
SELECT m.offer, :series, :seen, :batch, :seen, CASE WHEN EXISTS (
    SELECT 1 FROM price p JOIN series s ON s.id = p.series
    WHERE p.offer = m.offer AND p.first <= :after AND coalesce(p.last, :after) >= :after
      AND s.source = :source AND (s.scope = :scope OR s.scope GLOB :scope || '@*')
) THEN NULL ELSE :after END, :batch, m.amount, m.upfront FROM temp.matched m
"""
# Rows with days of their own: equal prices on neighbouring days are one run, ended by the next run of the same offer.
_DATED = """
INSERT OR IGNORE INTO price(offer, series, first, batch, last, ended, end_batch, amount, upfront)
WITH steps AS (
    SELECT offer, day, amount, upfront,
        (amount, upfront) IS NOT (lag(amount) OVER days, lag(upfront) OVER days) AS is_new
    FROM temp.matched WINDOW days AS (PARTITION BY offer ORDER BY day)
), runs AS (
    SELECT offer, day, amount, upfront, sum(is_new) OVER (PARTITION BY offer ORDER BY day) AS run FROM steps
), spans AS (
    SELECT offer, min(day) AS first, max(day) AS last, amount, upfront FROM runs GROUP BY offer, run
)
SELECT offer, :series, first, :batch, last, lead(first) OVER (PARTITION BY offer ORDER BY first), :batch, amount, upfront
FROM spans s
"""
_UNLESS_KNOWN = """
WHERE NOT EXISTS (
    SELECT 1 FROM price p WHERE p.offer = s.offer AND p.series = :series AND p.amount = s.amount AND p.upfront = s.upfront
    AND p.first <= s.first AND p.last >= s.last
)
"""
_HELD = "INSERT OR IGNORE INTO held(offer, series) SELECT DISTINCT offer, :series FROM temp.matched"
_ANY_WORDS = """
SELECT 1 WHERE EXISTS (SELECT 1 FROM temp.matched WHERE availability <> '')
OR EXISTS (SELECT 1 FROM availability a JOIN temp.matched m ON m.offer = a.offer WHERE a.series = :series)
"""
_AVAILABILITY = """
INSERT OR REPLACE INTO availability(offer, series, batch, words)
SELECT offer, :series, :batch, max(availability) AS words FROM temp.matched m GROUP BY offer
HAVING words <> coalesce((
    SELECT a.words FROM availability a WHERE a.offer = m.offer AND a.series = :series ORDER BY a.batch DESC LIMIT 1
), '')
"""


def _quarantine(connection: sqlite3.Connection, series: int, id: int) -> None:
    """The refused rows of the newest look of each series; of older ones the counts are kept."""
    connection.execute("DELETE FROM quarantine WHERE batch IN (SELECT id FROM batch WHERE series = ?)", (series,))
    connection.execute(
        """INSERT INTO quarantine(batch, reason, detail, provider, instance, region, accelerator, term, payment, price, currency)
        SELECT ?, * FROM temp.refused""",
        (id,),
    )


def _validators(connection: sqlite3.Connection, batch: PriceBatch, reader: str) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO validator(url, etag, modified, reader) VALUES (?, ?, ?, ?)",
        [(known.url, known.etag, known.modified, reader) for known in batch.validators if known.etag or known.modified],
    )


def _unchanged(connection: sqlite3.Connection, batch: PriceBatch, today: date) -> BatchSummary:
    """One more look that saw what the last one saw."""
    series = _series_id(connection, batch.source, batch.scope)
    last = connection.execute(
        """SELECT id, content, digest, rows, aside, prices, kept, offers, unknown, reasons, seen
        FROM batch WHERE series = ? ORDER BY id DESC LIMIT 1""",
        (series,),
    ).fetchone()
    if last is None:  # cannot be: only what was kept has validators
        raise DataError("shrunk", msg("error.shrunk", name=batch.source, before=0, now=0), msg("hint.shrunk"))
    old, content, digest, rows, aside, prices, kept, offers, unknown, reasons, seen = last
    day = date.fromordinal(seen) if content is not None and content == seen else max(batch.seen, date.fromordinal(seen))
    known = date.fromordinal(content) if content is not None else None
    taken = BatchSummary(
        batch.source, batch.scope, day, rows, aside, prices, kept, offers, unknown, json.loads(reasons), {}, known, 0, True
    )
    id = _record(connection, series, taken, today, digest)
    connection.execute("UPDATE quarantine SET batch = ? WHERE batch = ?", (id, old))
    return taken
