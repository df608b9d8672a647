"""Plausibility checks of single price rows and of rows within a batch.

A row that fails is counted and goes to quarantine with one of `REASONS`, each with a message `quarantine.<reason>`.
"""

from __future__ import annotations

import re
import sqlite3
from datetime import date
from functools import cache

from whichgpu.catalog.live.resolve import ResolvedGpu
from whichgpu.catalog.live.rows import OfferRow
from whichgpu.catalog.live.source_tables import KnownFault, faults
from whichgpu.catalog.offer import INCLUDES, PAYMENTS, TERMS
from whichgpu.catalog.pricing import implausible_price

REASONS = (
    "malformed",
    "no-price",
    "no-host",
    "gpus",
    "other-gpu",
    "count",
    "memory",
    "price-zero",
    "price-negative",
    "no-region",
    "words",
    "currency",
    "future",
    "below-power",
    "too-dear",
    "known-fault",
    "spot-above-on-demand",
    "one-for-all",
    "all-for-one",
    "below-spot",
    "below-market",
    "jump",
)
UNKNOWN_GPU = "unknown-gpu"

SPOT_TOLERANCE = 1.01  # Tolerance, since spot and on-demand prices are rounded differently.
SAME_PRICE_RATIO = 1.25  # If n GPUs cost less than this many times one GPU, the price is taken as that of one (assumed).
MAX_NAME_CHARACTERS = 200  # Longest name in a row (set by judgement).
# No provider, instance or region has these characters, which shells and pages interpret; flexible shapes of OCI have `$_8_32`.
_FOREIGN_CHARACTERS = re.compile(r"""^-(?!\d)|(?<=.)=|\$(?!_\d)|[`"\\;|<>{}!*?#^~%]""")


def row_rejection(
    source: str, row: OfferRow, variant: ResolvedGpu, seen_day: date, today: date, dollars: float | None
) -> tuple[str, str] | None:
    """Return the first reason to reject a price row, with its detail; None if the row is plausible.

    `dollars` is its price in US dollars on the day it was seen, None if no exchange rate is known.
    """
    price = row.price
    if price <= 0:
        return ("price-zero" if price == 0 else "price-negative"), str(price)
    if row.upfront is not None and row.upfront < 0:
        return "price-negative", str(row.upfront)
    if not row.region:
        return "no-region", row.instance
    if (wrong := _invalid_value(row)) is not None:
        return "words", wrong
    if seen_day > today:
        return "future", seen_day.isoformat()
    if dollars is None:
        return "currency", f"{row.currency} {seen_day.isoformat()}"
    each = dollars / variant.gpus
    for fault in _faults_of(source, row.provider):
        if (
            fault.term in ("", row.term)
            and fault.accelerator.fullmatch(row.accelerator)
            and fault.instance.fullmatch(row.instance)
            and fault.price in (None, price)
            and (fault.below is None or each < fault.below)
            and (fault.above is None or each > fault.above)
        ):
            return "known-fault", fault.why
    reason = implausible_price(variant.gpu.tdp_watts, each)
    if reason is None:
        return None
    return reason, f"{price} USD" if row.currency == "USD" else f"{price} {row.currency} = {dollars:.4g} USD"


@cache
def _faults_of(source: str, provider: str) -> tuple[KnownFault, ...]:
    return tuple(fault for fault in faults() if (fault.source, fault.provider) == (source, provider))


@cache
def _is_currency(text: str) -> bool:
    return len(text) == 3 and text.isascii() and text.isalpha() and text.isupper()


def _invalid_value(row: OfferRow) -> str | None:
    """Return the first invalid value of a price row, as text; None if all are valid."""
    if row.term not in TERMS:
        return row.term
    if row.payment is not None and row.payment not in PAYMENTS:
        return row.payment
    if row.includes not in INCLUDES:
        return row.includes
    if not _is_currency(row.currency):
        return row.currency
    for word in (row.provider, row.instance, row.region):
        if not word or len(word) > MAX_NAME_CHARACTERS or not word.isprintable() or _FOREIGN_CHARACTERS.search(word):
            return word
    return None


def mark_contradictions(connection: sqlite3.Connection) -> None:
    """Reject price rows in the staging tables that contradict other rows of the same snapshot of a source."""
    connection.execute("CREATE INDEX temp.kind_place ON kind(place, term)")
    connection.execute(_SPOT, {"slack": SPOT_TOLERANCE})
    connection.execute(_COUNTS, {"same": SAME_PRICE_RATIO})


# Both prices are rejected: at GCP it was the on-demand price that was wrong.
_SPOT = """
WITH pairs AS MATERIALIZED (
    SELECT s.id AS spot, o.id AS other
    FROM temp.kind s JOIN temp.kind o USING (place, provider, instance, region, gpu, gpus, includes, currency)
    WHERE s.term = 'spot' AND o.term = 'on-demand'
), wrong AS MATERIALIZED (
    SELECT s.rowid AS spot, o.rowid AS other, s.amount || ' > ' || o.amount AS detail
    FROM pairs JOIN temp.incoming s ON s.kind = pairs.spot
    JOIN temp.incoming o ON o.kind = pairs.other AND o.day = s.day AND o.zone = s.zone
    WHERE s.value > o.value * :slack
), each AS (SELECT spot AS id, detail FROM wrong UNION SELECT other, detail FROM wrong)
UPDATE temp.incoming SET reason = 'spot-above-on-demand', detail = each.detail FROM each WHERE incoming.rowid = each.id
"""

# Reject the price of one GPU stated for many, or a machine's price multiplied by its GPU count again.
_COUNTS = """
WITH mixed AS MATERIALIZED (
    SELECT id, gpus, family FROM temp.kind WHERE gpus >= 1 AND family IN (
        SELECT family FROM temp.kind WHERE term <> 'spot' GROUP BY family HAVING min(gpus) <= 1 AND max(gpus) > 1
    )
), lowest AS MATERIALIZED (
    SELECT family, gpus, day, min(value) AS value FROM mixed JOIN temp.incoming ON incoming.kind = mixed.id
    WHERE reason IS NULL GROUP BY family, gpus, day
), wrong AS MATERIALIZED (
    SELECT m.family, m.gpus, m.day, one.value AS one,
        CASE WHEN m.value <= one.value * :same THEN 'one-for-all' ELSE 'all-for-one' END AS reason
    FROM lowest m JOIN lowest one USING (family, day)
    WHERE one.gpus = 1 AND m.gpus > 1
      AND (m.value <= one.value * :same OR (m.gpus >= 4 AND m.value >= one.value * m.gpus * m.gpus * 0.8))
), each AS (
    SELECT i.rowid AS id, wrong.reason, i.amount || ' / ' || wrong.one AS detail
    FROM wrong JOIN mixed USING (family, gpus) JOIN temp.incoming i ON i.kind = mixed.id AND i.day = wrong.day
    WHERE i.reason IS NULL
)
UPDATE temp.incoming SET reason = each.reason, detail = each.detail FROM each WHERE incoming.rowid = each.id
"""
