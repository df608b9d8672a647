"""Offers from current prices: other currencies, filters, groups and sorting."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.price.test_asof import observation
from whichgpu.base.errors import NoAnswer, UnknownName
from whichgpu.base.figure import Figure
from whichgpu.base.money import Money
from whichgpu.catalog.currency import Exchanger, Quote, _rate_on, round_significant
from whichgpu.catalog.pricing import Discount, DollarExchangeRate
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import PriceOnDay, price_on_day
from whichgpu.price.offers import Offer, OfferFilter, build_offer, cheapest_by_group, dollars, ordered
from whichgpu.price.terms import prices_from_rules, sustained_share, upfront

DAY = date(2019, 9, 8)
GIVEN = Exchanger(DAY, (), {"KRW": Decimal(1000), "EUR": Decimal("0.8")})


def price_on(**changed: Any) -> PriceOnDay:
    price = price_on_day([replace(observation("8.00", "2019-01-01", "2020-01-01"), **changed)], DAY)
    assert price is not None
    return price


def offer(display_currency: str | None = None, hours: str = "100", trip: Figure | None = None, **changed: Any) -> Offer:
    return build_offer(price_on(**changed), "V100", GIVEN, display_currency, Decimal(hours), trip)


def test_offer_has_price_per_machine_gpu_hour_and_month() -> None:
    priced = offer(gpus=4)
    assert priced.price == Money(Decimal("8.00"), "USD")
    assert priced.price_per_gpu_hour == Money(Decimal("2"), "USD")
    assert priced.price_month == Money(Decimal("800.000"), "USD")
    assert priced.exchange_rate is None
    assert priced.upfront is None
    assert (priced.valid_from, priced.observed_at, priced.confidence, priced.stale) == (
        "2019-01-01",
        "2019-01-01",
        "bracketed",
        False,
    )
    assert priced.age_days == 250


def test_a_commitment_is_paid_all_month() -> None:
    assert offer(term="committed-1y").price_month.amount == Decimal("5840.000")
    whole = offer(term="reserved-3y", payment="all-upfront")
    assert whole.upfront == Money(Decimal("8.00") * 8760 * 3, "USD")
    assert offer(term="reserved-1y", payment="all-upfront", upfront=Decimal("12.3456")).upfront == Money(Decimal("12.346"), "USD")


def test_prices_are_in_the_requested_currency_with_the_listed_one() -> None:
    priced = offer("KRW", term="reserved-1y", payment="all-upfront", discount=Decimal("0.2"))
    assert priced.price == Money(Decimal(8000), "KRW")
    assert priced.listed_price == Money(Decimal(10), "USD")
    assert priced.upfront == Money(Decimal("70080000"), "KRW")
    assert priced.exchange_rate is not None
    assert (priced.exchange_rate.value, priced.exchange_rate.date, priced.exchange_rate.source) == (1000.0, None, "given")
    assert offer(discount=None).listed_price == Money(Decimal("8.00"), "USD")


def test_money_is_compared_in_dollars() -> None:
    assert dollars(Money(Decimal(500), "KRW"), GIVEN) == Decimal("0.5")
    assert dollars(Money(Decimal(500), "USD"), GIVEN) == Decimal(500)


def far(seconds: float) -> Figure:
    return Figure.exact(seconds, "s")


def filter_results(offer: Offer, **filters: Any) -> dict[str, bool]:
    return {name: test(offer) for name, test in OfferFilter(**filters).tests(Catalog().gpu_by_id).items()}


def test_each_filter_applies_alone_and_only_if_set() -> None:
    one = offer()
    assert filter_results(one) == {}
    assert filter_results(one, gpu_ids=frozenset({"v100-sxm-16gb"}), providers=("aws",), terms=("spot",)) == {
        "gpu": True, "provider": True, "term": False,
    }  # fmt: skip
    assert filter_results(one, gpu_ids=frozenset()) == {"gpu": False}
    assert filter_results(one, instances=frozenset({("gcp", "p3.2xlarge")}), regions=frozenset({("aws", "us-east-1")})) == {
        "instance": False, "region": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "low", "high", "matches"), [(4, 4, 8, True), (8, 4, 8, True), (3, 4, 8, False), (9, 4, 8, False)]
)
def test_gpu_count_filter_includes_both_ends(gpus: int, low: float, high: float, matches: bool) -> None:
    assert filter_results(offer(gpus=gpus), gpus=(low, high)) == {"gpus": matches}


def test_memory_is_that_of_one_gpu_or_of_the_slice() -> None:
    size = Catalog().gpu_by_id["v100-sxm-16gb"].memory_marketed_bytes
    assert filter_results(offer(), min_memory=size) == {"min_memory": True}
    assert filter_results(offer(gpus=8), min_memory=size + 1) == {"min_memory": False}
    assert filter_results(offer(gpus=0.5), min_memory=size // 2 + 1) == {"min_memory": False}
    assert filter_results(offer(gpus=0.5), min_memory=size // 2) == {"min_memory": True}
    assert filter_results(offer(gpu="unheard-of"), min_memory=1) == {"min_memory": False}


def test_max_latency_filter_needs_a_known_round_trip() -> None:
    assert filter_results(offer(trip=far(0.1)), max_latency=0.1) == {"max_latency": True}
    assert filter_results(offer(trip=far(0.11)), max_latency=0.1) == {"max_latency": False}
    assert filter_results(offer(), max_latency=0.1) == {"max_latency": False}


def test_the_cheapest_of_each_group_by_the_price_of_a_gpu_with_how_many_there_are() -> None:
    whole, eighth = offer(instance="one"), offer(instance="eight", gpus=8, price=Decimal(40))
    korean = offer(instance="won", price=Decimal(6000), currency="KRW")
    offers = cheapest_by_group([whole, eighth, korean], ["gpu"], GIVEN)
    assert [(one.instance, one.cheapest_of) for one in offers] == [("eight", 3)]
    apart = cheapest_by_group([whole, replace(eighth, provider="gcp"), korean], ["provider"], GIVEN)
    assert [(one.instance, one.cheapest_of) for one in apart] == [("won", 2), ("eight", 1)]
    assert (
        cheapest_by_group([whole, replace(whole, region="x")], ["gpu"], GIVEN)[0].region == "us-east-1"
    )  # of equal ones the first


def test_offers_sort_by_gpu_price_or_a_field_in_either_direction() -> None:
    a, b = offer(instance="B", price=Decimal(9)), offer(instance="a", price=Decimal(16), gpus=2)
    c = offer(instance="c", price=Decimal(8500), currency="KRW")
    assert [one.instance for one in ordered([a, b, c], None, GIVEN)] == ["a", "c", "B"]
    assert [one.instance for one in ordered([a, b, c], "price", GIVEN)] == ["c", "B", "a"]
    assert [one.instance for one in ordered([a, b, c], "-price", GIVEN)] == ["a", "B", "c"]
    assert [one.instance for one in ordered([a, b, c], "instance", GIVEN)] == ["a", "B", "c"]  # whatever the case of letters
    assert [one.gpus for one in ordered([a, b, c], "-gpus", GIVEN)] == [2, 1, 1]
    with pytest.raises(UnknownName):
        ordered([], "beauty", GIVEN)


def test_offers_without_the_sort_field_come_last_and_ties_by_distance() -> None:
    near, away, unknown = offer(region="z", trip=far(0.01)), offer(region="y", trip=far(0.2)), offer(region="x")
    assert [one.region for one in ordered([unknown, away, near], None, GIVEN)] == ["z", "y", "x"]
    assert [one.region for one in ordered([unknown, near, away], "round-trip", GIVEN)] == ["z", "y", "x"]
    assert [one.region for one in ordered([unknown, near, away], "-round-trip", GIVEN)] == ["y", "z", "x"]


def test_a_rate_holds_for_a_third_of_a_year_after_its_day_and_no_longer() -> None:
    """The last rate of the rouble is of 2022-03-01."""
    assert Exchanger(date(2022, 6, 29)).rate("USD", "RUB").date == "2022-03-01"
    with pytest.raises(NoAnswer):
        Exchanger(date(2022, 6, 30)).rate("USD", "RUB")
    assert Exchanger(date(2022, 3, 1)).can_convert("RUB", None)
    assert not Exchanger(date(2024, 1, 1)).can_convert("RUB", "USD")
    assert not Exchanger(date(2024, 1, 1)).can_convert("USD", "RUB")
    with pytest.raises(NoAnswer, match="RUB"):
        Exchanger(date(2024, 1, 1)).rate("RUB", "USD")
    with pytest.raises(NoAnswer, match="RUB"):
        Exchanger(date(2024, 1, 1)).rate("EUR", "RUB")


def test_rates_of_our_table_are_the_latest_by_then() -> None:
    rows = [DollarExchangeRate("TWD", day, Decimal(rate), (source,), "2026-11-15")
            for day, rate, source in (("2018", "30", "a"), ("2020", "32", "c"), ("2019", "31", "b"))]  # fmt: skip
    result = Exchanger(date(2019, 6, 1), rows).rate("USD", "TWD")
    assert (result.value, result.date, result.source) == (Decimal(31), "2019", "b")
    mixed = Exchanger(date(2019, 6, 1), rows, {"XXX": Decimal(62)}).rate("XXX", "TWD")
    assert (mixed.value, mixed.date, mixed.source) == (Decimal("0.5"), "2019", "b")
    back = Exchanger(date(2019, 6, 1), rows).rate("TWD", "TWD")
    assert (back.value, back.date) == (Decimal(1), None)


def test_a_quote_is_of_the_day_or_the_last_one_before() -> None:
    series = (Quote(10, "1.5"), Quote(12, "2.5"))
    assert [_rate_on(series, day) for day in (10, 11, 12, 99)] == [Decimal(text) for text in ("1.5", "1.5", "2.5", "2.5")]
    assert _rate_on((), 10) == 1


@pytest.mark.parametrize(
    ("amount", "digits", "rounded"), [("0", 6, "0"), ("1234.5678", 3, "1235"), ("0.0012345", 2, "0.0012"), ("-2.50", 6, "-2.5")]
)
def test_amounts_keep_their_digits(amount: str, digits: int, rounded: str) -> None:
    assert str(round_significant(Decimal(amount), digits)) == rounded


def rule(**changed: Any) -> Discount:
    plain = Discount("r", "aws", "committed-1y", ("p3.",), Decimal("0.5"), (), "2019-01-01", "2019-12-31", ("s",), "2026-11-15")
    return replace(plain, **changed)


def test_rules_make_prices_of_the_provider_s_own_machines_from_the_first_to_the_last_day() -> None:
    base = price_on()
    for day, many in ((date(2018, 12, 31), 0), (date(2019, 1, 1), 1), (date(2019, 12, 31), 1), (date(2020, 1, 1), 0)):
        assert len(list(prices_from_rules([base], [rule()], day, Decimal(730)))) == many
    assert len(list(prices_from_rules([base], [rule(last=None)], date(2030, 1, 1), Decimal(730)))) == 1
    for other in ({"provider": "gcp"}, {"instances": ("p4",)}):
        assert not list(prices_from_rules([base], [rule(**other)], DAY, Decimal(730)))
    assert not list(prices_from_rules([price_on(term="spot")], [rule()], DAY, Decimal(730)))
    assert (
        len(list(prices_from_rules([base, price_on(term="committed-1y", region="eu-west-1")], [rule()], DAY, Decimal(730)))) == 1
    )


def test_a_rule_of_steps_gives_the_share_of_the_hours_to_a_millionth() -> None:
    steps = (Decimal(1), Decimal("0.5"))
    (price,) = prices_from_rules(
        [price_on(price=Decimal("0.3333335"))], [rule(share=None, steps=steps, term="sustained")], DAY, Decimal(730)
    )
    assert price.observation.price == Decimal("0.25")
    assert sustained_share(steps, Decimal(0)) == 1
    assert sustained_share(steps, Decimal(9999)) == Decimal("0.75")


def test_upfront_payment_prefers_the_source_s_own_figure() -> None:
    run = replace(observation("2", "2019-01-01"), term="reserved-1y", payment="all-upfront")
    assert upfront(run) == 17520
    assert upfront(replace(run, upfront=Decimal(5))) == 5
    assert upfront(replace(run, term="on-demand")) is None
    assert upfront(replace(run, payment="no-upfront")) is None


def test_a_price_carried_for_more_than_thirty_days_is_stale() -> None:
    for day, stale in ((date(2021, 1, 30), False), (date(2021, 1, 31), True)):
        price = price_on_day([observation("1", "2020-01-01", "2020-12-31")], day)
        assert price is not None
        assert price.stale is stale
