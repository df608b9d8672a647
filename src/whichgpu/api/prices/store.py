"""The user's own price store: refresh, import, export, status; and the verb `status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TextIO

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.request.catalog import StatusRequest
from whichgpu.base.display import Displayable
from whichgpu.base.errors import DataError, NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.currency import Exchanger
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.live.alike import rank_alike
from whichgpu.catalog.live.export import check_export, write_csv, write_json, write_parquet
from whichgpu.catalog.live.forget import forget
from whichgpu.catalog.live.import_files import import_prices
from whichgpu.catalog.live.price_store import open_for_reading, open_for_writing, store_path
from whichgpu.catalog.live.queries import (
    OfferQuery,
    SeriesStatus,
    offers_on,
    price_history,
    quarantined_rows,
    series_status,
)
from whichgpu.catalog.live.refresh import RefreshOutcome, RefreshProgress, refresh, select_sources
from whichgpu.catalog.offer import STALE_DAYS, Observation
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.status import TableStatus
from whichgpu.catalog.status import catalog_status as read_status
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import prices_on_day
from whichgpu.price.billing import billing_prefixes
from whichgpu.price.filters import provider_named


class SnapshotRow(msgspec.Struct, frozen=True):
    """Counts of an import from one part of a source: prices = kept + quarantined + unknown; `aside` counts rows without a GPU."""

    source: str
    scope: str
    rows: int
    aside: int
    prices: int
    kept: int
    quarantined: int
    unknown: int
    offers: int
    changed: int
    content: str | None
    age_days: int | None
    stale: bool
    problem: Message | None


class PriceImportAnswer(msgspec.Struct, frozen=True):
    """Result of fetching or importing prices: what was stored in the user's price store, and what was rejected and why."""

    store: str
    snapshots: tuple[SnapshotRow, ...]
    prices: int
    kept: int
    quarantined: int
    unknown: int
    reasons: dict[str, int]  # quarantined prices by reason
    unknown_gpus: dict[str, int]  # number of prices by GPU name of the source that the catalog does not know
    passed_over: tuple[str, ...]  # files of the folder that are not price lists
    failed: int


class LiveStatus(msgspec.Struct, frozen=True):
    """The user's own price store: its folder, and the age of the content of each part of each source."""

    store: str | None
    exists: bool
    series: tuple[SeriesStatus, ...]


class StatusAnswer(Displayable, msgspec.Struct, frozen=True):
    """Size, age and digest of the catalog, and the state of the user's own price store."""

    folder: str
    bundled: bool
    digest: str
    tables: tuple[TableStatus, ...]
    live: LiveStatus


def status(request: StatusRequest, context: Context) -> StatusAnswer:  # noqa: ARG001
    """Return size, age and digest of the catalog, and the age of the user's own price store."""
    state = read_status(context.catalog, bundled=context.catalog.folder == DATA_DIR)
    return StatusAnswer(state.folder, state.bundled, state.digest, state.tables, live_status(context.today))


def catalog_refresh(
    sources: Sequence[str] = (),
    *,
    catalog: Catalog | None = None,
    today: date | None = None,
    regions: tuple[str, ...] = (),
    currency: str = "USD",
    keys: dict[str, str] | None = None,
    progress: RefreshProgress = RefreshProgress(),  # noqa: B008 - stateless
    trusting: bool = False,
    folder: Path | None = None,
) -> PriceImportAnswer:
    """Fetch prices from sources and store plausible ones; return what was stored and rejected. `trusting` accepts price jumps."""
    import os

    environ = dict(os.environ) if keys is None else keys
    catalog, day = catalog or Catalog(), today or date.today()
    currency = Exchanger(day, catalog.exchange).check(currency)
    chosen = select_sources(sources, environ)
    outcomes = refresh(
        chosen,
        catalog,
        day,
        folder=folder,
        regions=regions,
        currency=currency,
        keys=environ,
        progress=progress,
        trusting=trusting,
    )
    _rank_offers(catalog, folder)
    return _taking(outcomes, day, folder)


def catalog_import(
    path: Path,
    *,
    observed_on: date | None = None,
    catalog: Catalog | None = None,
    today: date | None = None,
    trusting: bool = False,
    folder: Path | None = None,
) -> PriceImportAnswer:
    """Store the prices of a file or a folder of files; return what was stored and rejected. `trusting` accepts price jumps."""
    catalog, day = catalog or Catalog(), today or date.today()
    outcomes, passed = import_prices(path, catalog, day, observed_on=observed_on, folder=folder, trusting=trusting)
    _rank_offers(catalog, folder)
    return _taking(outcomes, day, folder, passed)


def _taking(
    outcomes: Iterable[RefreshOutcome], today: date, folder: Path | None, passed: tuple[str, ...] = ()
) -> PriceImportAnswer:
    outcomes = tuple(outcomes)
    snapshots = tuple(row for outcome in outcomes for row in _snapshots(outcome, today))
    reasons: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for batch in (batch for outcome in outcomes for batch in outcome.batches):
        for reason, count in batch.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
        for name, count in batch.unknown_names.items():
            unknown[name] = unknown.get(name, 0) + count
    return PriceImportAnswer(
        str(store_path(folder)),
        snapshots,
        sum(row.prices for row in snapshots),
        sum(row.kept for row in snapshots),
        sum(row.quarantined for row in snapshots),
        sum(row.unknown for row in snapshots),
        dict(sorted(reasons.items(), key=lambda item: -item[1])),
        dict(sorted(unknown.items(), key=lambda item: -item[1])),
        passed,
        sum(row.problem is not None for row in snapshots),
    )


def _snapshots(outcome: RefreshOutcome, today: date) -> Iterator[SnapshotRow]:
    for batch in outcome.batches:
        age = (today - batch.content).days if batch.content else (today - batch.observed_on).days
        content = (batch.content or batch.observed_on).isoformat()
        counts = (
            batch.rows,
            batch.aside,
            batch.prices,
            batch.kept,
            batch.quarantined,
            batch.unknown,
            batch.offers,
            batch.changed,
        )
        yield SnapshotRow(outcome.source, batch.scope, *counts, content, age, age > STALE_DAYS, None)
    for problem in outcome.problems:
        yield SnapshotRow(outcome.source, problem.scope or "", 0, 0, 0, 0, 0, 0, 0, 0, None, None, False, problem.message)


def catalog_export(
    path: str | None,
    stream: TextIO,
    *,
    form: str = ".csv",
    gpu: str | None = None,
    as_of: date | None = None,
    known_by: date | int | None = None,
    catalog: Catalog | None = None,
    folder: Path | None = None,
) -> int:
    """Write all stored prices, or the offers of a day, to a file (format by its ending) or a stream; return how many."""
    form = check_export(path) if path is not None else form
    query = offer_query(catalog or Catalog(), gpu)
    with open_for_reading(folder) as connection:
        if connection is None:
            raise no_store()
        offers = price_history(connection, query, known_by)
        if as_of is not None:
            observations = offers_on(connection, as_of, known_by, query, also_ended=True)
            offers = iter([one.observation for one in prices_on_day(observations, as_of)])
        if path is None:
            return (write_json if form == ".json" else write_csv)(offers, stream)
        try:
            return _to_file(offers, Path(path).expanduser(), form)
        except OSError as problem:
            message = msg("error.cannot-write-file", name=path, why=problem.strerror or str(problem))
            raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem


def _to_file(offers: Iterable[Observation], path: Path, form: str) -> int:
    """Write to a temporary file and rename it, so that a failed export never replaces a complete one; return the rows written."""
    fresh = path.with_name(f".{path.name}.part")
    try:
        if form == ".parquet":
            with fresh.open("wb") as binary:
                count = write_parquet(offers, binary)
        else:
            with fresh.open("w", encoding="utf-8", newline="") as text:
                count = (write_json if form == ".json" else write_csv)(offers, text)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return count


def live_status(today: date | None = None, folder: Path | None = None) -> LiveStatus:
    """Return the folder of the user's price store, and the age of the prices from each part of each source in it."""
    path = store_path(folder)
    with open_for_reading(folder) as connection:
        rows = () if connection is None else tuple(series_status(connection, today or date.today()))
        return LiveStatus(str(path) if path else None, connection is not None, rows)


def catalog_quarantine(source: str | None = None, folder: Path | None = None) -> list[dict[str, str]]:
    """Return rows of the newest snapshots that were rejected as implausible, each with its reason."""
    with open_for_reading(folder) as connection:
        if connection is None:
            raise no_store()
        return quarantined_rows(connection, source)


def catalog_forget(name: str, folder: Path | None = None) -> tuple[int, int]:
    """Remove a source, or one part of it (`own/colo`), from the store; return the number of snapshots and of offers removed."""
    with open_for_reading(folder) as connection:
        if connection is None:
            raise no_store()
    with open_for_writing(folder) as connection:
        counts = forget(connection, name)
    _rank_offers(Catalog(), folder)
    return counts


def _rank_offers(catalog: Catalog, folder: Path | None) -> None:
    """Rank the offers of a large price store, so that answers read the cheapest of those alike in all but name."""
    with open_for_reading(folder) as connection:
        if connection is None:
            return
    machines: set[tuple[str, str]] = set()
    prefixes: dict[str, tuple[str, ...]] = {}

    def is_known(provider: str, instance: str) -> bool:
        if not machines:
            machines.update((row.provider, row.instance) for row in catalog.prices())
        if provider not in prefixes:
            rules = (prefix for rule in catalog.discounts if rule.provider == provider for prefix in rule.instances)
            prefixes[provider] = (*rules, *billing_prefixes(provider))
        return (provider, instance) in machines or instance.startswith(prefixes[provider])

    with (
        suppress(DataError),
        open_for_writing(folder) as connection,
    ):  # Without ranks, as on a full disk, the store is read whole.
        rank_alike(connection, is_known)


def offer_query(
    catalog: Catalog,
    gpu: str | None = None,
    provider: str | None = None,
    region: str | None = None,
    instance: str | None = None,
    terms: tuple[str, ...] = (),
) -> OfferQuery:
    """Return a query of the price store from names as the user typed them; a GPU family selects all its GPUs."""
    return OfferQuery(
        frozenset(match.id for match in find_gpus(catalog, gpu)) if gpu else None,
        provider_named(catalog, provider) if provider else None,
        region,
        instance,
        frozenset(terms) if terms else None,
    )


def no_store() -> NoAnswer:
    """Return the error for a user who has not refreshed or imported any prices yet."""
    return NoAnswer("no-store", msg("error.no-store"), msg("hint.no-store"))
