"""A batch on its way in: staged row by row outside the store's own tables, each row sorted into what may be believed and not."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b
from itertools import islice

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.plausibility import UNKNOWN, row_rejection
from whichgpu.catalog.live.resolve import Rejection, Resolver
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, RejectedRow

CHUNK = 5000
MOST_OFFERS = 2_000_000  # of one batch: each is held in memory while its rows are read


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """What became of a batch's rows: prices = kept + quarantined + unknown."""

    source: str
    scope: str
    seen: date
    rows: int  # lines or items read
    aside: int  # those that sell no GPU
    prices: int
    kept: int
    offers: int  # after zones of one region and repeated lines were merged
    unknown: int
    reasons: dict[str, int] = field(default_factory=dict)
    unknown_names: dict[str, int] = field(default_factory=dict)
    content: date | None = None
    changed: int = 0  # offers that are new, gone or at another price
    unchanged: bool = False  # the server said so, and nothing was sent

    @property
    def quarantined(self) -> int:
        """Prices that failed a check."""
        return sum(self.reasons.values())


# `kind` holds each offer of the batch once, so that all that follows compares numbers: `family` is one for offers that differ
# in machine and count alone, `place` for those that differ in term and payment alone, `store` is its id in the store.
_TABLES = (
    """CREATE TEMP TABLE kind(
        id INTEGER PRIMARY KEY, gpu TEXT, provider TEXT, instance TEXT, region TEXT, gpus REAL, term TEXT, payment TEXT,
        includes TEXT, currency TEXT, accelerator TEXT, family INTEGER, place INTEGER, store INTEGER)""",
    """CREATE TEMP TABLE incoming(
        kind INTEGER, day INTEGER, zone TEXT, amount TEXT, value REAL, dollars REAL, upfront TEXT, availability TEXT,
        reason TEXT, detail TEXT)""",
    """CREATE TEMP TABLE refused(
        reason TEXT, detail TEXT, provider TEXT, instance TEXT, region TEXT, accelerator TEXT, term TEXT, payment TEXT,
        price TEXT, currency TEXT)""",
)
TEMPORARY = ("kind", "incoming", "refused", "matched", "reference")


class _Stage:
    """Rows of one batch being sorted."""

    def __init__(self, batch: PriceBatch, resolver: Resolver, today: date) -> None:
        self.batch = batch
        self.resolver = resolver
        self.today = today
        self.kinds: dict[bytes, int] = {}  # by the digest of their words: a million of those fit where the words would not
        self.families: dict[tuple[object, ...], int] = {}
        self.new: list[tuple[object, ...]] = []
        self.good: list[tuple[object, ...]] = []
        self.bad: list[tuple[object, ...]] = []

    def sort(self, row: OfferRow | RejectedRow) -> None:
        """One row to the believable or to the refused."""
        if isinstance(row, RejectedRow):
            self.bad.append((row.reason, row.row[:500], *[None] * 8))
            return
        found = self.resolver.resolve(row)
        if isinstance(found, Rejection):
            self.bad.append((found.reason, found.detail, *_named(row)))
            return
        day = row.seen or self.batch.seen
        dollars = self.resolver.rates.dollars(row.price, row.currency, day)
        doubt = row_rejection(self.batch.source, row, found, day, self.today, dollars)
        if doubt is not None:
            self.bad.append((*doubt, *_named(row)))
            return
        place = (found.gpu.id, row.provider, row.instance, row.region, found.gpus, row.includes, row.currency)
        terms = (row.term, row.payment or "")
        digest = _digest(place, terms)
        kind = self.kinds.get(digest)
        if kind is None:
            kind = self._new(digest, place, terms, row.accelerator)
        upfront = "" if row.upfront is None else str(row.upfront)
        price = row.price
        words = (upfront, row.availability or "")
        self.good.append((kind, day.toordinal(), row.zone, str(price), float(price), dollars, *words))

    def _new(self, digest: bytes, place: tuple[object, ...], terms: tuple[str, str], accelerator: str) -> int:
        """An offer not met before in this batch."""
        if len(self.kinds) >= MOST_OFFERS:
            raise DataError("too-many-offers", msg("error.too-many-offers", n=MOST_OFFERS), msg("hint.not-a-catalog"))
        kind = self.kinds[digest] = len(self.kinds)
        gpu, provider, instance, region, gpus, includes, currency = place
        family = self.families.setdefault((gpu, provider, region, includes, currency, *terms), len(self.families))
        number = int.from_bytes(_digest(place, ("", ""))[:7])
        words = (gpu, provider, instance, region, gpus, *terms, includes, currency)
        self.new.append((kind, *words, accelerator, family, number))
        return kind

    def flush(self, connection: sqlite3.Connection) -> None:
        """What has been sorted goes to the temporary tables."""
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO temp.kind VALUES ({','.join('?' * 13)}, NULL)", self.new)
        connection.executemany("INSERT INTO temp.incoming VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", self.good)
        connection.executemany(f"INSERT INTO temp.refused VALUES ({','.join('?' * 10)})", self.bad)
        connection.execute("COMMIT")
        for rows in (self.new, self.good, self.bad):
            rows.clear()


def stage_batch(connection: sqlite3.Connection, batch: PriceBatch, resolver: Resolver, today: date) -> tuple[int, date]:
    """Read a batch into temporary tables; gives how many prices it held and the day they are of."""
    drop_staging_tables(connection)
    for table in _TABLES:
        connection.execute(table)
    prices, rows = 0, iter(batch.rows)
    sorting = _Stage(batch, resolver, today)
    while chunk := list(islice(rows, CHUNK)):
        prices += len(chunk)
        for row in chunk:
            sorting.sort(row)
        sorting.flush(connection)
    seen = batch.seen_of_digest.get(batch.read.digest or "", batch.seen)
    if seen != batch.seen:
        connection.execute("UPDATE temp.incoming SET day = ?", (seen.toordinal(),))
    connection.execute("CREATE INDEX temp.incoming_kind ON incoming(kind, day, zone, value)")
    return prices, seen


def drop_staging_tables(connection: sqlite3.Connection) -> None:
    """Drop what is left of another batch."""
    for table in TEMPORARY:
        connection.execute(f"DROP TABLE IF EXISTS temp.{table}")


def count_staged(connection: sqlite3.Connection) -> tuple[int, dict[str, int], dict[str, int]]:
    """Move what the batch's own questions refused to the others; prices kept, refused by reason, unknown GPUs by name."""
    connection.execute(
        """INSERT INTO temp.refused
        SELECT reason, detail, provider, instance, region, accelerator, term, payment, amount, currency
        FROM temp.incoming JOIN temp.kind ON kind.id = incoming.kind WHERE reason IS NOT NULL"""
    )
    kept = connection.execute("SELECT count(*) FROM temp.incoming WHERE reason IS NULL").fetchone()[0]
    reasons = dict(connection.execute("SELECT reason, count(*) FROM temp.refused GROUP BY reason ORDER BY reason"))
    unknown = Counter(
        dict(connection.execute("SELECT detail, count(*) FROM temp.refused WHERE reason = ? GROUP BY detail", (UNKNOWN,)))
    )
    reasons.pop(UNKNOWN, None)
    return kept, reasons, dict(unknown.most_common())


def _digest(place: tuple[object, ...], terms: tuple[str, str]) -> bytes:
    return blake2b(repr((place, terms)).encode(), digest_size=16).digest()


def _named(row: OfferRow) -> tuple[object, ...]:
    words = (row.provider, row.instance, row.region, row.accelerator, row.term)
    return (*words, row.payment or "", str(row.price), row.currency)
