"""Money: a decimal amount and a currency."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

_MONEY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-zA-Z]{3})(?:\s*/\s*([a-zA-Z]+))?")
_PERIODS = {"h": "hour", "hr": "hour", "hour": "hour", "mo": "month", "month": "month"}


class Money(msgspec.Struct, frozen=True):
    """An amount of money in one currency.

    >>> str(Money(Decimal("4.234"), "USD"))
    '4.234 USD'
    """

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


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
