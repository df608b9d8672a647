"""Load a batch of prices into temporary tables, where each row is accepted or rejected."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import date
from functools import cached_property
from hashlib import blake2b
from itertools import islice

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.names import normalized_name
from whichgpu.catalog.live.plausibility import UNKNOWN_GPU, row_rejection
from whichgpu.catalog.live.resolve import Rejection, Resolver
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, RejectedRow

CHUNK_ROWS = 5000  # rows inserted in one statement (set by judgement)
MAX_OFFERS = 2_000_000  # Most offers in one batch, since all are in memory while it is read (set by judgement).
MAX_SELLERS = 200_000  # Sellers whose spelling is kept in memory (set by judgement).


class BatchSummary(msgspec.Struct, frozen=True):
    """Row counts of a saved batch of prices: prices = kept + quarantined (failed a check) + unknown (GPU not known)."""

    source: str
    scope: str
    observed_on: date
    rows: int  # lines or items read
    aside: int  # rows without a GPU, which are skipped
    prices: int
    kept: int
    offers: int  # distinct offers, after zones of a region and repeated lines are merged
    unknown: int
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    unknown_names: dict[str, int] = msgspec.field(default_factory=dict)
    content: date | None = None
    changed: int = 0  # offers that are new, ended or at another price
    unchanged: bool = False  # the server sent nothing because nothing changed

    @property
    def quarantined(self) -> int:
        """Return the number of prices that failed a check."""
        return sum(self.reasons.values())


# `kind` has each offer of the batch once, so that later queries compare numbers: `family` is the same for offers that differ in
# machine and GPU count only, `place` for those that differ in term and payment only; `store` is the id in the price store.
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
TEMPORARY_TABLES = ("kind", "incoming", "refused", "matched", "reference")


class _Sorter:
    """Separates the price rows of a batch into accepted and rejected ones."""

    def __init__(self, connection: sqlite3.Connection, batch: PriceBatch, resolver: Resolver, today: date) -> None:
        self.connection = connection
        self.batch = batch
        self.resolver = resolver
        self.today = today
        self.kinds: dict[bytes, int] = {}  # Ids by digest, since the names of a million offers would not fit in memory.
        self.families: dict[tuple[object, ...], int] = {}
        self.new: list[tuple[object, ...]] = []
        self.good: list[tuple[object, ...]] = []
        self.bad: list[tuple[object, ...]] = []

    @cached_property
    def sellers(self) -> dict[str, str]:
        """Return the spelling of sellers in the price store, and of those in this batch that the catalog does not know."""
        return {normalized_name(name): name for (name,) in self.connection.execute("SELECT DISTINCT provider FROM offer")}

    def _with_known_names(self, row: OfferRow) -> OfferRow:
        """Return a price row with its names as the catalog spells them, or the first row of an unknown seller."""
        row = self.resolver.with_catalog_names(row)
        if self.resolver.is_seller(row.provider) or len(self.sellers) >= MAX_SELLERS:
            return row
        first = self.sellers.setdefault(normalized_name(row.provider), row.provider)
        return row if first == row.provider else replace(row, provider=first)

    def sort(self, row: OfferRow | RejectedRow) -> None:
        """Add a price row to the accepted or to the rejected ones, after the plausibility checks."""
        if isinstance(row, RejectedRow):
            self.bad.append((row.reason, row.row[:500], *[None] * 8))
            return
        row = self._with_known_names(row)
        resolved = self.resolver.resolve(row)
        if isinstance(resolved, Rejection):
            self.bad.append((resolved.reason, resolved.detail, *_row_names(row)))
            return
        day = row.observed_on or self.batch.observed_on
        dollars = self.resolver.rates.dollars(row.price, row.currency, day)
        rejection = row_rejection(self.batch.source, row, resolved, day, self.today, dollars)
        if rejection is not None:
            self.bad.append((*rejection, *_row_names(row)))
            return
        place = (resolved.gpu.id, row.provider, row.instance, row.region, resolved.gpus, row.includes, row.currency)
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
        """Add an offer (machine, region, term) that is new in this batch of prices; return its id within the batch."""
        if len(self.kinds) >= MAX_OFFERS:
            raise DataError("too-many-offers", msg("error.too-many-offers", n=MAX_OFFERS), msg("hint.not-a-catalog"))
        kind = self.kinds[digest] = len(self.kinds)
        gpu, provider, instance, region, gpus, includes, currency = place
        family = self.families.setdefault((gpu, provider, region, includes, currency, *terms), len(self.families))
        number = int.from_bytes(_digest(place, ("", ""))[:7])
        words = (gpu, provider, instance, region, gpus, *terms, includes, currency)
        self.new.append((kind, *words, accelerator, family, number))
        return kind

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write the accepted and rejected price rows collected so far to the temporary tables."""
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO temp.kind VALUES ({','.join('?' * 13)}, NULL)", self.new)
        connection.executemany("INSERT INTO temp.incoming VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", self.good)
        connection.executemany(f"INSERT INTO temp.refused VALUES ({','.join('?' * 10)})", self.bad)
        connection.execute("COMMIT")
        for rows in (self.new, self.good, self.bad):
            rows.clear()


def stage_batch(connection: sqlite3.Connection, batch: PriceBatch, resolver: Resolver, today: date) -> tuple[int, date]:
    """Read a batch of prices into temporary tables; return the number of prices and the day they are of."""
    drop_staging_tables(connection)
    for table in _TABLES:
        connection.execute(table)
    prices, rows = 0, iter(batch.rows)
    sorting = _Sorter(connection, batch, resolver, today)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        prices += len(chunk)
        for row in chunk:
            sorting.sort(row)
        sorting.flush(connection)
    batch_day = batch.seen_of_digest.get(batch.read.digest or "", batch.observed_on)
    if batch_day != batch.observed_on:
        connection.execute("UPDATE temp.incoming SET day = ?", (batch_day.toordinal(),))
    connection.execute("CREATE INDEX temp.incoming_kind ON incoming(kind, day, zone, value)")
    return prices, batch_day


def drop_staging_tables(connection: sqlite3.Connection) -> None:
    """Drop the temporary tables into which an earlier batch of prices was read."""
    for table in TEMPORARY_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS temp.{table}")


def count_staged(connection: sqlite3.Connection) -> tuple[int, dict[str, int], dict[str, int]]:
    """Return the numbers of prices kept, of rejected ones by reason, and of unknown GPUs by name, in the temporary tables."""
    connection.execute(
        """INSERT INTO temp.refused
        SELECT reason, detail, provider, instance, region, accelerator, term, payment, amount, currency
        FROM temp.incoming JOIN temp.kind ON kind.id = incoming.kind WHERE reason IS NOT NULL"""
    )
    accepted = connection.execute("SELECT count(*) FROM temp.incoming WHERE reason IS NULL").fetchone()[0]
    reasons = dict(connection.execute("SELECT reason, count(*) FROM temp.refused GROUP BY reason ORDER BY reason"))
    unknown = Counter(
        dict(connection.execute("SELECT detail, count(*) FROM temp.refused WHERE reason = ? GROUP BY detail", (UNKNOWN_GPU,)))
    )
    reasons.pop(UNKNOWN_GPU, None)
    return accepted, reasons, dict(unknown.most_common())


def _digest(place: tuple[object, ...], terms: tuple[str, str]) -> bytes:
    return blake2b(repr((place, terms)).encode(), digest_size=16).digest()


def _row_names(row: OfferRow) -> tuple[object, ...]:
    words = (row.provider, row.instance, row.region, row.accelerator, row.term)
    return (*words, row.payment or "", str(row.price), row.currency)
