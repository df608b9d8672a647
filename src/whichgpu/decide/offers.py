"""Resolve a user's requirements to constraints with ids and numbers, and select the offers that meet them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money, parse_typed_money
from whichgpu.base.names import split_count, unknown_word
from whichgpu.base.units import parse_bytes, parse_rate, parse_seconds, parse_watts
from whichgpu.catalog.currency import DOLLAR, Exchanger, parse_rates
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.live.overlay import read_overlay
from whichgpu.catalog.live.stored_offers import StoredOffers, cheapest_live_offers
from whichgpu.catalog.places.distance import round_trips
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.select import check_supports
from whichgpu.catalog.store import Catalog
from whichgpu.decide.constraints import DEFAULT_QUALITY, QUALITIES, RANKS, RISKS, SELLERS, SERVICE_SELLERS, Constraints, Owned
from whichgpu.decide.market import Market, market
from whichgpu.decide.own_offers import YUAN, card_prices_given, dollars_per_kwh, offers_to_buy, owned_offers
from whichgpu.decide.requirements import Requirements, check_requirements, invalid_value
from whichgpu.price.card_prices import CardPrice
from whichgpu.price.filters import OffersQuery, offer_filter, split_names
from whichgpu.price.own import POWER_PRICE
from whichgpu.price.quotas import read_quotas
from whichgpu.price.run import RunSettings
from whichgpu.price.table import price_table

Word = TypeVar("Word", bound=str)


class OfferSelection(msgspec.Struct, frozen=True):
    """Constraints and the offers that meet them; `purchase` is the price of one card to buy, by GPU."""

    constraints: Constraints
    market: Market
    spelled: dict[str, str]
    assumptions: tuple[Message, ...] = ()
    purchase: Mapping[str, CardPrice] = msgspec.field(default_factory=dict)
    discounted: frozenset[str] = frozenset()  # providers with a discount in the user's file of prices


def select_offers(
    query: Requirements, day: date, catalog: Catalog, overlay: Path | None, slices: bool = False, engine: Engine | None = None,
    for_service: bool = False,
) -> OfferSelection:  # fmt: skip
    """Return a day's offers that meet the requirements, on GPUs that `engine` supports; also fractions of a GPU if `slices`.

    Marketplaces and cards for desktops are avoided `for_service` unless the user names sellers, providers, machines or GPUs.
    """
    rates = query.exchange_rate
    exchanger = Exchanger(day, catalog.exchange, parse_rates(rates) if isinstance(rates, str) else rates or {})
    check_requirements(query)
    power_price = dollars_per_kwh(query.power_price, exchanger)
    names_seller = bool(query.sellers or query.provider or query.instance)
    reliable = for_service and not names_seller
    sellers = SERVICE_SELLERS if reliable else _sellers(query.sellers)
    avoided = tuple(one.id for one in catalog.providers if one.kind not in sellers) if sellers else ()
    constraints = replace(
        _constraints(query, day, catalog, exchanger), slices=slices, avoided_providers=avoided,
        server_cards=reliable and not query.gpu,
    )  # fmt: skip
    card_prices = card_prices_given(query.price, catalog, exchanger)
    in_china = bool(query.gpu) or constraints.currency == YUAN
    trips = round_trips(query.near, catalog.regions, catalog.latencies) if query.near is not None else None
    if query.buy:
        offers, purchase = offers_to_buy(catalog, day, power_price, card_prices, exchanger, in_china)
        if not offers:
            raise NoAnswer("nothing-fits", msg("error.nothing-to-buy", day=day.isoformat()), msg("hint.relax-filters"))
        constraints = replace(constraints, cards=_in_currency(purchase, constraints.currency, exchanger))
        on_sale = market(price_table(None, offers), catalog, constraints, exchanger, trips, None, engine)
        assumed = msg("assumed.owning", power=f"{power_price:g}", price=f"{POWER_PRICE:g}")
        return OfferSelection(constraints, on_sale, query.spelled(), (assumed,), purchase)
    own_prices = read_overlay(overlay, catalog, day)
    names = {instance for _, instance in constraints.machines or ()}
    store_offers = StoredOffers((), {})
    if catalog.folder == DATA_DIR:
        store_offers = cheapest_live_offers(day, catalog.known_by, gpus=constraints.gpu_ids, instances=names)
    offers = list(store_offers.offers)
    offers += own_prices.offers if own_prices else ()
    offers += owned_offers(constraints.owned, catalog, day, power_price)
    discounts = {name: float(share) for name, share in own_prices.discounts.items()} if own_prices else None
    rented = market(price_table(catalog, offers), catalog, constraints, exchanger, trips, discounts, engine)
    if store_offers.left_out:
        rented.rejected["alike"] = sum(store_offers.left_out.values())
    noted = (msg("assumed.sellers"),) if reliable else ()
    return OfferSelection(constraints, rented, query.spelled(), noted, discounted=frozenset(discounts or ()))


def _in_currency(prices: Mapping[str, CardPrice], currency: str, exchanger: Exchanger) -> dict[str, float]:
    return {gpu: float(exchanger.convert(Money(one.price, DOLLAR), currency)[0].amount) for gpu, one in prices.items()}


def _constraints(query: Requirements, day: date, catalog: Catalog, exchanger: Exchanger) -> Constraints:
    filter = offer_filter(
        catalog,
        OffersQuery(
            gpu=query.gpu,
            instance=query.instance,
            provider=query.provider,
            exclude_provider=query.exclude_provider,
            region=query.region,
            term=query.term,
            gpus=query.gpus,
        ),
    )
    stated = exchanger.check(query.currency) if query.currency else None
    budget, per = parse_typed_money(query.budget, stated or DOLLAR) if query.budget else (None, None)
    if budget is not None:
        exchanger.check(budget.currency)
    currency = stated or (budget.currency if budget else DOLLAR)
    if budget is not None:
        budget = Money(exchanger.convert(budget, currency)[0].amount, currency)
    memory = query.min_memory
    return Constraints(
        day=day, gpu_ids=filter.gpu_ids, machines=filter.instances, providers=filter.providers,
        excluded_providers=filter.excluded_providers, regions=filter.regions,
        terms=filter.terms, needs=check_supports(split_names(query.needs), catalog.gpus), gpus=filter.gpus,
        min_memory=parse_bytes(memory) if isinstance(memory, str) else memory,
        max_latency=_seconds(query.max_latency), budget=budget, budget_per=per, deadline=_seconds(query.deadline),
        api_prices=_api_prices(query.api_price, currency, exchanger),
        max_watts=parse_watts(query.max_power) if isinstance(query.max_power, str) else query.max_power, pue=query.pue or 1.0,
        rank=_choice("rank", query.rank, RANKS), risk=_choice("risk", query.risk, RISKS),
        quality=_choice("quality", query.quality, QUALITIES) or DEFAULT_QUALITY,
        currency=currency, owned=_owned(query.owned, catalog), run_settings=_run_settings(query),
        quotas=read_quotas(Path(query.quota_file)) if query.quota_file else (),
        duration=_seconds(query.duration), max_age=_seconds(query.max_age),
    )  # fmt: skip


def _api_prices(text: str | None, currency: str, exchanger: Exchanger) -> tuple[float, float, float] | None:
    """Return the prices of a million input, output and cached input tokens; one price is that of all."""
    if text is None:
        return None
    prices = [parse_typed_money(part, currency)[0] for part in text.split(",")]
    if len(prices) > 3:
        raise invalid_value("api_price", text, msg("wants.api-price"))
    amounts = [float(exchanger.convert(Money(one.amount, exchanger.check(one.currency)), currency)[0].amount) for one in prices]
    inputs, *others = amounts
    return inputs, others[0] if others else inputs, others[1] if len(others) > 1 else inputs


def _run_settings(query: Requirements) -> RunSettings:
    usual = RunSettings(idle=query.idle or 0.0, disk_gb=_gigabytes(query.disk), egress_gb=_gigabytes(query.egress))
    startup, checkpoint_every = _seconds(query.startup), _seconds(query.checkpoint_every)
    interruptions = query.interruptions  # Interruptions are per hour.
    if isinstance(interruptions, str):
        interruptions = parse_rate(interruptions) * 3600.0
    return replace(
        usual,
        startup=usual.startup if startup is None else startup,
        checkpoint_every=usual.checkpoint_every if checkpoint_every is None else checkpoint_every,
        interruptions=usual.interruptions if interruptions is None else interruptions,
    )


def _choice(what: str, word: str | None, words: tuple[Word, ...]) -> Word | None:
    """Return the word if it is one of `words`, None if it is not given; raise an error for any other word."""
    choice = next((one for one in words if one == word), None)
    if word is not None and choice is None:
        raise unknown_word(what, word, words)
    return choice


def _sellers(words: Sequence[str] | str) -> tuple[str, ...]:
    """Return the kinds of sellers that the user allows; empty for all."""
    names = split_names(words)
    for name in names:
        _choice("seller", name, SELLERS)
    return () if "any" in names else tuple(names)


def _owned(text: str | None, catalog: Catalog) -> tuple[Owned, ...]:
    owned = []
    for name in split_names(text or ()):
        count, bare = split_count(name)
        if count is not None and count < 1:
            raise invalid_value("owned", name, msg("wants.counts"))
        owned.append(Owned(find_gpu(catalog, bare).id, count or 1))
    return tuple(owned)


def _seconds(value: float | str | None) -> float | None:
    return parse_seconds(value) if isinstance(value, str) else value


def _gigabytes(value: int | str | None) -> float:
    return (parse_bytes(value) if isinstance(value, str) else value or 0) / 1e9
