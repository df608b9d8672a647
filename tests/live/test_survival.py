"""Power cuts, crowds, full disks, folders that may not be written: the store keeps the old or has the new, and says so."""

from __future__ import annotations

import itertools
import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx  # noqa: F401 - loaded while we may still read where it lies
import pytest

from tests.live.server import Answer, ReceivedRequest, Server
from tests.live.source_harness import TODAY
from tests.live.workers import OFFERS, Flip
from tests.surface.cli import ROOT
from whichgpu.base.errors import DataError
from whichgpu.catalog.live import price_store, price_store_schema
from whichgpu.catalog.live.price_store import open_for_reading, open_for_writing
from whichgpu.catalog.live.queries import OfferQuery, offers_on
from whichgpu.catalog.live.refresh import refresh
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts
from whichgpu.catalog.live.save import save_batch
from whichgpu.catalog.store import Catalog


@pytest.fixture
def flipping(server: Server) -> str:
    """An address that names another price each time."""
    prices = itertools.cycle([b"0.50", b"0.60", b"0.70"])

    def route(_: ReceivedRequest) -> Answer:
        return Answer(body=next(prices))

    server.on("/price", route)
    return f"{server.url}/price"


def work(task: str, url: str, folder: Path, *numbers: int) -> list[dict[str, Any]]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.live.workers", task, url, str(folder), *map(str, numbers)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_kills(lines: list[dict[str, Any]], times: int) -> None:
    assert len(lines) == times
    for line in lines:
        assert not line["after"][0].startswith("wrong"), line
        assert line["after"][1] == OFFERS
        assert line["after"][2] - line["before"][2] in (0, 1)
        if line["after"][2] == line["before"][2]:
            assert line["after"][0] == line["before"][0]  # the old
        assert line["again"] == 0
        assert line["final"][1:] == [OFFERS, line["after"][2] + 1]
    assert any(line["killed"] for line in lines)


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(flipping: str, folder: Path) -> None:
    check_kills(work("killed", flipping, folder, 5, 1), 5)


@pytest.mark.long
def test_fifty_kills_at_random_moments(flipping: str, folder: Path) -> None:
    lines = work("killed", flipping, folder, 50, 2)
    check_kills(lines, 50)
    assert sum(line["killed"] for line in lines) >= 30


def check_together(flipping: str, folder: Path, writers: int, rounds: int) -> None:
    (state,) = work("together", flipping, folder, writers, rounds)
    assert state["codes"] == [0] * writers
    assert state["wrong"] == []
    assert state["looked"] > 3
    assert state["own"] == [writers, writers * OFFERS]
    assert state["looks"] == 1 + writers * rounds * 2
    assert state["final"][1] == OFFERS


def test_concurrent_writers_and_readers_lose_no_rows(flipping: str, folder: Path) -> None:
    check_together(flipping, folder, 4, 1)


@pytest.mark.long
def test_ten_concurrent_writers_and_readers_lose_no_rows(flipping: str, folder: Path) -> None:
    check_together(flipping, folder, 10, 2)


def rows(price: str, count: int = 50) -> Iterator[OfferRow]:
    return (OfferRow("aws", f"m-{n}", "north", "L4", 1.0, None, "on-demand", Decimal(price)) for n in range(count))


def take(folder: Path, resolver: Resolver, price: str, count: int = 50, day: date = TODAY) -> None:
    with open_for_writing(folder) as connection:
        save_batch(connection, PriceBatch("test", "all", rows(price, count), day, read=ReadCounts(count)), resolver, TODAY, "r")


def prices(folder: Path) -> set[str]:
    with open_for_reading(folder) as connection:
        assert connection is not None
        return {str(offer.price) for offer in offers_on(connection, None, None, OfferQuery())}


def test_a_reader_sees_one_state_while_others_write(folder: Path, resolver: Resolver) -> None:
    take(folder, resolver, "0.5")
    with open_for_reading(folder) as connection:
        assert connection is not None
        before = connection.execute("SELECT count(*) FROM batch").fetchone()
        take(folder, resolver, "0.6")
        assert connection.execute("SELECT count(*) FROM batch").fetchone() == before
        assert {str(offer.price) for offer in offers_on(connection, None, None, OfferQuery())} == {"0.5"}
    assert prices(folder) == {"0.6"}


@contextmanager
def without_root() -> Iterator[None]:
    """Root may write everywhere, so the test temporarily switches to another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked_folder(folder: Path, resolver: Resolver) -> Iterator[Path]:
    take(folder, resolver, "0.5")
    for part in (folder, *folder.parents):
        if str(part).startswith("/tmp/") and os.geteuid() == 0:
            part.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def test_read_only_folder_is_read_and_reported(locked_folder: Path, resolver: Resolver) -> None:
    with without_root():
        assert prices(locked_folder) == {"0.5"}
        with pytest.raises(DataError) as caught:
            take(locked_folder, resolver, "0.6")
    assert caught.value.kind in ("store-readonly", "store-unopenable")
    assert str(locked_folder) in str(caught.value)
    assert prices(locked_folder) == {"0.5"}


def test_store_is_read_where_nothing_can_be_written(folder: Path, resolver: Resolver) -> None:
    take(folder, resolver, "0.5")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # No file of this process can grow, as on a full disk.
    try:
        assert prices(folder) == {"0.5"}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path, resolver: Resolver) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError) as caught:
        take(tmp_path / "file" / "store", resolver, "0.6")
    assert caught.value.kind == "store-folder"


def test_refresh_that_cannot_be_stored_requests_nothing(
    locked_folder: Path, catalog: Catalog, flipping: str, server: Server
) -> None:
    with without_root(), pytest.raises(DataError):
        refresh([Flip(flipping)], catalog, TODAY, folder=locked_folder, keys={})
    assert server.received == []


@pytest.mark.long
def test_full_disk_is_reported_and_leaves_the_store_unchanged(folder: Path, resolver: Resolver) -> None:
    take(folder, resolver, "0.5")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        with pytest.raises(DataError) as caught:
            take(folder, resolver, "0.6", count=20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.kind == "store-full"
    assert prices(folder) == {"0.5"}
    take(folder, resolver, "0.6", count=20_000)
    assert prices(folder) == {"0.6"}


def test_a_full_disk_fails_one_source_in_words(folder: Path, catalog: Catalog, flipping: str, resolver: Resolver) -> None:
    take(folder, resolver, "0.5")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    try:
        (outcome,) = refresh([Flip(flipping)], catalog, TODAY, folder=folder, keys={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {problem.kind for problem in outcome.problems} == {"store-full"}
    assert prices(folder) == {"0.5"}


def test_locked_store_is_waited_for_and_then_reported(folder: Path, resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    take(folder, resolver, "0.5")
    monkeypatch.setattr(price_store, "WAIT_MS", 50)
    other = sqlite3.connect(folder / price_store.NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DataError) as caught:
        take(folder, resolver, "0.6")
    assert caught.value.kind == "store-locked"
    assert prices(folder) == {"0.5"}  # readers are not blocked
    other.execute("ROLLBACK")
    other.close()


def test_a_newer_schema_is_refused_and_left_alone(folder: Path, resolver: Resolver) -> None:
    take(folder, resolver, "0.5")
    path = folder / price_store.NAME
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    for attempt in (lambda: take(folder, resolver, "0.6"), lambda: prices(folder)):
        with pytest.raises(DataError) as caught:
            attempt()
        assert caught.value.kind == "store-newer"
        assert "99" in str(caught.value)
    assert path.read_bytes() == before


def test_an_older_schema_is_brought_forward_by_readers_and_writers(
    folder: Path, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(folder, resolver, "0.5")
    more = (*price_store_schema.MIGRATIONS, "ALTER TABLE batch ADD COLUMN remark TEXT; CREATE TABLE extra(id INTEGER)")
    monkeypatch.setattr(price_store, "MIGRATIONS", more)
    assert prices(folder) == {"0.5"}
    with open_for_reading(folder) as connection:
        assert connection is not None
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 2
        assert connection.execute("SELECT remark FROM batch").fetchone() == (None,)
    take(folder, resolver, "0.6")
    assert prices(folder) == {"0.6"}


def test_failed_migration_changes_nothing(folder: Path, resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    take(folder, resolver, "0.5")
    monkeypatch.setattr(
        price_store, "MIGRATIONS", (*price_store_schema.MIGRATIONS, "CREATE TABLE extra(id INTEGER); CREATE TABLE batch(x)")
    )
    with pytest.raises(DataError):
        prices(folder)
    monkeypatch.undo()
    assert prices(folder) == {"0.5"}


def test_a_database_of_others_is_left_alone(folder: Path, resolver: Resolver) -> None:
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / price_store.NAME) as connection:
        connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    with pytest.raises(DataError) as caught:
        take(folder, resolver, "0.5")
    assert caught.value.kind == "store-foreign"


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_damaged_store_is_reported(folder: Path, resolver: Resolver, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / price_store.NAME).write_bytes(content)
    for attempt in (lambda: take(folder, resolver, "0.5"), lambda: prices(folder)):
        with pytest.raises(DataError) as caught:
            attempt()
        assert caught.value.kind == "store-damaged"


def test_store_with_a_lost_page_is_reported(folder: Path, resolver: Resolver) -> None:
    take(folder, resolver, "0.5", count=3000)
    path = folder / price_store.NAME
    content = bytearray(path.read_bytes())
    content[8192:40960] = b"\xaa" * 32768
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        prices(folder)
    assert caught.value.kind == "store-damaged"
