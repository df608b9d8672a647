"""Asking sources, all at once, each for itself: one that fails holds back none and damages nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from threading import Event

from whichgpu.base.errors import DataError, UsageError, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.base.version import __version__
from whichgpu.catalog.live.http import Client
from whichgpu.catalog.live.price_store import (
    check_writable,
    open_for_reading,
    open_for_writing_lazily,
    store_path,
    translate_sqlite_errors,
)
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import PriceBatch, PriceSource, SourceRequest, Validators
from whichgpu.catalog.live.save import save_batch
from whichgpu.catalog.live.source_tables import FOLDER
from whichgpu.catalog.live.sources import find_source, source_names
from whichgpu.catalog.live.staging import BatchSummary
from whichgpu.catalog.store import Catalog

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """What went wrong with a source, or with one part of it."""

    scope: str | None
    kind: str
    message: Message


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """What came of asking one source."""

    source: str
    taken: tuple[BatchSummary, ...]
    problems: tuple[SourceProblem, ...]


class RefreshProgress:
    """Receiver of progress events of a refresh; this base class ignores them."""

    def began(self, source: str) -> None:
        """Note that a source is being requested."""

    def went_on(self, source: str, done: int, total: int | None) -> None:
        """Note how many bytes of a body have arrived, of how many if the server says."""

    def ended(self, source: str, failed: bool) -> None:
        """Note that a source has answered or failed."""


class _Stopped(Exception):
    """The user has had enough."""


def select_sources(names: Sequence[str], keys: Mapping[str, str]) -> tuple[PriceSource, ...]:
    """The sources named; without names all that need no key, or have theirs, and are no great load."""
    if names:
        found = tuple(find_source(name) for name in dict.fromkeys(names))
        for source in found:
            if source.key and not keys.get(source.key):
                message = msg("error.needs-key", name=source.name, key=source.key)
                raise UsageError("needs-key", message, msg("hint.needs-key", key=source.key))
        return found
    return tuple(_willing(keys))


def _willing(keys: Mapping[str, str]) -> Iterator[PriceSource]:
    for name in source_names():
        try:
            source = find_source(name)
        except DataError:
            continue  # a broken plug-in is told of when it is named
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
    """Ask the sources and keep what they give. Raises only where the store cannot be written at all."""
    import httpx  # noqa: F401 - say so once, before anyone is asked, where it is not installed

    resolver = Resolver(catalog)
    check_writable(folder)  # say so once, before anyone is asked
    keys, stop = os.environ if keys is None else keys, Event()

    def one(source: PriceSource) -> RefreshOutcome:
        progress.began(source.name)
        outcome = _asked(source, resolver, catalog, today, folder, regions, currency, keys, progress, trusting, stop)
        progress.ended(source.name, bool(outcome.problems))
        return outcome

    pool = ThreadPoolExecutor(max_workers=max(1, min(AT_ONCE, len(sources))), thread_name_prefix="prices")
    try:
        return tuple(pool.map(one, sources))
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _asked(
    source: PriceSource,
    resolver: Resolver,
    catalog: Catalog,
    today: date,
    folder: Path | None,
    regions: tuple[str, ...],
    currency: str,
    keys: Mapping[str, str],
    progress: RefreshProgress,
    trusting: bool,
    stop: Event,
) -> RefreshOutcome:
    """One source, batch by batch; every error becomes a problem of its outcome."""
    taken: list[BatchSummary] = []
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
            client = Client(known=_known(folder, catalog), progress=went_on, sleep=pause)
            ask = SourceRequest(client, today, regions, currency, keys, resolver.machine_of, catalog.instances)
            reader = reader_digest(catalog)
            try:
                for batch in source.batches(ask):
                    try:
                        # a look after a failed one must not hide what that one would have brought
                        fair = read_first_row(replace(batch, validators=()) if problems else batch)
                        with translate_sqlite_errors(store_path(folder) or Path()):
                            taken.append(save_batch(store(), fair, resolver, today, reader, trusting))
                    except Exception as problem:
                        problems.append(_problem(batch, source.name, problem))
            finally:
                client.close()
    except Exception as problem:
        problems.append(_problem(None, source.name, problem))
    return RefreshOutcome(source.name, tuple(taken), tuple(problems))


def _problem(batch: PriceBatch | None, source: str, problem: Exception) -> SourceProblem:
    scope = batch.scope if batch else None
    if isinstance(problem, WhichGpuError):
        return SourceProblem(scope, problem.kind, problem.message)
    if isinstance(problem, _Stopped):
        return SourceProblem(scope, "stopped", msg("error.stopped", name=source))
    why = problem.strerror or str(problem) if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"
    return SourceProblem(scope, "source-failed", msg("error.source-failed", name=source, why=why))


def reader_digest(catalog: Catalog) -> str:
    """Names the tables rows are read with: when they change, answers we already know are asked for again."""
    digest = blake2b(__version__.encode(), digest_size=12)
    for path in (*sorted(FOLDER.glob("*.csv")), catalog.folder / "gpus.csv", catalog.folder / "instances.csv"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_first_row(batch: PriceBatch) -> PriceBatch:
    """The same with its first row read: a source that cannot be reached fails here, before a store is made for it."""
    first = list(islice(batch.rows, 1))
    return replace(batch, rows=chain(first, batch.rows))


def _known(folder: Path | None, catalog: Catalog) -> dict[str, Validators]:
    """What the store's last looks said that makes the next ones conditional."""
    with open_for_reading(folder) as connection:
        rows = [] if connection is None else connection.execute("SELECT url, etag, modified, reader FROM validator").fetchall()
    reader = reader_digest(catalog)
    return {url: Validators(url, etag, modified) for url, etag, modified, made_by in rows if made_by == reader}
