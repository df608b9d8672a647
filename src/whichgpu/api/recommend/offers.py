"""The words of a recommendation's wishes as ids and numbers, and the offers they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from whichgpu.api.prices.filters import OffersQuery, listed, wanted
from whichgpu.api.recommend.limits import invalid_value, refuse
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money, parse_money
from whichgpu.base.names import split_count
from whichgpu.base.units import parse_bytes, parse_rate, parse_seconds
from whichgpu.catalog.currency import DOLLAR, Exchanger, parse_rates
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.live.overlay import Overlay, overlay_path, read_overlay
from whichgpu.catalog.live.stored_offers import live_offers
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.places.distance import city_point, round_trip
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.select import check_supports
from whichgpu.catalog.store import Catalog
from whichgpu.decide.constraints import RANKS, Constraints, Owned, Rank
from whichgpu.decide.market import Market, Places, market
from whichgpu.price.own import HOST_WATTS, POWER_PRICE, Owning, host_price
from whichgpu.price.run import Habits
from whichgpu.price.table import price_table

BUY, OWNED = "buy", "owned"
CARDS = (1, 2, 4)  # of one build
MODULES = ("sxm", "oam", "superchip", "board", "soc")  # sold inside machines only


@dataclass(frozen=True, slots=True)
class Requirements:
    """Wishes in words as people type them; several with commas. None asks nothing."""

    gpu: Sequence[str] | str = ()
    instance: Sequence[str] | str = ()
    provider: Sequence[str] | str = ()
    region: Sequence[str] | str = ()
    term: Sequence[str] | str = ()
    needs: Sequence[str] | str = ()
    gpus: tuple[float, float] | None = None
    min_memory: int | str | None = None
    near: str | None = None
    max_latency: float | str | None = None
    budget: str | None = None
    deadline: float | str | None = None
    rank: Rank | None = None
    currency: str | None = None
    exchange_rate: Mapping[str, Decimal] | str | None = None
    owned: str | None = None
    buy: bool = False
    price: str | None = None  # what cards cost: "RTX 3090=700usd, …"
    duration: float | str | None = None
    startup: float | str | None = None
    checkpoint_every: float | str | None = None
    interruptions: float | str | None = None
    idle: float | None = None
    disk: int | str | None = None
    egress: int | str | None = None
    power_price: str | None = None
    max_age: float | str | None = None  # of prices
    why_not: str | None = None
    limit: int | None = None

    def spelled(self) -> dict[str, str]:
        """What was asked, as texts of its flags."""
        told = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None or value in ((), False):
                continue
            told[one.name] = _text(one.name, value)
        return told


@dataclass(frozen=True, slots=True)
class OfferSelection:
    """Wishes understood and the offers they leave. `purchase` is what a card of each kind costs to buy."""

    constraints: Constraints
    market: Market
    spelled: dict[str, str]
    assumptions: tuple[Message, ...]
    purchase: Mapping[str, Decimal] = field(default_factory=dict)
    given: frozenset[str] = frozenset()  # GPUs whose price to buy the user gave


def select_offers(
    query: Requirements, day: date, catalog: Catalog, overlay: Path | None, slices: bool = False, engine: Engine | None = None
) -> OfferSelection:
    """The offers of a day that the query's filters leave; `slices` of GPUs too; only GPUs the engine runs on."""
    rates = query.exchange_rate
    exchanger = Exchanger(day, catalog.exchange, parse_rates(rates) if isinstance(rates, str) else rates or {})
    constraints = replace(_wishes(query, day, catalog, exchanger), slices=slices)
    given = frozenset(_given_prices(query, catalog, exchanger))
    assumptions: list[Message] = []
    purchase: dict[str, Decimal] = {}
    if query.buy:
        runs, purchase = _for_sale(query, catalog, constraints, exchanger)
        assumptions.append(msg("assumed.owning", power=f"{_power_price(query, exchanger):g}", price=f"{POWER_PRICE:g}"))
        table = price_table(_Bare(catalog), runs) if runs else None
        if table is None:
            raise NoAnswer(
                "nothing-fits", msg("error.nothing-to-buy", day=constraints.day.isoformat()), msg("hint.relax-filters")
            )
        constraints = replace(constraints, cards=_in_currency(purchase, constraints.currency, exchanger))
    else:
        terms = read_overlay(overlay, catalog, day) if overlay_path(overlay) else None
        table = price_table(catalog, _others(catalog, day, constraints, terms, query, exchanger))
    off = {name: float(share) for name, share in terms.discounts.items()} if not query.buy and terms else None
    found = market(table, catalog, constraints, exchanger, _places(query, catalog), off, engine)
    return OfferSelection(constraints, found, query.spelled(), tuple(assumptions), purchase, given)


class _Bare(Catalog):
    """A catalog without prices: only what is put beside them counts."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog.folder, date.min)

    def prices(self, gpus: Any = None) -> Any:
        return iter(())


def _others(
    catalog: Catalog, day: date, constraints: Constraints, terms: Overlay | None, query: Requirements, exchanger: Exchanger
) -> list[Observation]:
    """Prices beside the bundled ones: the user's store, contracts, and machines that are owned."""
    runs = list(live_offers(day, catalog.known_by, gpus=constraints.gpu_ids)) if catalog.folder == DATA_DIR else []
    if terms is not None:
        runs += terms.offers
    for one in constraints.owned:
        gpu = catalog.gpu_by_id[one.gpu]
        sizes = {size for size in (1, 2, 4, 8, 16) if size <= one.gpus} | {one.gpus}
        runs += [_standing(gpu, size, OWNED, _running(gpu, size, query, exchanger), day) for size in sorted(sizes)]
    return runs


def _running(gpu: Gpu, count: int, query: Requirements, exchanger: Exchanger) -> float:
    """US dollars of power an hour of so many owned GPUs takes while they work."""
    own = Owning(0.0, float(gpu.tdp_watts or HOST_WATTS) * count, 0.0, power_price=_power_price(query, exchanger))
    return own.power(0.9) * own.power_price


def _power_price(query: Requirements, exchanger: Exchanger) -> float:
    """US dollars a kWh."""
    if query.power_price is None:
        return POWER_PRICE
    money, _ = parse_money(query.power_price)
    return float(exchanger.convert(money, DOLLAR)[0].amount)


def _for_sale(
    query: Requirements, catalog: Catalog, constraints: Constraints, exchanger: Exchanger
) -> tuple[list[Observation], dict[str, Decimal]]:
    """Cards one could buy by the day, at the price given or else the list price at launch, and what an hour of each comes to."""
    given = _given_prices(query, catalog, exchanger)
    runs, purchase = [], {}
    for gpu in catalog.gpus:
        price = given.get(gpu.id)
        if price is None:
            if gpu.launch_price is None or gpu.form_factor in MODULES or _launched(gpu) > constraints.day:
                continue
            price = exchanger.convert(gpu.launch_price, DOLLAR)[0].amount
        purchase[gpu.id] = price
        for count in CARDS:
            whole = float(price * count)
            own = Owning(whole, float(gpu.tdp_watts or 0) * count, host_price(whole), power_price=_power_price(query, exchanger))
            runs.append(_standing(gpu, count, BUY, own.hour, constraints.day))
    return runs, purchase


def _in_currency(prices: Mapping[str, Decimal], currency: str, exchanger: Exchanger) -> dict[str, float]:
    """Dollars by GPU as money of the currency asked for."""
    return {gpu: float(exchanger.convert(Money(price, DOLLAR), currency)[0].amount) for gpu, price in prices.items()}


def _launched(gpu: Gpu) -> date:
    from whichgpu.base.dates import first_day

    return first_day(gpu.launch_date)


def _given_prices(query: Requirements, catalog: Catalog, exchanger: Exchanger) -> dict[str, Decimal]:
    """`RTX 3090=700usd` as dollars by GPU."""
    found = {}
    for part in listed(query.price or ()):
        name, equals, text = part.partition("=")
        if not equals:
            raise UsageError("bad-price", msg("error.bad-card-price", text=part), msg("hint.bad-card-price"))
        money, _ = parse_money(text)
        found[find_gpu(catalog, name.strip()).id] = exchanger.convert(money, DOLLAR)[0].amount
    return found


def _standing(gpu: Gpu, count: int, provider: str, hourly: float, day: date) -> Observation:
    """One's own or bought GPUs as an offer of that day."""
    price = Decimal(repr(round(hourly, 6)))
    return Observation(
        provider, f"{count}x {gpu.name}", "", gpu.id, count, "owned", None, price, DOLLAR, None, "gpu+host", day.isoformat(),
        day.isoformat(), None, gpu.sources[0] if gpu.sources else provider, day.isoformat(), standing="owned",
    )  # fmt: skip


def _wishes(query: Requirements, day: date, catalog: Catalog, exchanger: Exchanger) -> Constraints:
    refuse(query)
    _power_price(query, exchanger)
    offers = OffersQuery(
        gpu=query.gpu, instance=query.instance, provider=query.provider, region=query.region, term=query.term, gpus=query.gpus
    )
    filter = wanted(catalog, offers)
    budget, per = parse_money(query.budget) if query.budget else (None, None)
    if budget is not None:
        exchanger.check(budget.currency)
    currency = exchanger.check(query.currency) if query.currency else budget.currency if budget else DOLLAR
    if budget is not None:
        budget = Money(exchanger.convert(budget, currency)[0].amount, currency)
    seconds = {name: _seconds(getattr(query, name)) for name in ("startup", "checkpoint_every")}
    habits = Habits(**{name: value for name, value in seconds.items() if value is not None})
    habits = replace(
        habits,
        interruptions=_per_hour(query.interruptions) if query.interruptions is not None else habits.interruptions,
        idle=_idle(query.idle),
        disk_gb=_gigabytes(query.disk),
        egress_gb=_gigabytes(query.egress),
    )
    memory = query.min_memory
    return Constraints(
        day=day, gpu_ids=filter.gpu_ids, machines=filter.instances, providers=filter.providers, regions=filter.regions,
        terms=filter.terms, needs=check_supports(listed(query.needs), catalog.gpus), gpus=filter.gpus,
        min_memory=parse_bytes(memory) if isinstance(memory, str) else memory, near=query.near,
        max_latency=_seconds(query.max_latency), budget=budget, budget_per=per, deadline=_seconds(query.deadline),
        rank=_rank(query.rank), currency=currency, owned=_owned(query.owned, catalog), habits=habits,
        duration=_seconds(query.duration), max_age=_seconds(query.max_age),
    )  # fmt: skip


def _rank(word: str | None) -> Rank | None:
    from whichgpu.base.names import unknown_word

    if word is None:
        return None
    for rank in RANKS:
        if rank == word:
            return rank
    raise unknown_word("rank", word, RANKS)


def _owned(text: str | None, catalog: Catalog) -> tuple[Owned, ...]:
    found = []
    for name in listed(text or ()):
        count, bare = split_count(name)
        if count is not None and count < 1:
            raise invalid_value("owned", name, msg("wants.counts"))
        found.append(Owned(find_gpu(catalog, bare).id, count or 1))
    return tuple(found)


def _seconds(value: float | str | None) -> float | None:
    return parse_seconds(value) if isinstance(value, str) else value


def _per_hour(value: float | str) -> float:
    return parse_rate(value) * 3600.0 if isinstance(value, str) else value


def _gigabytes(value: int | str | None) -> float:
    return (parse_bytes(value) if isinstance(value, str) else value or 0) / 1e9


def _places(query: Requirements, catalog: Catalog) -> Places | None:
    if query.near is None:
        return None
    city, point = city_point(catalog.regions, query.near)
    trips = {}
    for region in catalog.regions:
        if (trip := round_trip(city, point, region, catalog.latencies)) is not None:
            trips[region.provider, region.region] = trip.value
    return Places(trips)


def _text(name: str, value: Any) -> str:
    if name == "gpus":
        low, high = value
        return f"{low:g}..{high:g}" if low != high else f"{low:g}"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:g}s" if name in ("deadline", "duration", "startup", "checkpoint_every", "max_latency") else f"{value:g}"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return "true" if value is True else str(value)


def _idle(share: float | None) -> float:
    """The share of rented time in which nothing runs; with all of it no work is ever done."""
    if share is not None and not 0 <= share < 1:
        hint = msg("hint.bad-field", name="--idle", wants=msg("wants.share"))
        raise UsageError("bad-field", msg("error.bad-field", name="--idle", value=repr(share)), hint)
    return share or 0.0
