"""The user's own terms on top of list prices: a TOML file with discounts, contract prices and owned machines.

    [discounts]                     # off every list price of a provider
    aws = "12%"

    [[contract]]
    provider = "gcp"
    instance = "a3-highgpu-8g"
    region = "us-central1"          # left out: everywhere
    term = "committed-1y"
    price = "52.10 usd/h"           # the whole instance, an hour
    accept = true                   # keeps a price that is far from the known ones
    from = "2026-01-01"
    until = "2026-12-31"
    note = "agreement 17"

    [[owned]]
    name = "lab"
    gpu = "V100 SXM 16GB"
    gpus = 8
    cost = "0.90 usd/h"             # power and upkeep of all of them, an hour

The `standing` of such an offer is `discounted`, `contract` or `owned`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.dates import first_day, is_date, last_day
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money, parse_money
from whichgpu.base.names import unknown_word
from whichgpu.base.units import significant
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.find import count_in_name, find_gpu, find_provider
from whichgpu.catalog.live.contract_checks import check_against_known_prices, contract_gpu, contract_regions, machine_named
from whichgpu.catalog.live.references import ReferencePrices
from whichgpu.catalog.live.resolve import is_plausible_count
from whichgpu.catalog.live.rows import ANY_REGION, HOURS_PER_MONTH, parse_discount, parse_price
from whichgpu.catalog.offer import TERMS, Observation
from whichgpu.catalog.pricing import implausible_price
from whichgpu.catalog.store import Catalog

NAME = "prices.toml"
MAX_BYTES = 1 << 20  # Largest file, which people write by hand (set by judgement).
MAX_DISCOUNT = Decimal("0.9")  # Largest discount off list prices (assumed); a higher one is most likely a slip.
CONTRACT = ("provider", "instance", "gpu", "gpus", "region", "term", "price", "from", "until", "note", "accept")
OWNED = ("name", "gpu", "gpus", "cost", "region", "from", "until", "note")


class Overlay(msgspec.Struct, frozen=True):
    """Validated content of the user's `prices.toml`: discounts, contracts and owned machines."""

    path: Path
    discounts: Mapping[str, Decimal]
    offers: tuple[Observation, ...]  # contracts and owned machines


def overlay_path(path: Path | None) -> Path | None:
    """Return the given path, or that of `prices.toml` in the user's config directory if it exists."""
    if path is not None:
        return path
    from platformdirs import user_config_path

    try:
        usual = user_config_path("whichgpu", appauthor=False) / NAME
        return usual if usual.is_file() else None
    except (OSError, RuntimeError):  # The home directory is missing or unreadable.
        return None


def read_overlay(given_path: Path | None, catalog: Catalog, today: date) -> Overlay | None:
    """Read the user's own prices (discounts, contracts, owned machines) from a TOML file; None without a file."""
    path = overlay_path(given_path)
    if path is None:
        return None
    import tomllib

    try:
        document = tomllib.loads(read_regular_file(path, MAX_BYTES).decode("utf-8"))
    except OSError as problem:
        message = msg("error.config-unreadable", path=str(path), why=problem.strerror or str(problem))
        raise UsageError("config-unreadable", message, msg("hint.overlay")) from problem
    except (ValueError, RecursionError) as problem:
        message = msg("error.config-malformed", path=str(path), why=str(problem))
        raise UsageError("config-malformed", message, msg("hint.overlay")) from problem
    try:
        return _overlay(document, path, catalog, today)
    except WhichGpuError as problem:
        raise UsageError(problem.kind, msg("error.in-file", path=str(path), what=problem.message), problem.hint) from problem


def apply_overlay(offers: Iterable[Observation], overlay: Overlay | None, day: date) -> tuple[Observation, ...]:
    """Apply discounts to list prices and add the contracts and owned machines valid on a day."""
    if overlay is None:
        return tuple(offers)
    changed = tuple(_discounted(offer, overlay.discounts.get(offer.provider)) for offer in offers)
    begun = (one for one in overlay.offers if first_day(one.observed) <= day)
    return (*changed, *(one for one in begun if one.ended is None or day < first_day(one.ended)))


def _discounted(offer: Observation, off: Decimal | None) -> Observation:
    if not off or offer.standing != "list" or offer.term == "spot":  # Spot prices are not list prices.
        return offer
    upfront = None if offer.upfront is None else parse_price(offer.upfront * (1 - off))
    return replace(offer, price=parse_price(offer.price * (1 - off)), upfront=upfront, standing="discounted", discount=off)


def _overlay(document: Mapping[str, Any], path: Path, catalog: Catalog, today: date) -> Overlay:
    for key in document:
        if key not in ("discounts", "contract", "owned"):
            raise unknown_word("key", key, ("discounts", "contract", "owned"))
    rates = DollarRates(catalog.exchange)
    discounts = {find_provider(catalog, name): _share(name, value) for name, value in _table(document, "discounts").items()}
    references = ReferencePrices(catalog, rates)
    contracts = []
    for row in _rows(document, "contract", CONTRACT):
        for offer in _contracts(row, catalog, today):
            dollars = _plausible_dollars(offer, catalog, rates, today)
            if row.get("accept") is not True:
                check_against_known_prices(offer, references, dollars)
            contracts.append(offer)
    owned = [_owned(row, catalog, today) for row in _rows(document, "owned", OWNED)]
    for offer in owned:
        _plausible_dollars(offer, catalog, rates, today)
    return Overlay(path, discounts, (*contracts, *owned))


def _plausible_dollars(offer: Observation, catalog: Catalog, rates: DollarRates, today: date) -> float:
    """Return a user's price in US dollars; raise if it is implausible. An owned machine may cost next to nothing (power only)."""
    day = max(today, first_day(offer.observed))
    dollars = rates.dollars(offer.price, offer.currency, day)
    price = str(Money(offer.price, offer.currency))
    if dollars is None:
        message = msg("error.no-exchange-rate", currency=offer.currency, day=day.isoformat())
        raise UsageError("no-exchange-rate", message, msg("hint.price-in-dollars"))
    reason = implausible_price(catalog.gpu_by_id[offer.gpu].tdp_watts, dollars / offer.gpus)
    if reason == "too-dear" or (reason is not None and offer.standing == "contract"):
        why = msg(f"quarantine.{reason}")
        message = msg("error.implausible-price", name=offer.instance, price=price, dollars=significant(dollars), why=why)
        raise UsageError("implausible-price", message, msg("hint.implausible-price"))
    return dollars


def _contracts(row: Mapping[str, Any], catalog: Catalog, today: date) -> list[Observation]:
    """Return the offers of a contract, one in each of its regions."""
    provider, instance = find_provider(catalog, str(_required(row, "provider"))), str(row.get("instance", ""))
    machine = machine_named(catalog, provider, instance)
    gpus = _gpus(row, catalog, 1 if machine is None else machine.gpus)
    gpu = contract_gpu(catalog, machine, str(row["gpu"]) if "gpu" in row else None, gpus)
    if gpu is None:
        raise _invalid("contract", msg("error.overlay-lacks", key="gpu"))
    term = str(row.get("term", "on-demand"))
    if term not in TERMS:
        raise unknown_word("term", term, TERMS)
    price = _hourly(str(_required(row, "price")))
    name = machine.instance if machine else instance or f"{gpus:g}x {gpu}"
    regions = contract_regions(catalog, provider, str(row.get("region", ANY_REGION)))
    return [_offer(row, provider, name, gpu, gpus, term, price, region, today, "contract") for region in regions]


def _owned(row: Mapping[str, Any], catalog: Catalog, today: date) -> Observation:
    gpu, gpus = find_gpu(catalog, str(_required(row, "gpu"))).id, _gpus(row, catalog, 1)
    price = _hourly(str(_required(row, "cost")))
    name = str(row.get("name") or f"{gpus:g}x {gpu}")
    return _offer(row, "owned", name, gpu, gpus, "owned", price, str(row.get("region", ANY_REGION)), today, "owned")


def _offer(
    row: Mapping[str, Any],
    provider: str,
    instance: str,
    gpu: str,
    gpus: float,
    term: str,
    price: Money,
    region: str,
    today: date,
    standing: str,
) -> Observation:
    first, until = _day(row, "from"), _day(row, "until")
    ended = None if until is None else date.fromordinal(last_day(until).toordinal() + 1).isoformat()
    day = min(today, last_day(until)) if until else today
    return Observation(
        provider=provider,
        instance=instance,
        region=region,
        gpu=gpu,
        gpus=int(gpus) if gpus == int(gpus) else gpus,
        term=term,
        payment=None,
        price=parse_price(price.amount),
        currency=price.currency,
        upfront=None,
        includes="gpu+host",
        observed=first or today.isoformat(),
        last_observed=max(day, first_day(first)).isoformat() if first else day.isoformat(),
        ended=ended,
        source=NAME,
        recorded=today.isoformat(),
        note=str(row["note"]) if "note" in row else None,
        standing="contract" if standing == "contract" else "owned",
    )


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, Mapping):
        raise _invalid(key, msg("error.overlay-table", key=key))
    return table


def _rows(document: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> list[Mapping[str, Any]]:
    rows = document.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise _invalid(key, msg("error.overlay-rows", key=key))
    for row in rows:
        for name in row:
            if name not in allowed:
                raise unknown_word("key", f"{key}.{name}", allowed)
    return rows


def _share(name: str, value: object) -> Decimal:
    try:
        share = parse_discount(value)
        if share > MAX_DISCOUNT:
            raise _invalid(name, msg("error.high-discount", text=str(value), most=f"{MAX_DISCOUNT:.0%}"))
        return share
    except (ValueError, ArithmeticError) as problem:
        raise _invalid(name, msg("error.bad-discount", text=str(value))) from problem


def _hourly(text: str) -> Money:
    money, period = parse_money(text)
    if period is None:
        raise _invalid("price", msg("error.price-without-period", text=text))
    return Money(money.amount / HOURS_PER_MONTH, money.currency) if period == "month" else money


def _gpus(row: Mapping[str, Any], catalog: Catalog, default: float) -> float:
    """Return the number of GPUs that a row states, also in the GPU's name (`8xA100`); raise if it states two."""
    name_count = count_in_name(catalog, str(row["gpu"])) if "gpu" in row else None
    value = row.get("gpus", default if name_count is None else name_count)
    try:
        count = float(str(value))
    except ValueError:
        count = 0.0
    if not is_plausible_count(count):
        raise _invalid("gpus", msg("error.bad-count", name=str(value)))
    if name_count is not None and name_count != count:
        raise _invalid("gpus", msg("error.two-counts", text=str(row["gpu"]), given=f"{count:g}"))
    return count


def _day(row: Mapping[str, Any], key: str) -> str | None:
    if key not in row:
        return None
    text = str(row[key])
    if not is_date(text):
        raise _invalid(key, msg("error.bad-date", text=text))
    return text if key == "until" else first_day(text).isoformat()


def _required(row: Mapping[str, Any], key: str) -> object:
    if row.get(key) in (None, ""):
        raise _invalid(key, msg("error.overlay-lacks", key=key))
    return row[key]


def _invalid(key: str, message: Message) -> UsageError:
    return UsageError("bad-overlay", message, msg("hint.overlay"), (key,))
