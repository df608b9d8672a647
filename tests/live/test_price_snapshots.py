"""The price store: intervals, snapshots, days, the catalog as known on a day, and quarantined prices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.live.source_harness import TODAY
from whichgpu.base.errors import DataError
from whichgpu.catalog.live.plausibility import REASONS
from whichgpu.catalog.live.price_store import open_for_reading, open_for_writing
from whichgpu.catalog.live.queries import (
    OfferQuery,
    changes_since,
    offers_on,
    price_history,
    quarantined_rows,
    series_status,
    snapshot_observations,
)
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, RejectedRow
from whichgpu.catalog.live.save import save_batch
from whichgpu.catalog.live.staging import BatchSummary
from whichgpu.catalog.live.stored_offers import live_offers
from whichgpu.catalog.offer import Observation
from whichgpu.price.asof import prices_on_day


class Keeper:
    """A store that takes snapshots."""

    def __init__(self, folder: Path, resolver: Resolver) -> None:
        self.folder, self.resolver = folder, resolver

    def take(
        self, rows: Iterable[OfferRow | RejectedRow], day: str, recorded: str | None = None, **settings: object
    ) -> BatchSummary:
        trusting = bool(settings.pop("trusting", False))
        listed = list(rows)
        usual = {"source": "test", "scope": "all", "read": ReadCounts(len(listed))}
        batch = PriceBatch(rows=iter(listed), observed_on=date.fromisoformat(day), **{**usual, **settings})  # type: ignore[arg-type]
        with open_for_writing(self.folder) as connection:
            return save_batch(connection, batch, self.resolver, date.fromisoformat(recorded or day), "r", trusting)

    def on(self, day: str | None = None, as_known: str | None = None, **filters: object) -> dict[str, str]:
        """Prices by instance, of the snapshots that count."""
        price_history = self.offers(day, as_known, also_ended=True, **filters)
        stood = prices_on_day(price_history, date.fromisoformat(day) if day else TODAY)
        return {one.observation.instance: str(one.observation.price) for one in stood}

    def offers(
        self, day: str | None = None, as_known: str | None = None, also_ended: bool = False, **filters: object
    ) -> list[Observation]:
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            as_of = date.fromisoformat(day) if day else None
            until = date.fromisoformat(as_known) if as_known else None
            return offers_on(connection, as_of, until, OfferQuery(**filters), also_ended)  # type: ignore[arg-type]

    def refused(self) -> list[tuple[str, str]]:
        with open_for_reading(self.folder) as connection:
            assert connection is not None
            return [(row["reason"], row["instance"]) for row in quarantined_rows(connection)]


@pytest.fixture
def keeper(folder: Path, resolver: Resolver) -> Keeper:
    return Keeper(folder, resolver)


def row(instance: str = "a", price: str = "0.5", **changes: object) -> OfferRow:
    usual = OfferRow("aws", instance, "north", "L4", 1.0, 24576, "on-demand", Decimal(price))
    return replace(usual, **changes)


def test_unchanged_price_is_one_observation_from_first_to_last_snapshot(keeper: Keeper) -> None:
    for day in ("2026-01-01", "2026-02-01", "2026-03-01"):
        summary = keeper.take([row()], day)
    assert summary.changed == 0
    (offer,) = keeper.offers()
    assert (offer.observed, offer.last_observed, offer.ended) == ("2026-01-01", "2026-03-01", None)
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        assert connection.execute("SELECT count(*) FROM price").fetchone() == (1,)


def test_a_changed_price_ends_a_run_and_begins_another(keeper: Keeper) -> None:
    keeper.take([row(price="0.5"), row("b")], "2026-01-01")
    keeper.take([row(price="0.5"), row("b")], "2026-02-01")
    summary = keeper.take([row(price="0.6"), row("b")], "2026-03-01")
    assert summary.changed == 1
    assert keeper.on("2025-12-31") == {}
    assert keeper.on("2026-02-10") == {"a": "0.5", "b": "0.5"}
    assert keeper.on("2026-03-01") == {"a": "0.6", "b": "0.5"}
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        first, second = (run for run in price_history(connection, OfferQuery()) if run.instance == "a")
    assert (first.observed, first.last_observed, first.ended) == ("2026-01-01", "2026-02-01", "2026-03-01")
    assert (second.observed, second.ended) == ("2026-03-01", None)


def test_withdrawn_offer_disappears_and_may_return(keeper: Keeper) -> None:
    keeper.take([row(), row("b")], "2026-01-01")
    keeper.take([row("b")], "2026-02-01")
    assert keeper.on("2026-01-31") == {"a": "0.5", "b": "0.5"}
    assert keeper.on("2026-02-01") == {"b": "0.5"}
    keeper.take([row(), row("b")], "2026-03-01")
    assert keeper.on("2026-02-15") == {"b": "0.5"}
    assert keeper.on() == {"a": "0.5", "b": "0.5"}


def test_every_snapshot_can_be_made_again(keeper: Keeper) -> None:
    looks = [
        [row(), row("b")],
        [row(price="0.6"), row("b"), row("c", "0.9")],
        [row("b", "0.7")],
        [row(), row("b", "0.7"), row("c", "0.9")],
    ]
    for number, look in enumerate(looks, 1):
        keeper.take(look, f"2026-0{number}-01")
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        for number, look in enumerate(looks, 1):
            prices = {(run.instance, run.price) for run in snapshot_observations(connection, number) or ()}
            assert prices == {(entry.instance, entry.price) for entry in look}
        assert snapshot_observations(connection, 5) is None


def test_past_state_does_not_change_with_later_snapshots(keeper: Keeper) -> None:
    keeper.take([row(price="0.5"), row("b")], "2026-01-01", recorded="2026-01-02")
    keeper.take([row(price="0.6")], "2026-02-01", recorded="2026-02-02")
    before = keeper.offers(as_known="2026-01-15")
    assert {(offer.instance, str(offer.price), offer.ended) for offer in before} == {("a", "0.5", None), ("b", "0.5", None)}
    keeper.take([row(price="0.9")], "2026-03-01", recorded="2026-03-02")
    keeper.take([row(price="0.4")], "2025-12-01", recorded="2026-03-03")
    assert keeper.offers(as_known="2026-01-15") == before
    assert keeper.offers(as_known="2025-12-31") == []


def test_snapshot_older_than_the_last_is_inserted_by_date(keeper: Keeper) -> None:
    keeper.take([row(price="0.5"), row("b")], "2026-01-01", recorded="2026-03-01")
    keeper.take([row(price="0.7")], "2026-03-01")
    keeper.take([row(price="0.6"), row("c", "0.9")], "2026-02-01", recorded="2026-03-02")
    assert keeper.on("2026-02-10") == {"a": "0.6", "c": "0.9"} | {"b": "0.5"}
    assert keeper.on("2026-03-01") == {"a": "0.7"}


def test_of_two_snapshots_on_one_day_the_later_price_counts(keeper: Keeper) -> None:
    keeper.take([row(price="0.5")], "2026-01-01")
    keeper.take([row(price="0.6")], "2026-01-01")
    assert keeper.on() == {"a": "0.6"}
    assert keeper.on("2026-01-01") == {"a": "0.6"}


def test_zones_of_a_region_are_one_offer_at_the_lowest_price(keeper: Keeper) -> None:
    summary = keeper.take([row(zone="z1", price="0.6"), row(zone="z2", price="0.5"), row(zone="z2", price="0.5")], "2026-01-01")
    assert (summary.prices, summary.kept, summary.offers) == (3, 3, 1)
    (offer,) = keeper.offers()
    assert (str(offer.price), offer.note) == ("0.5", "zones: z1,z2")
    assert live_offers(folder=keeper.folder)[0].note is None


def test_availability_is_stored_as_stated(keeper: Keeper) -> None:
    for day, words in (("2026-01-01", "stock: High"), ("2026-02-01", "stock: Low"), ("2026-03-01", None)):
        keeper.take([row(availability=words)], day)
    notes = [keeper.offers(as_known=day)[0].note for day in ("2026-01-15", "2026-02-15", "2026-03-15")]
    assert notes == ["stock: High", "stock: Low", None]
    assert keeper.offers()[0].observed == "2026-01-01"  # the price did not change


def test_rows_with_days_of_their_own_are_history(keeper: Keeper) -> None:
    days = [("2026-01-01", "0.5"), ("2026-01-08", "0.5"), ("2026-01-15", "0.6"), ("2026-01-22", "0.5")]
    rows = [row(price=price, observed_on=date.fromisoformat(day)) for day, price in days]
    keeper.take(rows, "2026-06-01", complete=False)
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        history = [
            (run.observed, run.last_observed, run.ended, str(run.price)) for run in price_history(connection, OfferQuery())
        ]
    assert history == [
        ("2026-01-01", "2026-01-08", "2026-01-15", "0.5"),
        ("2026-01-15", "2026-01-15", "2026-01-22", "0.6"),
        ("2026-01-22", "2026-01-22", None, "0.5"),
    ]
    assert keeper.on("2026-01-10") == {"a": "0.5"}
    keeper.take(rows, "2026-06-02", complete=False)  # the same once more
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        assert len(list(price_history(connection, OfferQuery()))) == 3


def test_changes_since_a_snapshot(keeper: Keeper) -> None:
    keeper.take([row(), row("b")], "2026-01-01")
    keeper.take([row(price="0.6"), row("c", "0.9")], "2026-02-01")
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        changes = {(run.instance, str(run.price), new) for run, new in changes_since(connection, 1, OfferQuery())}
    assert changes == {("a", "0.5", False), ("a", "0.6", True), ("b", "0.5", False), ("c", "0.9", True)}


def test_not_modified_reply_counts_as_a_snapshot(keeper: Keeper) -> None:
    keeper.take([row(), row("b", "0")], "2026-01-01")
    summary = keeper.take([], "2026-02-01", unchanged=True)
    assert (summary.unchanged, summary.prices, summary.kept, summary.quarantined) == (True, 2, 1, 1)
    assert keeper.offers()[0].last_observed == "2026-02-01"
    assert keeper.refused() == [("price-zero", "b")]


def test_a_list_that_shrinks_to_little_is_refused_unless_trusted(keeper: Keeper) -> None:
    keeper.take([row(str(number)) for number in range(100)], "2026-01-01")
    for fewer in ([], [row("1")]):
        with pytest.raises(DataError) as caught:
            keeper.take(fewer, "2026-02-01")
        assert caught.value.kind == "shrunk"
    assert len(keeper.offers()) == 100
    keeper.take([row("1")], "2026-02-01", trusting=True)
    assert keeper.on() == {"1": "0.5"}


def test_an_error_in_the_middle_leaves_the_store_as_it_was(keeper: Keeper) -> None:
    keeper.take([row()], "2026-01-01")

    def broken() -> Iterable[OfferRow]:
        yield row(price="0.6")
        raise OSError("connection lost")

    with open_for_writing(keeper.folder) as connection, pytest.raises(OSError, match="connection lost"):
        save_batch(connection, PriceBatch("test", "all", iter(broken()), TODAY), keeper.resolver, TODAY, "r")
    assert keeper.on() == {"a": "0.5"}


@pytest.mark.parametrize(
    ("reason", "rows"),
    [
        ("malformed", [RejectedRow("malformed", "x,y")]),
        ("no-price", [RejectedRow("no-price", "x")]),
        ("no-host", [RejectedRow("no-host", "x")]),
        ("count", [row("p5.48xlarge", "50", accelerator="H100", memory_mib=None, count=12.0)]),
        ("gpus", [row(count=0.0)]),
        ("gpus", [row(count=-1.0)]),
        ("gpus", [row(count=float("nan"))]),
        ("gpus", [row(count=float("inf"))]),
        ("gpus", [row("p5.48xlarge", "50", accelerator="H100", memory_mib=None, count=0.0)]),
        ("memory", [row(memory_mib=81920)]),
        ("price-zero", [row(price="0")]),
        ("price-negative", [row(price="-1")]),
        ("no-region", [row(region="")]),
        ("words", [row(term="for ever")]),
        ("words", [row(currency="dollars")]),
        ("currency", [row(currency="ZZZ")]),
        ("words", [row(payment="later")]),
        ("words", [row(includes="everything")]),
        ("words", [row("a\x1b[31m")]),
        ("words", [row("a" * 300)]),
        ("future", [row(observed_on=date(2027, 1, 1))]),
        ("below-power", [row(price="0.001")]),
        ("too-dear", [row(price="101")]),
        ("spot-above-on-demand", [row(price="0.5"), row(price="0.6", term="spot")]),
        ("one-for-all", [row("one", "0.5"), row("eight", "0.5", count=8.0)]),
        ("all-for-one", [row("one", "0.5"), row("eight", "32", count=8.0)]),
    ],
)
def test_implausible_prices_are_quarantined(keeper: Keeper, reason: str, rows: list[OfferRow | RejectedRow]) -> None:
    summary = keeper.take([row("good"), *rows], "2026-01-01")
    assert list(summary.reasons) == [reason]
    assert summary.prices == summary.kept + summary.quarantined + summary.unknown
    assert "good" in keeper.on()
    assert {name for name, _ in keeper.refused()} == {reason}
    assert reason in REASONS


def test_spot_price_equal_up_to_rounding_is_accepted(keeper: Keeper) -> None:
    keeper.take([row(price="0.22429"), row(price="0.2243", term="spot")], "2026-01-01")
    assert len(keeper.offers()) == 2


def test_larger_hosts_for_one_gpu_are_plausible(keeper: Keeper) -> None:
    rows = [row("xlarge", "0.8"), row("16xlarge", "3.4"), row("12xlarge", "4.6", count=4.0), row("48xlarge", "13.35", count=8.0)]
    assert keeper.take(rows, "2026-01-01").reasons == {}


def test_price_jump_is_accepted_when_observed_twice(keeper: Keeper) -> None:
    keeper.take([row(), row("b")], "2026-01-01")
    first = keeper.take([row(price="2"), row("b")], "2026-02-01")
    assert first.reasons == {"jump": 1}
    assert keeper.on("2026-02-01") == {"b": "0.5"}
    again = keeper.take([row(price="2"), row("b")], "2026-03-01")
    assert again.reasons == {}
    assert keeper.on() == {"a": "2", "b": "0.5"}
    assert keeper.take([row(price="2.5"), row("b")], "2026-04-01").reasons == {}


def test_spot_prices_may_jump_more(keeper: Keeper) -> None:
    def look(price: str) -> list[OfferRow]:
        return [row(term="spot", price=price), row("b")]

    keeper.take(look("0.1"), "2026-01-01")
    assert keeper.take(look("0.9"), "2026-02-01").reasons == {}
    assert keeper.take(look("20"), "2026-03-01").reasons == {"jump": 1}
    assert keeper.take(look("0.9"), "2026-03-02").reasons == {}
    assert keeper.take(look("20"), "2026-03-03", trusting=True).reasons == {}


def test_dated_content_is_stored_under_its_own_day(keeper: Keeper) -> None:
    read = ReadCounts(1, digest="abc")
    summary = keeper.take([row()], "2026-08-22", read=read, seen_of_digest={"abc": date(2024, 8, 19)}, recorded="2026-11-15")
    assert (summary.observed_on, summary.content) == (date(2024, 8, 19), date(2024, 8, 19))
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        (status,) = series_status(connection, TODAY)
    assert (status.content, status.age_days, status.stale, status.last_look) == ("2024-08-19", 818, True, "2026-11-15")


def test_the_age_of_content_is_that_of_the_last_change(keeper: Keeper) -> None:
    keeper.take([row()], "2026-09-01")
    for day in ("2026-10-01", "2026-11-14"):
        keeper.take([row()], day)
    with open_for_reading(keeper.folder) as connection:
        assert connection is not None
        (status,) = series_status(connection, TODAY)
    assert (status.content, status.stale, status.snapshots) == ("2026-09-01", True, 3)


def test_filters_are_applied_in_the_store(keeper: Keeper) -> None:
    keeper.take(
        [row(), row("b", term="spot", price="0.2"), row("c", region="south"), row("d", accelerator="T4", memory_mib=None)],
        "2026-01-01",
    )
    assert keeper.on(gpus=frozenset({"t4"})) == {"d": "0.5"}
    assert keeper.on(terms=frozenset({"spot"})) == {"b": "0.2"}
    assert keeper.on(region="south") == {"c": "0.5"}
    assert keeper.on(provider="gcp") == {}
    assert keeper.on(gpus=frozenset()) == {}


def test_missing_store_has_no_prices(tmp_path: Path) -> None:
    assert live_offers(folder=tmp_path / "nowhere") == ()
    assert not (tmp_path / "nowhere").exists()
