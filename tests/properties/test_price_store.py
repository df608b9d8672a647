"""For any snapshots in any order: the store returns each of them, and every day as a plain list would."""

from __future__ import annotations

import tempfile
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from whichgpu.catalog.live.price_store import open_for_reading, open_for_writing
from whichgpu.catalog.live.queries import OfferQuery, offers_on, snapshot_observations
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts
from whichgpu.catalog.live.save import save_batch
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import prices_on_day

Look = dict[str, str]
FIRST = date(2026, 1, 1)

looks = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["0.5", "0.6", "0.7"]), min_size=1), min_size=1, max_size=7
)
RESOLVER = Resolver(Catalog())


def take(folder: Path, look: Look, day: date, recorded: date) -> None:
    rows = (OfferRow("colo", name, "north", "L4", 1.0, None, "on-demand", Decimal(price)) for name, price in look.items())
    with open_for_writing(folder) as connection:
        save_batch(
            connection, PriceBatch("test", "all", rows, day, read=ReadCounts(len(look))), RESOLVER, recorded, "r", trusting=True
        )


def prices_on(folder: Path, day: date | None, as_known: date | None = None) -> Look:
    with open_for_reading(folder) as connection:
        assert connection is not None
        runs = offers_on(connection, day, as_known, OfferQuery(), also_ended=True)
    stood = prices_on_day(runs, day or as_known or date(2027, 1, 1))
    return {one.observation.instance: str(one.observation.price) for one in stood}


@settings(max_examples=examples(15))
@given(looks)
def test_every_snapshot_and_day_can_be_restored(snapshots: list[Look]) -> None:
    days = [FIRST + timedelta(days=7 * number) for number in range(len(snapshots))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for look, day in zip(snapshots, days, strict=True):
            take(folder, look, day, day)
        with open_for_reading(folder) as connection:
            assert connection is not None
            for number, look in enumerate(snapshots, 1):
                again = {run.instance: str(run.price) for run in snapshot_observations(connection, number) or ()}
                assert again == look
        for look, day in zip(snapshots, days, strict=True):
            assert prices_on(folder, day) == look
            assert prices_on(folder, day + timedelta(days=3)) == look
            assert prices_on(folder, None, as_known=day) == look
        assert prices_on(folder, FIRST - timedelta(days=1)) == {}


@settings(max_examples=examples(12))
@given(looks.filter(lambda snapshots: len(snapshots) >= 3), st.randoms(use_true_random=False))
def test_insertion_order_of_snapshots_does_not_matter(snapshots: list[Look], chance: object) -> None:
    days = [FIRST + timedelta(days=7 * number) for number in range(len(snapshots))]
    order = list(zip(snapshots, days, strict=True))
    chance.shuffle(order)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number, (look, day) in enumerate(order):
            take(folder, look, day, days[-1] + timedelta(days=number))
        for look, day in zip(snapshots, days, strict=True):
            there = prices_on(folder, day)
            assert {name: there.get(name) for name in look} == look
