"""Where reading and keeping prices comes to an end: files too large, folders that cannot be used, homes that are not there."""

from __future__ import annotations

import gzip
import json
import sqlite3
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.live.source_harness import TODAY
from tests.live.test_overlay import LISTED
from whichgpu.base.errors import DataError, UsageError
from whichgpu.catalog.live import import_files, overlay, price_store
from whichgpu.catalog.live.http import _date
from whichgpu.catalog.live.import_files import import_prices
from whichgpu.catalog.live.overlay import apply_overlay, read_overlay
from whichgpu.catalog.live.price_store import check_writable, open_for_reading, open_for_writing
from whichgpu.catalog.live.resolve import Rejection, ResolvedGpu, Resolver
from whichgpu.catalog.live.rows import OfferRow, parse_discount
from whichgpu.catalog.live.stored_offers import last_snapshot, live_names, live_offers
from whichgpu.catalog.store import Catalog

LIST = "provider,gpu,price,region\ncolo,L4,0.5,Seoul\ncolo,T4,0.3,Seoul\n"


def problem(path: Path, catalog: Catalog, folder: Path) -> tuple[str, str]:
    """Kind and message of the one problem of an import; nothing was stored."""
    outcomes, passed = import_prices(path, catalog, TODAY, folder=folder)
    (source_problem,) = [problem for outcome in outcomes for problem in outcome.problems]
    assert not any(outcome.batches for outcome in outcomes)
    assert not passed
    assert live_offers(folder=folder) == ()
    return source_problem.kind, str(source_problem.message)


@pytest.mark.parametrize(("limit", "maximum"), [("MAX_LINE_BYTES", 40), ("MAX_FILE_BYTES", 60)])
def test_unpacking_stops_at_the_size_limit(
    tmp_path: Path, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, limit: str, maximum: int
) -> None:
    path = tmp_path / "ours.csv.gz"
    path.write_bytes(gzip.compress((LIST + "colo,A10G,0.7," + "x" * 30 + "\n").encode()))
    assert import_prices(path, catalog, TODAY, folder=folder)[0][0].problems == ()
    monkeypatch.setattr(import_files, limit, maximum)
    kind, message = problem(path, catalog, tmp_path / "another")
    assert kind == "not-a-catalog"
    assert "MiB" in message


def test_json_has_a_lower_size_limit(tmp_path: Path, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ours.json"
    content = json.dumps({"offers": [{"provider": "colo", "gpu": "L4", "price": {"amount": "0.7", "currency": "EUR"}}]})
    path.write_text(content)
    monkeypatch.setattr(import_files, "MAX_JSON_BYTES", len(content) - 1)
    assert problem(path, catalog, folder)[0] == "not-a-catalog"
    monkeypatch.setattr(import_files, "MAX_JSON_BYTES", len(content))
    assert import_prices(path, catalog, TODAY, folder=folder)[0][0].problems == ()


def test_gpuhunt_csv_is_recognised_without_its_archive(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    path = tmp_path / "aws.csv"
    header = "instance_name,location,price,cpu,memory,gpu_vendor,gpu_count,gpu_name,gpu_memory,spot,disk_size"
    path.write_text(f"{header}\ng4dn.xlarge,us-east-1,0.526,4,16,nvidia,1,T4,16,False,\n")
    (outcome,), _ = import_prices(path, catalog, TODAY, folder=folder)
    assert outcome.source == "gpuhunt"
    (offer,) = live_offers(folder=folder)
    assert (offer.provider, offer.gpu, offer.price) == ("aws", "t4", Decimal("0.526"))


def test_a_store_that_cannot_be_written_ends_the_import(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "ours.csv"
    path.write_text(LIST)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError) as error:
        import_prices(path, catalog, TODAY, folder=tmp_path / "file" / "store")
    assert error.value.kind == "store-folder"


def test_there_is_no_store_to_write_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_store, "store_path", lambda folder: None)
    with pytest.raises(DataError) as error, open_for_writing():
        pytest.fail("opened a store that is nowhere")
    assert error.value.kind == "store-homeless"


def test_unwritable_folder_is_reported_before_any_work(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_writable(folder)
    assert not list(folder.rglob("*.*"))  # tried, and nothing left behind

    def full(dir: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(price_store, "TemporaryFile", full)
    with pytest.raises(DataError, match="No space left on device") as error:
        check_writable(folder)
    assert error.value.kind == "store-unopenable"


def test_store_in_a_folder_that_is_a_file_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lost = tmp_path / "file" / "store"
    assert live_offers(folder=lost) == ()
    assert live_names("provider", "aws", folder=lost) == ()
    assert last_snapshot(folder=lost) is None
    with open_for_reading(lost) as connection:
        assert connection is None


def test_journal_mode_change_waits_for_locks_and_stops_on_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy:
        """A connection whose file is locked for the first few calls."""

        def __init__(self, times: int, name: str) -> None:
            self.times, self.name, self.calls = times, name, 0

        def execute(self, _: str) -> Busy:
            self.calls += 1
            if self.calls <= self.times:
                problem = sqlite3.OperationalError("locked")
                problem.sqlite_errorname = self.name
                raise problem
            return self

        def fetchone(self) -> tuple[str]:
            return ("wal",)

    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    patient = Busy(3, "SQLITE_BUSY_RECOVERY")
    price_store._log_ahead(patient)  # type: ignore[arg-type]
    assert (patient.calls, len(slept)) == (4, 3)
    with pytest.raises(sqlite3.OperationalError):
        price_store._log_ahead(Busy(1, "SQLITE_IOERR"))  # type: ignore[arg-type]
    endless = Busy(1000, "SQLITE_BUSY")
    with pytest.raises(sqlite3.OperationalError):
        price_store._log_ahead(endless)  # type: ignore[arg-type]
    assert endless.calls == 100


def test_terms_of_ones_own_without_a_home_or_that_cannot_be_read(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as error:
        read_overlay(tmp_path, catalog, TODAY)
    assert error.value.kind == "config-unreadable"
    assert str(tmp_path) in str(error.value)

    def homeless(*_: object, **__: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_config_path", homeless)
    assert overlay.overlay_path(None) is None
    assert overlay.overlay_path(tmp_path / "named") == tmp_path / "named"


@pytest.mark.parametrize("gpus", ["'many'", "0", "100001", "nan"])
def test_a_count_of_gpus_that_is_none_is_refused(tmp_path: Path, catalog: Catalog, gpus: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(f"[[owned]]\ngpu = 'L4'\ncost = '1usd/h'\ngpus = {gpus}\n")
    with pytest.raises(UsageError) as error:
        read_overlay(path, catalog, TODAY)
    assert error.value.kind == "bad-overlay"


def test_discount_applies_to_upfront_too_and_to_list_prices_only(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[discounts]\naws = '10%'\n")
    terms = read_overlay(path, catalog, TODAY)
    paid, contract = replace(LISTED, upfront=Decimal(1000)), replace(LISTED, standing="contract")
    first, second = apply_overlay([paid, contract], terms, TODAY)
    assert (first.price, first.upfront, first.standing) == (Decimal("49.536"), Decimal(900), "discounted")
    assert second == contract


@pytest.mark.parametrize("text", ["half", "-1%", "100%", "1", "inf", "nan"])
def test_discount_is_from_0_to_below_1(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_discount(text)
    assert (parse_discount("0"), parse_discount("99.9%"), parse_discount("")) == (Decimal(0), Decimal("0.999"), Decimal(0))


def test_a_day_of_the_web_without_a_zone_is_of_greenwich() -> None:
    moment = _date("Wed, 21 Oct 2026 07:28:00")
    assert moment is not None
    assert moment.utcoffset() is not None
    assert moment.date() == date(2026, 10, 21)
    assert _date("soon") is _date("") is _date(None) is None


def test_cache_size_is_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichgpu.catalog.live.resolve.MAX_CACHED", 2)
    resolver = Resolver(catalog)

    def resolve(accelerator: str, count: float | None = 1.0) -> ResolvedGpu | Rejection:
        return resolver.resolve(OfferRow("colo", "", "r", accelerator, count, None, "on-demand", Decimal(1)))

    first = resolve("L4")
    assert isinstance(first, ResolvedGpu)
    assert [len(resolver._known) for name in ("T4", "A10G", "L4") if resolve(name)] == [2, 1, 2]
    assert resolve("L4") == first
    assert resolve("L4", 200_000.0) == Rejection("gpus", "200000")
    assert resolve("   ") == Rejection("unknown-gpu", "   ")
