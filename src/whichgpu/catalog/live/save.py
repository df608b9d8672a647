"""Save a batch of prices: price intervals are opened, closed or continued in one transaction."""

from __future__ import annotations

import json
import sqlite3
from datetime import date

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.jumps import mark_jumps
from whichgpu.catalog.live.plausibility import mark_contradictions
from whichgpu.catalog.live.price_store import transaction
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import OWN_LIST, PriceBatch
from whichgpu.catalog.live.staging import BatchSummary, count_staged, drop_staging_tables, stage_batch

KEY = "gpu, provider, instance, region, gpus, term, payment, includes, currency"
MIN_OFFERS, MIN_SHARE = 50, 0.2  # A list of 50 or more offers that shrinks below this share is rejected (assumed).


class _Series(msgspec.Struct, frozen=True):
    id: int
    newest: int | None  # day of the series' last snapshot
    next_day: int | None  # for a snapshot older than one already saved: the day of the next one after it


def save_batch(
    connection: sqlite3.Connection, batch: PriceBatch, resolver: Resolver, today: date, reader: str, trusting: bool = False
) -> BatchSummary:
    """Check a batch of prices and save it to the price store; an error leaves the store unchanged."""
    if batch.unchanged:
        with transaction(connection):
            return _unchanged(connection, batch, today)
    prices, day = stage_batch(connection, batch, resolver, today)
    with transaction(connection):
        series = _series(connection, batch, day)
        if connection.execute("SELECT 1 FROM offer LIMIT 1").fetchone():
            connection.execute(_MATCH_OFFERS)
        continues = batch.complete and series.next_day is None and not trusting
        mark_contradictions(connection)
        if not trusting:
            mark_jumps(connection, series.id, day, resolver, batch.source == OWN_LIST)
        accepted, reasons, unknown = count_staged(connection)
        offers = _match(connection, dated=not batch.complete)
        if continues:
            _reject_shrunk(connection, series.id, offers, batch)
        content = batch.content or (day if day != batch.observed_on else None)
        read = (batch.read.rows, batch.read.aside, prices, accepted, offers, sum(unknown.values()))
        summary = BatchSummary(batch.source, batch.scope, day, *read, reasons, unknown, content)
        id = _record(connection, series.id, summary, today, batch.read.digest)
        changed = _write(connection, batch, series, id, day)
        connection.execute("UPDATE batch SET changes = ? WHERE id = ?", (changed, id))
        _quarantine(connection, series.id, id)
        _validators(connection, batch, reader)
    drop_staging_tables(connection)
    return replace(summary, changed=changed)


def _series(connection: sqlite3.Connection, batch: PriceBatch, day: date) -> _Series:
    """Return the series (one part of a source over time) that a batch continues; an older snapshot gets a series of its own."""
    series = _series_id(connection, batch.source, batch.scope)
    newest = connection.execute("SELECT max(seen) FROM batch WHERE series = ?", (series,)).fetchone()[0]
    if not batch.complete or newest is None or day.toordinal() >= newest:
        return _Series(series, newest, None)
    later = connection.execute(
        """SELECT min(seen) FROM batch WHERE seen > :seen AND series IN (
            SELECT id FROM series WHERE source = :source AND (scope = :scope OR scope GLOB :scope || '@*'))""",
        {"seen": day.toordinal(), "source": batch.source, "scope": batch.scope},
    )
    after = later.fetchone()[0]
    return _Series(_series_id(connection, batch.source, f"{batch.scope}@{day.isoformat()}"), None, after)


def _series_id(connection: sqlite3.Connection, source: str, scope: str) -> int:
    connection.execute("INSERT OR IGNORE INTO series(source, scope) VALUES (?, ?)", (source, scope))
    id = connection.execute("SELECT id FROM series WHERE source = ? AND scope = ?", (source, scope)).fetchone()[0]
    assert isinstance(id, int)
    return id


_MATCH_OFFERS = f"""
UPDATE temp.kind SET store = offer.id FROM offer WHERE {" AND ".join(f"offer.{name} = kind.{name}" for name in KEY.split(", "))}
"""


def _match(connection: sqlite3.Connection, dated: bool) -> int:
    """Add a batch's new offers to the store, each at the lowest price of its zones; return the number of offers in the batch."""
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
    count = connection.execute(f"SELECT count({what}) FROM temp.matched").fetchone()[0]
    assert isinstance(count, int)
    return count


def _reject_shrunk(connection: sqlite3.Connection, series: int, offers: int, batch: PriceBatch) -> None:
    before = connection.execute("SELECT count(*) FROM price WHERE series = ? AND last IS NULL", (series,)).fetchone()[0]
    if (before and not offers) or (before >= MIN_OFFERS and offers < before * MIN_SHARE):
        name = f"{batch.source}/{batch.scope}"
        raise DataError("shrunk", msg("error.shrunk", name=name, before=before, now=offers), msg("hint.shrunk"))


def _record(connection: sqlite3.Connection, series: int, summary: BatchSummary, today: date, digest: str | None) -> int:
    content = summary.content.toordinal() if summary.content else None
    counts = (summary.rows, summary.aside, summary.prices, summary.kept, summary.offers, summary.unknown)
    cursor = connection.execute(
        """INSERT INTO batch(series, seen, recorded, content, digest, rows, aside, prices, kept, offers, unknown, reasons)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (series, summary.observed_on.toordinal(), today.toordinal(), content, digest, *counts, json.dumps(summary.reasons)),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _write(connection: sqlite3.Connection, batch: PriceBatch, series: _Series, id: int, day: date) -> int:
    """Write from when to when each price was listed; return how many offers are new, ended or have another price."""
    days = {"seen": day.toordinal(), "before": series.newest, "after": series.next_day}
    values = {"series": series.id, "batch": id, "source": batch.source, "scope": batch.scope, **days}
    if not batch.complete:
        changed = connection.execute(_DATED if series.newest is None else _DATED + _UNLESS_KNOWN, values).rowcount
    elif series.next_day is not None:
        changed = connection.execute(_LATE, values).rowcount
    elif series.newest is None:
        changed = connection.execute(_OPEN, values).rowcount
    else:
        closed = connection.execute(_CLOSE, values).rowcount
        opened = connection.execute(_OPEN + _UNLESS_OPEN, values).rowcount
        repriced = connection.execute(_REPRICED, values).fetchone()[0]
        changed = closed + opened - repriced
    connection.execute(_OFFER_SERIES, values)
    if connection.execute(_HAS_AVAILABILITY, values).fetchone():
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
_REPRICED = """
SELECT count(*) FROM price p WHERE p.series = :series AND p.end_batch = :batch
AND EXISTS (SELECT 1 FROM price n WHERE n.offer = p.offer AND n.series = :series AND n.batch = :batch)
"""
# A snapshot older than one already saved ends an offer only if the next one of the same part of the source lacks the offer.
_LATE = """
INSERT OR IGNORE INTO price(offer, series, first, batch, last, ended, end_batch, amount, upfront)
SELECT m.offer, :series, :seen, :batch, :seen, CASE WHEN EXISTS (
    SELECT 1 FROM price p JOIN series s ON s.id = p.series
    WHERE p.offer = m.offer AND p.first <= :after AND coalesce(p.last, :after) >= :after
      AND s.source = :source AND (s.scope = :scope OR s.scope GLOB :scope || '@*')
) THEN NULL ELSE :after END, :batch, m.amount, m.upfront FROM temp.matched m
"""
# For rows with their own days, equal prices on neighbouring days are one interval, which the offer's next price ends.
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
_OFFER_SERIES = "INSERT OR IGNORE INTO held(offer, series) SELECT DISTINCT offer, :series FROM temp.matched"
_HAS_AVAILABILITY = """
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
    """Save the rejected price rows of a series' newest snapshot; of older snapshots only their counts are kept."""
    connection.execute("DELETE FROM quarantine WHERE batch IN (SELECT id FROM batch WHERE series = ?)", (series,))
    connection.execute(
        """INSERT INTO quarantine(batch, reason, detail, provider, instance, region, accelerator, term, payment, price, currency)
        SELECT ?, * FROM temp.refused""",
        (id,),
    )


def _validators(connection: sqlite3.Connection, batch: PriceBatch, reader: str) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO validator(url, etag, modified, reader) VALUES (?, ?, ?, ?)",
        [(one.url, one.etag, one.modified, reader) for one in batch.validators if one.etag or one.modified],
    )


def _unchanged(connection: sqlite3.Connection, batch: PriceBatch, today: date) -> BatchSummary:
    """Record a snapshot of prices whose content is identical to the last one; return its counts."""
    series = _series_id(connection, batch.source, batch.scope)
    last = connection.execute(
        """SELECT id, content, digest, rows, aside, prices, kept, offers, unknown, reasons, seen
        FROM batch WHERE series = ? ORDER BY id DESC LIMIT 1""",
        (series,),
    ).fetchone()
    assert last is not None  # Only batches that were saved have validators.
    old, content, digest, rows, aside, prices, accepted, offers, unknown, reasons, last_day = last
    day = (
        date.fromordinal(last_day)
        if content is not None and content == last_day
        else max(batch.observed_on, date.fromordinal(last_day))
    )
    changed_on = date.fromordinal(content) if content is not None else None
    counts = (rows, aside, prices, accepted, offers, unknown, json.loads(reasons))
    summary = BatchSummary(batch.source, batch.scope, day, *counts, {}, changed_on, unchanged=True)
    id = _record(connection, series, summary, today, digest)
    connection.execute("UPDATE quarantine SET batch = ? WHERE batch = ?", (id, old))
    return summary
