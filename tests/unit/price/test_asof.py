"""Which price held on a day, and how sure that is."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.catalog.offer import STALE_DAYS, Observation
from whichgpu.price.asof import price_on_day, prices_on_day


def observation(price: str, first: str, last: str | None = None, ended: str | None = None, source: str = "a") -> Observation:
    return Observation(
        "aws",
        "p3.2xlarge",
        "us-east-1",
        "v100-sxm-16gb",
        1,
        "on-demand",
        None,
        Decimal(price),
        "USD",
        None,
        "gpu+host",
        first,
        last or first,
        ended,
        source,
        "2026-11-15",
    )


RUNS = [
    observation("3.06", "2017-10-25", "2022-10-11"),
    observation("2.50", "2023-01-01"),
    observation("2.00", "2024-01-01", "2024-06-01", "2024-07-01"),
]


@pytest.mark.parametrize(
    ("day", "price", "confidence", "observed_at", "age"),
    [
        ("2017-10-25", "3.06", "observed", "2017-10-25", 0),
        ("2019-09-08", "3.06", "bracketed", "2017-10-25", 683),
        ("2022-10-11", "3.06", "observed", "2022-10-11", 0),
        ("2022-12-31", "3.06", "carried", "2022-10-11", 81),
        ("2023-01-01", "2.50", "observed", "2023-01-01", 0),
        ("2023-12-31", "2.50", "carried", "2023-01-01", 364),
        ("2024-03-01", "2.00", "bracketed", "2024-01-01", 60),
        ("2024-06-15", "2.00", "carried", "2024-06-01", 14),
    ],
)
def test_the_latest_sighting_not_after_the_day_decides(day: str, price: str, confidence: str, observed_at: str, age: int) -> None:
    observed = price_on_day(RUNS, date.fromisoformat(day))
    assert observed is not None
    assert (str(observed.observation.price), observed.confidence, observed.observed_at, observed.age_days) == (
        price,
        confidence,
        observed_at,
        age,
    )


def test_no_price_before_the_first_observation_or_after_the_end() -> None:
    assert price_on_day(RUNS, date(2017, 10, 24)) is None
    assert price_on_day(RUNS, date(2024, 7, 1)) is None  # not an older price either
    assert price_on_day([], date(2024, 7, 1)) is None


def test_only_carried_forward_prices_become_stale_after_thirty_days() -> None:
    runs = [observation("1", "2020-01-01", "2020-12-31")]
    last = date(2020, 12, 31)
    for days, stale in ((0, False), (STALE_DAYS, False), (STALE_DAYS + 1, True)):
        price = price_on_day(runs, last + timedelta(days=days))
        assert price is not None
        assert price.stale is stale
    bracketed = price_on_day(runs, date(2020, 12, 30))
    assert bracketed is not None
    assert bracketed.age_days > STALE_DAYS
    assert not bracketed.stale


def test_a_fresher_source_wins_over_an_older_one_and_over_its_end() -> None:
    old, new = observation("3", "2020-01-01", "2020-06-01"), observation("4", "2020-03-01", "2020-07-01", source="b")
    price = price_on_day([old, new], date(2020, 8, 1))
    assert price is not None
    assert price.observation.source == "b"
    relisted = [observation("3", "2020-01-01", "2020-06-01", "2020-07-01"), observation("3", "2020-09-01", source="b")]
    assert price_on_day(relisted, date(2020, 8, 1)) is None
    again = price_on_day(relisted, date(2020, 9, 2))
    assert again is not None
    assert again.observation.source == "b"


def test_monthly_observation_covers_its_first_to_last_day() -> None:
    price = price_on_day([observation("1", "2020-02")], date(2020, 2, 15))
    assert price is not None
    assert price.confidence == "bracketed"
    after = price_on_day([observation("1", "2020-02")], date(2020, 3, 1))
    assert after is not None
    assert (after.confidence, after.age_days) == ("carried", 1)


def test_offers_are_independent() -> None:
    other = Observation(**{name: getattr(RUNS[0], name) for name in Observation.__struct_fields__} | {"region": "eu-west-1"})
    prices = list(prices_on_day([*RUNS, other], date(2018, 1, 1)))
    assert {one.observation.region for one in prices} == {"us-east-1", "eu-west-1"}


days = st.dates(date(2013, 1, 1), date(2026, 1, 1))


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    marks = sorted(draw(st.sets(days, min_size=2, max_size=12)))
    marks = marks[: len(marks) // 2 * 2]
    return [
        observation(str(draw(st.integers(1, 50))), first.isoformat(), last.isoformat())
        for first, last in zip(marks[::2], marks[1::2], strict=True)
    ]


@given(histories(), days)
def test_current_price_is_the_last_one_observed_by_that_day(history: list[Observation], day: date) -> None:
    price = price_on_day(history, day)
    if price is None:
        assert all(date.fromisoformat(run.observed) > day for run in history)
        return
    assert date.fromisoformat(price.observed_at) <= day
    assert price.age_days == (day - date.fromisoformat(price.observed_at)).days
    later = [run for run in history if price.observation.observed < run.observed <= day.isoformat()]
    assert later == []
    inside = price.observation.observed < day.isoformat() < price.observation.last_observed
    assert (price.confidence == "bracketed") is inside


@given(histories(), days, st.randoms(use_true_random=False))
def test_the_order_of_sightings_does_not_matter(history: list[Observation], day: date, random: object) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert price_on_day(shuffled, day) == price_on_day(history, day)
