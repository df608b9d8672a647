"""Check of staged prices for implausible jumps from an earlier price of the same offer, compared in US dollars.

The earlier price is the one in the last snapshot of the series, in whatever currency; for an offer the series does not have yet,
it is the range of the bundled history; for a machine that the history lacks in a user's own list or from an unknown seller, all
sellers of its GPU. A jump is accepted once a snapshot of a later day has the very same price again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

from whichgpu.catalog.live.references import JUMP, WIDE_JUMP
from whichgpu.catalog.live.resolve import Resolver

CHUNK_OFFERS = 20_000  # offers compared in one statement (set by judgement)


def mark_jumps(connection: sqlite3.Connection, series: int, seen_day: date, resolver: Resolver, own_list: bool) -> None:
    """Reject new price rows whose price is implausibly far from the offer's earlier one, or from its GPU's at other sellers."""

    def dollars(amount: str, currency: str, day: int) -> float | None:
        return resolver.rates.dollars(Decimal(amount), currency, date.fromordinal(day))

    connection.create_function("dollars", 3, dollars, deterministic=True)
    connection.execute(
        "CREATE TEMP TABLE reference(kind INTEGER PRIMARY KEY, low REAL, high REAL, least REAL, most REAL, market INTEGER)"
    )
    connection.execute(_EARLIER, {"series": series, "jump": JUMP, "spot": WIDE_JUMP})
    last = connection.execute("SELECT coalesce(max(id), -1) FROM temp.kind").fetchone()[0]
    for start in range(0, last + 1, CHUNK_OFFERS):
        ranges = list(_bundled(connection, start, resolver, own_list))
        connection.executemany("INSERT INTO temp.reference VALUES (?, ?, ?, ?, ?, ?)", ranges)
    connection.create_function("market_reason", 4, resolver.references.market_rejection, deterministic=True)
    connection.create_function("market_words", 3, resolver.references.market_words, deterministic=True)
    connection.execute(_MARKET)
    connection.execute(_JUMP, {"series": series, "seen": seen_day.toordinal()})


def _bundled(connection: sqlite3.Connection, start: int, resolver: Resolver, own_list: bool) -> Iterator[tuple[float, ...]]:
    """Yield plausible price ranges from the bundled history for up to CHUNK_OFFERS new offers without an earlier price."""
    rows = connection.execute(
        """SELECT id, provider, instance, region, term, includes, gpu, gpus FROM temp.kind k
        WHERE id >= ? AND id < ? AND NOT EXISTS (SELECT 1 FROM temp.reference r WHERE r.kind = k.id)""",
        (start, start + CHUNK_OFFERS),
    ).fetchall()
    for kind, provider, instance, region, term, includes, gpu, gpus in rows:
        machine = resolver.machine_of(provider, instance)  # The store has the instance name as the source spells it.
        name = instance if machine is None else machine.instance
        alias = name.lower() != instance.lower()
        prices = resolver.references.find(provider, name, region, term, includes, gpu, alias)
        if prices is not None:
            market = not prices.machine_known and (own_list or not resolver.is_seller(provider))
            bounds = (prices.low, prices.high, prices.plausible_low, prices.plausible_high)
            yield kind, *(price * gpus for price in bounds), market


_EARLIER = """
INSERT INTO temp.reference
WITH last AS (SELECT id, seen FROM batch WHERE series = :series ORDER BY id DESC LIMIT 1), earlier AS (
    SELECT k.id AS kind, k.term, dollars(p.amount, o.currency, coalesce(p.last, last.seen)) AS price
    FROM last, temp.kind k JOIN offer o USING (gpu, provider, instance, region, gpus, term, payment, includes)
    JOIN price p ON p.offer = o.id AND p.series = :series
    WHERE p.last IS NULL OR p.end_batch = last.id
)
SELECT kind, low, high, low / factor, high * factor, 0 FROM (
    SELECT kind, min(price) AS low, max(price) AS high, iif(term = 'spot', :spot, :jump) AS factor
    FROM earlier WHERE price IS NOT NULL GROUP BY kind
)
"""

_MARKET = """
WITH each AS MATERIALIZED (
    SELECT i.rowid AS id, market_reason(k.gpu, k.gpus, k.term, i.dollars) AS reason,
        market_words(k.gpu, k.gpus, i.dollars) AS detail
    FROM temp.incoming i JOIN temp.reference r ON r.kind = i.kind JOIN temp.kind k ON k.id = i.kind
    WHERE r.market AND i.reason IS NULL
)
UPDATE temp.incoming SET reason = each.reason, detail = each.detail FROM each
WHERE incoming.rowid = each.id AND each.reason IS NOT NULL
"""

_JUMP = """
WITH last AS (SELECT id, seen FROM batch WHERE series = :series ORDER BY id DESC LIMIT 1), jumps AS MATERIALIZED (
    SELECT i.rowid AS id, printf('%.4g', r.low) || iif(r.high > r.low, printf('-%.4g', r.high), '')
        || printf(' USD → %.4g USD', i.dollars) AS detail
    FROM temp.incoming i JOIN temp.reference r ON r.kind = i.kind JOIN temp.kind k ON k.id = i.kind
    WHERE i.reason IS NULL AND NOT i.dollars BETWEEN r.least AND r.most
      AND (k.provider, k.instance, k.region, k.term, k.payment, i.amount, k.currency) NOT IN (
        SELECT q.provider, q.instance, q.region, q.term, q.payment, q.price, q.currency
        FROM quarantine q JOIN last ON q.batch = last.id WHERE last.seen < :seen AND q.reason = 'jump'
      )
)
UPDATE temp.incoming SET reason = 'jump', detail = jumps.detail FROM jumps WHERE incoming.rowid = jumps.id
"""
