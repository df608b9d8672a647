"""Refresh of prices from all sources in parallel; one that fails affects no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from threading import Event

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import DataError, UsageError, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.base.version import __version__
from whichgpu.catalog.live.http import Client, Validators
from whichgpu.catalog.live.price_store import (
    check_writable,
    open_for_reading,
    open_for_writing_lazily,
    store_path,
    translate_sqlite_errors,
)
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import PriceBatch, PriceSource, SourceRequest
from whichgpu.catalog.live.save import save_batch
from whichgpu.catalog.live.source_tables import FOLDER
from whichgpu.catalog.live.sources import find_source, source_names
from whichgpu.catalog.live.staging import BatchSummary
from whichgpu.catalog.store import Catalog

MAX_PARALLEL = 8  # Sources requested at a time, one thread each (set by judgement).


class SourceProblem(msgspec.Struct, frozen=True):
    """Failure of a price source, or of one part of it, such as a region."""

    scope: str | None
    kind: str
    message: Message


class RefreshOutcome(msgspec.Struct, frozen=True):
    """What a refresh saved from one price source, batch by batch, and its failures."""

    source: str
    batches: tuple[BatchSummary, ...]
    problems: tuple[SourceProblem, ...]


class RefreshProgress:
    """Receiver of progress events of a price refresh; this base class ignores them."""

    def began(self, source: str) -> None:
        """Report that a price source is being requested."""

    def went_on(self, source: str, done: int, total: int | None) -> None:
        """Report how many bytes of a source's response have arrived, and the total if the server states it."""

    def ended(self, source: str, failed: bool) -> None:
        """Report that a price source has answered or failed."""


class _Stopped(Exception):
    """Error: the user stopped the price refresh."""


def select_sources(names: Sequence[str], keys: Mapping[str, str]) -> tuple[PriceSource, ...]:
    """Return the price sources of these names; without names, all that are not large (`heavy`) and need no key or have one."""
    if names:
        sources = tuple(find_source(name) for name in dict.fromkeys(names))
        for source in sources:
            if source.key and not keys.get(source.key):
                message = msg("error.needs-key", name=source.name, key=source.key)
                raise UsageError("needs-key", message, msg("hint.needs-key", key=source.key))
        return sources
    return tuple(_default_sources(keys))


def _default_sources(keys: Mapping[str, str]) -> Iterator[PriceSource]:
    for name in source_names():
        try:
            source = find_source(name)
        except DataError:
            continue  # A broken plug-in is reported only if the user named it.
        if not source.heavy and (not source.key or keys.get(source.key)):
            yield source


def refresh(
    sources: Sequence[PriceSource],
    catalog: Catalog,
    today: date,
    *,
    folder: Path | None = None,
    regions: tuple[str, ...] = (),
    currency: str = "USD",
    keys: Mapping[str, str] | None = None,
    progress: RefreshProgress = RefreshProgress(),  # noqa: B008 - stateless
    trusting: bool = False,
) -> tuple[RefreshOutcome, ...]:
    """Fetch prices from the sources in parallel and save them; raise only if the store cannot be written."""
    import httpx  # noqa: F401 - fail once, before any request, if it is not installed

    resolver = Resolver(catalog)
    check_writable(folder)  # If the store cannot be written, raise one error before any source is requested.
    stop = Event()
    machine_lookups = (resolver.machine_of, catalog.instances)

    def request_with(client: Client) -> SourceRequest:
        return SourceRequest(client, today, regions, currency, os.environ if keys is None else keys, *machine_lookups)

    def refresh_one(source: PriceSource) -> RefreshOutcome:
        progress.began(source.name)
        outcome = _refresh_source(source, request_with, resolver, catalog, folder, progress, trusting, stop)
        progress.ended(source.name, bool(outcome.problems))
        return outcome

    pool = ThreadPoolExecutor(max_workers=max(1, min(MAX_PARALLEL, len(sources))), thread_name_prefix="prices")
    try:
        return tuple(pool.map(refresh_one, sources))
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _refresh_source(
    source: PriceSource,
    request_with: Callable[[Client], SourceRequest],
    resolver: Resolver,
    catalog: Catalog,
    folder: Path | None,
    progress: RefreshProgress,
    trusting: bool,
    stop: Event,
) -> RefreshOutcome:
    """Fetch and save the prices of one source batch by batch; errors are listed in the returned outcome."""
    batches: list[BatchSummary] = []
    problems: list[SourceProblem] = []

    def went_on(done: int, total: int | None) -> None:
        if stop.is_set():
            raise _Stopped
        progress.went_on(source.name, done, total)

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise _Stopped

    try:
        with open_for_writing_lazily(folder) as store:
            client = Client(validators=_known_validators(folder, catalog), progress=went_on, sleep=pause)
            request = request_with(client)
            reader = reader_digest(catalog)
            try:
                for batch in source.batches(request):
                    try:
                        # After a failed batch, validators are not saved, so that the next refresh requests all batches again.
                        started = read_first_row(replace(batch, validators=()) if problems else batch)
                        with translate_sqlite_errors(store_path(folder) or Path()):
                            batches.append(save_batch(store(), started, resolver, request.today, reader, trusting))
                    except Exception as problem:
                        problems.append(_problem(batch, source.name, problem))
            finally:
                client.close()
    except Exception as problem:
        problems.append(_problem(None, source.name, problem))
    return RefreshOutcome(source.name, tuple(batches), tuple(problems))


def _problem(batch: PriceBatch | None, source: str, problem: Exception) -> SourceProblem:
    scope = batch.scope if batch else None
    if isinstance(problem, WhichGpuError):
        return SourceProblem(scope, problem.kind, problem.message)
    if isinstance(problem, _Stopped):
        return SourceProblem(scope, "stopped", msg("error.stopped", name=source))
    why = problem.strerror or str(problem) if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"
    return SourceProblem(scope, "source-failed", msg("error.source-failed", name=source, why=why))


def reader_digest(catalog: Catalog) -> str:
    """Return a digest of the tables with which price rows are parsed; if it changes, unchanged content is parsed again."""
    digest = blake2b(__version__.encode(), digest_size=12)
    for path in (*sorted(FOLDER.glob("*.csv")), catalog.folder / "gpus.csv", catalog.folder / "instances.csv"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_first_row(batch: PriceBatch) -> PriceBatch:
    """Return a batch of prices after reading its first row, so that an unreachable source fails before a store is created."""
    first = list(islice(batch.rows, 1))
    return replace(batch, rows=chain(first, batch.rows))


def _known_validators(folder: Path | None, catalog: Catalog) -> dict[str, Validators]:
    """Return the HTTP validators of the last snapshots by URL, for conditional requests."""
    with open_for_reading(folder) as connection:
        rows = [] if connection is None else connection.execute("SELECT url, etag, modified, reader FROM validator").fetchall()
    reader = reader_digest(catalog)
    return {url: Validators(url, etag, modified) for url, etag, modified, made_by in rows if made_by == reader}
