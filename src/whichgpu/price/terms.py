"""Terms: hours of a month, prices derived by discount rules, sustained-use discounts, and upfront payments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal

from msgspec.structs import replace

from whichgpu.base.dates import first_day, last_day
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.pricing import Discount
from whichgpu.price.asof import PriceOnDay

MONTH_HOURS = 730  # 8760 / 12, as in the clouds' own price calculators.
YEAR_HOURS = 8760  # 365 days, as clouds bill a year.
YEARS = {"reserved-1y": 1, "reserved-3y": 3, "committed-1y": 1, "committed-3y": 3}


def prices_from_rules(
    day_prices: Sequence[PriceOnDay], rules: Iterable[Discount], day: date, hours: Decimal
) -> Iterator[PriceOnDay]:
    """Yield prices that published discount rules derive from on-demand prices, unless that offer has a stated price."""
    stated = {_place(one.observation, one.observation.term) for one in day_prices}
    base = [one for one in day_prices if one.observation.term == "on-demand"]
    for rule in rules:
        if first_day(rule.first) > day or (rule.last and last_day(rule.last) < day):
            continue
        for one in base:
            run = one.observation
            if run.provider == rule.provider and run.instance.startswith(rule.instances) and _place(run, rule.term) not in stated:
                share = rule.share if rule.share is not None else sustained_share(rule.steps, hours)
                yield replace(one, observation=_at(run, rule, share))


def sustained_share(steps: Sequence[Decimal], hours: Decimal) -> Decimal:
    """Return the average share of the on-demand price under a sustained-use discount, for `hours` of a 730-hour month.

    The month is divided into as many equal parts as there are steps; hours in each part cost that step's share.

    >>> quarters = [Decimal(1), Decimal("0.8"), Decimal("0.6"), Decimal("0.4")]
    >>> sustained_share(quarters, Decimal(730)), sustained_share(quarters, Decimal(365)), sustained_share(quarters, Decimal(100))
    (Decimal('0.7'), Decimal('0.9'), Decimal('1'))
    """
    part = Decimal(MONTH_HOURS) / len(steps)
    run = min(hours, Decimal(MONTH_HOURS))
    if run <= 0:
        return steps[0]
    paid = sum((max(min(run - part * index, part), Decimal(0)) * step for index, step in enumerate(steps)), Decimal(0))
    return (paid / run).normalize()


def upfront(run: Observation) -> Decimal | None:
    """Return the payment due at the start of a committed term; None if there is none or it is unknown (partial upfront)."""
    if run.upfront is not None:
        return run.upfront
    if run.payment == "all-upfront" and run.term in YEARS:
        return run.price * YEAR_HOURS * YEARS[run.term]
    return None


def _at(run: Observation, rule: Discount, share: Decimal) -> Observation:
    price = (run.price * share).quantize(Decimal("0.000001")).normalize()
    return replace(run, term=rule.term, price=Decimal(f"{price:f}"), source=rule.sources[0])


def _place(run: Observation, term: str) -> tuple[object, ...]:
    return (run.provider, run.instance, run.region, term, run.includes)
