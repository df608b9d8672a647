"""GPUs the user owns or could buy, as offers: an hour costs the power drawn, and for cards to buy also their depreciation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal

from whichgpu.base.dates import first_day
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import parse_typed_money
from whichgpu.catalog.currency import DOLLAR, Exchanger
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog
from whichgpu.decide.constraints import Owned
from whichgpu.price.card_prices import CardPrice, observed_price
from whichgpu.price.filters import split_names
from whichgpu.price.own import POWER_PRICE, OwnershipCosts, host_price, owned_gpu_hour

BUY, OWNED = "buy", "owned"  # provider ids of cards to buy and of the user's own machines
YUAN = "CNY"
CARDS_PER_BUILD = (1, 2, 4)
OWNED_SIZES = (1, 2, 4, 8, 16)  # Numbers of GPUs of an owned machine that are used together, in addition to all of them.
SOLD_IN_MACHINES = ("sxm", "oam", "superchip", "board", "soc")  # GPUs of these form factors cannot be bought as single cards.


def dollars_per_kwh(text: str | None, exchanger: Exchanger) -> float:
    """Return the price of a kWh in US dollars from the user's text; the default if there is none."""
    if text is None:
        return POWER_PRICE
    money, _ = parse_typed_money(text, DOLLAR)
    return float(exchanger.convert(money, DOLLAR)[0].amount)


def owned_offers(owned: Sequence[Owned], catalog: Catalog, day: date, power_price: float) -> list[Observation]:
    """Return the user's GPUs as offers of several sizes up to all of them, priced per hour at their power under load."""
    offers = []
    for one in owned:
        gpu = catalog.gpu_by_id[one.gpu]
        hour = owned_gpu_hour(gpu.tdp_watts, one.gpus, power_price)
        for size in sorted({size for size in OWNED_SIZES if size <= one.gpus} | {one.gpus}):
            offers.append(_offer(gpu, size, OWNED, size * hour, day))
    return offers


def offers_to_buy(
    catalog: Catalog, day: date, power_price: float, card_prices: Mapping[str, Decimal], exchanger: Exchanger,
    in_china: bool = False,
) -> tuple[list[Observation], dict[str, CardPrice]]:  # fmt: skip
    """Return cards and whole computers on sale on the day as offers, and the price of each GPU in US dollars.

    Cards with a list price in yuan are sold in China alone; they are offered only `in_china`, or at the user's own price.
    """
    offers, prices = [], {}
    for gpu in catalog.gpus:
        price = _card_price(gpu, day, card_prices, exchanger)
        if (
            price is not None
            and price.basis == "list"
            and gpu.launch_price
            and gpu.launch_price.currency == YUAN
            and not in_china
        ):
            continue
        if price is None:
            continue
        prices[gpu.id] = price
        for count in (1,) if price.whole_machine else CARDS_PER_BUILD:
            cards = float(price.price * count)
            host = 0.0 if price.whole_machine else host_price(cards)
            own = OwnershipCosts(cards, float(gpu.tdp_watts or 0) * count, host, power_price=power_price)
            offers.append(_offer(gpu, count, BUY, own.hour, day, price.source))
    return offers, prices


def _card_price(gpu: Gpu, day: date, card_prices: Mapping[str, Decimal], exchanger: Exchanger) -> CardPrice | None:
    """Return the price of a card: the user's, else one observed on the market, else the list price; None if it is not sold."""
    source = gpu.sources[0] if gpu.sources else BUY
    if gpu.id in card_prices:
        return CardPrice(card_prices[gpu.id], "given", day.isoformat(), source)
    if first_day(gpu.launch_date) > day:
        return None
    observed = observed_price(gpu.id, day)
    if observed is not None:
        return observed
    if gpu.launch_price is None or gpu.form_factor in SOLD_IN_MACHINES:
        return None
    return CardPrice(exchanger.convert(gpu.launch_price, DOLLAR)[0].amount, "list", gpu.launch_date, source)


def card_prices_given(text: str | None, catalog: Catalog, exchanger: Exchanger) -> dict[str, Decimal]:
    """Return prices per card in US dollars by GPU, parsed from a text such as `RTX 3090=700usd, …`."""
    dollars = {}
    for part in split_names(text or ()):
        name, equals, price = part.partition("=")
        if not equals:
            raise UsageError("bad-price", msg("error.bad-card-price", text=part), msg("hint.bad-card-price"))
        money, _ = parse_typed_money(price, DOLLAR)
        dollars[find_gpu(catalog, name.strip()).id] = exchanger.convert(money, DOLLAR)[0].amount
    return dollars


def _offer(gpu: Gpu, count: int, provider: str, dollars_per_hour: float, day: date, source: str | None = None) -> Observation:
    price = Decimal(repr(round(dollars_per_hour, 6)))
    return Observation(
        provider, f"{count}x {gpu.name}", "", gpu.id, count, "owned", None, price, DOLLAR, None, "gpu+host", day.isoformat(),
        day.isoformat(), None, source or (gpu.sources[0] if gpu.sources else provider), day.isoformat(), standing="owned",
    )  # fmt: skip
