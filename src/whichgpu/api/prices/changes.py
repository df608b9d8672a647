"""Verbs about price changes: differences between two days or snapshots, and offers below a price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.prices.history import USUAL_TERMS, identity, matches_query
from whichgpu.api.prices.store import no_store, offer_query
from whichgpu.api.request.catalog import DiffRequest
from whichgpu.api.request.read import read
from whichgpu.base.dates import first_day, parse_as_of
from whichgpu.base.display import Displayable
from whichgpu.base.errors import DataError, UnknownName
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.base.units import parse_whole_number
from whichgpu.catalog.currency import DOLLAR, Exchanger, round_significant
from whichgpu.catalog.live.overlay import apply_overlay, read_overlay
from whichgpu.catalog.live.price_store import open_for_reading, open_for_writing, transaction
from whichgpu.catalog.live.queries import OfferQuery, changes_since, newest_snapshot, offers_on, snapshot_observations
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import prices_on_day


class ChangeRow(msgspec.Struct, frozen=True):
    """Change of one offer between two days or snapshots: `new`, `gone`, `up` or `down`; prices per hour of the whole instance."""

    kind: str
    provider: str
    instance: str
    region: str
    gpu: str
    gpu_name: str
    gpus: int | float
    term: str
    payment: str | None
    before: Money | None
    after: Money | None
    change: float | None
    source: str


class DiffAnswer(Displayable, msgspec.Struct, frozen=True):
    """Changes of offers' prices between two days, or between two snapshots of the user's price store."""

    a: str
    b: str
    same: int
    changes: tuple[ChangeRow, ...]


class WatchRow(msgspec.Struct, frozen=True):
    """An offer below the price limit; its availability is what the source states and not guaranteed."""

    provider: str
    instance: str
    region: str
    gpu: str
    gpu_name: str
    gpus: int | float
    term: str
    price: Money
    price_per_gpu_hour: Money
    observed_at: str
    age_days: int
    availability: str | None
    standing: str  # kind of price: list, discounted, contract or owned
    source: str


class WatchAnswer(msgspec.Struct, frozen=True):
    """Offers below the price limit, or else price changes since the last call; `too_old` counts prices too old to be compared."""

    met: bool
    below: Money | None
    offers: tuple[WatchRow, ...]
    changes: tuple[ChangeRow, ...]
    compared: int
    too_old: int
    without_rate: dict[str, int]  # recent offers that cannot be compared with the limit, by currency
    first: bool  # True if there is no earlier snapshot to compare with.


def diff(request: DiffRequest, context: Context) -> DiffAnswer:
    """Return price changes between two days (2026-08-01) or two snapshots (@12) of the user's own price store."""
    values, catalog = read(DiffRequest, request, context.spell), context.catalog
    a, b, query = values["a"], values["b"], offer_query(catalog, values.get("gpu"), values.get("provider"))
    before, after = (_moment(text, catalog, query, context.today) for text in (a, b))
    names = {rows.id: rows.name for rows in catalog.gpus}
    changes = [_changed(before.get(key), after.get(key), names) for key in {**before, **after}]
    rows = sorted((row for row in changes if row), key=lambda row: (row.provider, row.instance, row.region, row.term))
    return DiffAnswer(a, b, len(changes) - len(rows), tuple(rows))


def catalog_watch(
    gpu: str | None = None,
    *,
    below: Money | None = None,
    provider: str | None = None,
    region: str | None = None,
    terms: tuple[str, ...] = USUAL_TERMS,
    max_age: int = 30,
    overlay: Path | None = None,
    today: date | None = None,
    catalog: Catalog | None = None,
    folder: Path | None = None,
) -> WatchAnswer:
    """Return offers of the price store below a price per GPU and hour, and what changed since the last call."""
    catalog, day = catalog or Catalog(), today or date.today()
    query = offer_query(catalog, gpu, provider, region, None, terms)
    names = {one.id: one.name for one in catalog.gpus}
    exchanger = Exchanger(day, catalog.exchange)
    if below is not None:
        exchanger.rate(DOLLAR, exchanger.check(below.currency))  # Raises an error if there is no exchange rate.
    name = blake2b(repr((gpu, below, provider, region, terms)).encode(), digest_size=12).hexdigest()
    with open_for_reading(folder) as connection:
        if connection is None:
            raise no_store()
        since = connection.execute("SELECT batch FROM look WHERE name = ?", (name,)).fetchone()
        newest = newest_snapshot(connection)
        runs = offers_on(connection, day, catalog.known_by, query, also_ended=True)
        changes = () if since is None else tuple(_change_rows(changes_since(connection, since[0], query), names))
    prices = [one.observation for one in prices_on_day(runs, day)]
    standing = [run for run in apply_overlay(prices, read_overlay(overlay, catalog, day), day) if _fits(run, query)]
    fresh = [run for run in standing if (day - first_day(run.last_observed)).days <= max_age]
    limit = below.currency if below else None
    without_rate = Counter(run.currency for run in fresh if limit and not exchanger.can_convert(run.currency, limit))
    comparable = [run for run in fresh if run.currency not in without_rate]
    met = tuple(
        _watched(run, names, day) for run in comparable if below and _each_in(run, below.currency, exchanger) <= below.amount
    )
    _remember(name, newest, folder)
    rows = tuple(sorted(met, key=lambda row: row.price_per_gpu_hour.amount))
    return WatchAnswer(
        bool(rows), below, rows, changes, len(comparable), len(standing) - len(fresh), dict(without_rate), since is None
    )


def _moment(text: str, catalog: Catalog, query: OfferQuery, today: date) -> dict[object, Observation]:
    """Return the price of each offer on a day (2026-08-01) or in a snapshot (@12), by the key that identifies the offer."""
    if not text.startswith("@"):
        day = parse_as_of(text, today)
        observations = [
            run
            for row in catalog.prices(query.gpus)
            if matches_query(row.provider, row.instance, row.term, query)
            for run in row.observations()
        ]
        with open_for_reading() as connection:
            observations += [] if connection is None else offers_on(connection, day, catalog.known_by, query, also_ended=True)
        return {(*one.observation.key, one.observation.currency): one.observation for one in prices_on_day(observations, day)}
    with open_for_reading() as connection:
        if connection is None:
            raise no_store()
        number = parse_whole_number(text[1:], 10**10)
        snapshot = None if number is None else snapshot_observations(connection, number)
        if snapshot is None:
            hint = msg("hint.unknown-snapshot", n=newest_snapshot(connection))
            raise UnknownName("unknown-snapshot", msg("error.unknown-snapshot", name=text), hint)
    chosen = (run for run in snapshot if (query.gpus is None or run.gpu in query.gpus) and query.provider in (None, run.provider))
    return {(*run.key, run.currency): run for run in chosen}


def _changed(before: Observation | None, after: Observation | None, names: dict[str, str]) -> ChangeRow | None:
    if before and after and before.price == after.price:
        return None
    run = after or before
    assert run is not None
    ratio = float(after.price / before.price - 1) if before and after else None
    kind = "new" if before is None else "gone" if after is None else "up" if (ratio or 0) > 0 else "down"
    return ChangeRow(
        kind=kind,
        **identity(run, names),
        gpus=run.gpus,
        before=Money(before.price, before.currency) if before else None,
        after=Money(after.price, after.currency) if after else None,
        change=None if ratio is None else round(ratio, 4),
    )


def _change_rows(changes: Iterable[tuple[Observation, bool]], names: dict[str, str]) -> Iterator[ChangeRow]:
    """Yield the change of each offer, from observed prices paired with whether each began (True) or ended."""
    ended: dict[object, Observation] = {}
    began: dict[object, Observation] = {}
    for run, is_new in changes:
        key: object = (*run.key, run.currency, run.source)
        if is_new:
            began[key] = run
        else:
            ended.setdefault(key, run)
    for key in dict.fromkeys([*ended, *began]):
        before, after = ended.get(key), began.get(key)
        after = None if after is None or after.ended else after
        row = _changed(before, after, names) if before or after else None
        if row is not None:
            yield row


def _watched(run: Observation, names: dict[str, str], day: date) -> WatchRow:
    fields = identity(run, names)
    del fields["payment"]
    return WatchRow(
        **fields,
        gpus=run.gpus,
        price=Money(run.price, run.currency),
        price_per_gpu_hour=Money(round_significant(run.price_per_gpu), run.currency),
        observed_at=run.last_observed,
        age_days=(day - first_day(run.last_observed)).days,
        availability=run.note,
        standing=run.standing,
    )


def _fits(run: Observation, query: OfferQuery) -> bool:
    """Return whether a price matches the query; list prices always do, since the store has already filtered them."""
    own = run.standing in ("contract", "owned")
    asked_for = (query.gpus is None or run.gpu in query.gpus) and query.provider in (None, run.provider)
    return not own or (asked_for and query.region in (None, run.region) and run.term in (query.terms or (run.term,)))


def _each_in(run: Observation, currency: str, exchanger: Exchanger) -> Decimal:
    return exchanger.convert(Money(run.price_per_gpu, run.currency), currency)[0].amount


def _remember(name: str, batch: int, folder: Path | None) -> None:
    """Store the snapshot that the next call compares with; with a read-only store, that call reports the same changes again."""
    try:
        with open_for_writing(folder) as connection, transaction(connection):
            connection.execute("INSERT OR REPLACE INTO look(name, batch) VALUES (?, ?)", (name, batch))
    except DataError:
        return
