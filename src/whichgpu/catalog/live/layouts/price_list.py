"""The user's own price list: CSV with a header, or JSON as `offers --json` and `catalog export` write it.

Required: `provider`, `gpu`, `price`. Optional: `instance, region, gpus, term, payment, currency, upfront, includes, per` (hour,
gpu-hour, month), `discount` (0.15 or 15%, off the price), `observed, last_observed`. A list with days is a history; one without
is complete.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from whichgpu.base.codec import text_of_csv_cell
from whichgpu.base.dates import first_day, is_date, last_day
from whichgpu.base.errors import DataError, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import parse_money
from whichgpu.base.names import split_count
from whichgpu.catalog.live.rows import ANY_REGION, HOURS_PER_MONTH, OfferRow, ReadCounts, RejectedRow, parse_discount, parse_price

NEEDED = frozenset({"provider", "gpu", "price"})
CountInName = Callable[[str], int | None]  # number of GPUs that a GPU's name states
_LETTER = re.compile(r"[A-Za-z]")


def is_layout(header: Iterable[str]) -> bool:
    """Whether a CSV header is that of a user's price list."""
    names = set(header)
    return names >= NEEDED or names >= {"provider", "gpu", "price.amount"}


def is_dated(header: Iterable[str]) -> bool:
    """Whether a CSV header of the user's price list has a column for the day of each price."""
    return bool({"observed", "observed_at"} & set(header))


def own_csv_rows(lines: Iterable[str], read: ReadCounts, count_in_name: CountInName) -> Iterator[OfferRow | RejectedRow]:
    """Yield the prices, and rejected rows, in the lines of the user's own price list as CSV."""
    reader = csv.DictReader(lines)
    if not is_layout(reader.fieldnames or ()):
        names = tuple(sorted(NEEDED))
        raise DataError("not-a-list", msg("error.not-a-list", columns=names), msg("hint.not-a-catalog"))
    for cells in reader:
        read.rows += 1
        if None in cells:  # The row has more cells than the header.
            yield RejectedRow("malformed", str(list(cells.values())))
        else:
            yield from _read({name: text_of_csv_cell(cell) if cell else cell for name, cell in cells.items()}, count_in_name)


def own_json_items(content: bytes) -> list[dict[str, Any]]:
    """Decode the user's own price list: a JSON list, or the list `offers` of a JSON document."""
    try:
        document = msgspec.json.decode(content, type=list[dict[str, Any]] | dict[str, Any])
        offers = document.get("offers", []) if isinstance(document, dict) else document
        return msgspec.convert(offers, list[dict[str, Any]])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as problem:
        raise DataError("not-a-list", msg("error.not-json-list", why=str(problem)), msg("hint.not-a-catalog")) from problem


def own_json_rows(
    items: Iterable[Mapping[str, Any]], read: ReadCounts, count_in_name: CountInName
) -> Iterator[OfferRow | RejectedRow]:
    """Yield the prices, and rejected rows, in the items of the user's own price list as JSON."""
    for item in items:
        read.rows += 1
        yield from _read(item, count_in_name)


def _read(cells: Mapping[str, Any], count_in_name: CountInName) -> Iterator[OfferRow | RejectedRow]:
    try:
        yield from _rows(cells, count_in_name)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, UsageError):
        yield RejectedRow("malformed", str({key: value for key, value in cells.items() if value}))


def _rows(cells: Mapping[str, Any], count_in_name: CountInName) -> Iterator[OfferRow]:
    gpu, stated = _text(cells["gpu"]), cells.get("gpus")
    count = count_in_name(gpu)
    gpus = float((count or 1) if stated in (None, "") else stated)
    price, currency = _price(cells, gpus)
    upfront = cells.get("upfront") or cells.get("upfront.amount")
    upfront = upfront.get("amount") if isinstance(upfront, Mapping) else upfront
    for day in _days(cells):
        yield OfferRow(
            provider=_text(cells["provider"]),
            instance=_text(cells.get("instance")) or f"{gpus:g}x {split_count(gpu)[1] if count else gpu}",
            region=_text(cells.get("region")) or ANY_REGION,
            accelerator=gpu,
            count=gpus,
            memory_mib=None,
            term=str(cells.get("term") or "on-demand"),
            price=price,
            currency=currency,
            payment=str(cells["payment"]) if cells.get("payment") else None,
            upfront=parse_price(upfront) if upfront not in (None, "") else None,
            includes=str(cells.get("includes") or "gpu+host"),
            observed_on=day,
        )


def _price(cells: Mapping[str, Any], gpus: float) -> tuple[Decimal, str]:
    """Return the hourly price of the whole instance after the row's discount, and its currency."""
    stated = cells.get("price")
    currencies = [cells.get("currency"), cells.get("price.currency")]
    periods = [cells.get("per")]
    if isinstance(stated, Mapping):
        currencies.append(stated["currency"])
        stated = stated["amount"]
    elif stated in (None, ""):
        stated = cells["price.amount"]
    if isinstance(stated, str) and _LETTER.search(stated):
        money, period_named = parse_money(stated)
        stated = money.amount
        currencies.append(money.currency)
        periods.append(period_named)
    currency = _only([str(one).upper() for one in currencies if one], "USD")
    period = _only([str(one) for one in periods if one], "hour")
    discount = cells.get("discount")
    if period == "hour" and not discount:
        return parse_price(stated), currency
    scale = {"hour": Decimal(1), "gpu-hour": Decimal(str(gpus)), "month": 1 / Decimal(HOURS_PER_MONTH)}[period]
    return parse_price(parse_price(stated) * scale * (1 - parse_discount(discount))), currency


def _only(stated: Collection[str], default: str) -> str:
    """Return the one value that a row states in one or several places, or the default; raise ValueError if they differ."""
    if len(set(stated)) > 1:
        raise ValueError(str(stated))
    return next(iter(stated), default)


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()


def _days(cells: Mapping[str, Any]) -> tuple[date | None, ...]:
    first = cells.get("observed") or cells.get("observed_at")
    last = cells.get("last_observed") or first
    return _span(str(first), str(last)) if first else (None,)


@lru_cache(maxsize=4096)
def _span(first: str, last: str) -> tuple[date, ...]:
    if not (is_date(first) and is_date(last)):
        raise ValueError(first)
    return tuple(dict.fromkeys((first_day(first), last_day(last) if last != first else first_day(first))))
