"""Money: a decimal amount and a currency."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

_MONEY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-zA-Z]{3})(?:\s*/\s*([a-zA-Z]+))?")
# Amounts as people type them: a sign or word of a currency, or none; groups of thousands; k for thousands.
_TYPED_MONEY = re.compile(
    r"([$€£₩₫]?)\s*([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]{1,9})?|[0-9]{1,15}(?:\.[0-9]{1,9})?)(k(?![a-z]))?\s*([$€£₩₫]|[a-z]*)"
    r"(?:\s*(?:/|\bper\b|\ban?\b)\s*([a-z]+))?",
    re.IGNORECASE,
)
_TYPED_CURRENCIES = {
    "$": "USD", "€": "EUR", "£": "GBP", "₩": "KRW", "₫": "VND", "dollar": "USD", "dollars": "USD", "bucks": "USD", "euro": "EUR",
    "euros": "EUR", "pound": "GBP", "pounds": "GBP", "won": "KRW", "dong": "VND",
}  # fmt: skip
_PERIODS = {"h": "hour", "hr": "hour", "hour": "hour", "mo": "month", "month": "month"}

# Currencies without a smaller unit in use (minor unit 0 in ISO 4217, https://www.iso.org/iso-4217-currency-codes.html, 2026).
WHOLE_CURRENCIES = ("CLP", "ISK", "JPY", "KRW", "VND")


class Money(msgspec.Struct, frozen=True):
    """An amount of money in one currency.

    >>> str(Money(Decimal("4.234"), "USD"))
    '4.234 USD'
    """

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


def parse_typed_money(text: str, currency: str) -> tuple[Money, str | None]:
    """Parse an amount as people type it, in `currency` if the text names none; also return its period, or None.

    >>> parse_typed_money("$500", "USD"), parse_typed_money("1,500 euros", "USD")[0], parse_typed_money("2.5", "EUR")[0]
    ((Money(amount=Decimal('500'), currency='USD'), None), Money(amount=Decimal('1500'), currency='EUR'), \
Money(amount=Decimal('2.5'), currency='EUR'))
    """
    match = _TYPED_MONEY.fullmatch(text.strip())
    signs = [sign.lower() for sign in (match[1], match[4]) if sign] if match else []
    if match is None or len(signs) > 1:
        return parse_money(text)
    period = f"/{match[5]}" if match[5] else ""
    amount = Decimal(match[2].replace(",", "")) * (1000 if match[3] else 1)
    return parse_money(f"{amount:f}{_TYPED_CURRENCIES.get(signs[0], signs[0]) if signs else currency}{period}")


def parse_money(text: str) -> tuple[Money, str | None]:
    """Parse an amount with its currency; also return the period it is paid for (such as an hour), or None if none is given.

    >>> parse_money("2usd/h")
    (Money(amount=Decimal('2'), currency='USD'), 'hour')
    """
    match = _MONEY.fullmatch(text.strip())
    period = _PERIODS.get(match[3].lower()) if match and match[3] else None
    if match is None or (match[3] and period is None):
        raise UsageError("bad-money", msg("error.bad-money", text=text), msg("hint.bad-money"))
    return Money(Decimal(match[1]), match[2].upper()), period
