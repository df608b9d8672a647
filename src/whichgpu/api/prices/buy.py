"""The verb `buy`: cost of owning GPUs against renting them; inputs are the user's, and the answer gives no verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.prices.offers import list_offers
from whichgpu.api.request.offers import BuyRequest
from whichgpu.api.request.read import read
from whichgpu.base.dates import first_day
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money, parse_typed_money
from whichgpu.base.names import split_count
from whichgpu.catalog.currency import DOLLAR, Exchanger
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Source
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.host_fit import build_advice
from whichgpu.decide.candidate import money
from whichgpu.decide.market import LASTING_DAYS, MARKETPLACE, MOVING_DAYS, host_price_per_gpu
from whichgpu.decide.requirements import invalid_value
from whichgpu.price.billing import extras
from whichgpu.price.card_prices import observed_price
from whichgpu.price.filters import OffersQuery, split_names
from whichgpu.price.offers import Offer
from whichgpu.price.own import (
    HOST_WATTS,
    IDLE,
    LOAD,
    MIN_HOST_PRICE,
    POWER_PRICE,
    POWER_SOURCE,
    PUE_SOURCE,
    RESIDUAL,
    USE,
    YEARS,
    OwnershipCosts,
    RentComparison,
    compare_with_rent,
    host_price,
    sensitivity,
)
from whichgpu.price.terms import YEAR_HOURS

MAX_INPUT = 20.0  # Largest accepted PUE and number of years of ownership (assumed).
MAX_GPUS = 100_000  # More GPUs than this are taken for a typing error (set by judgement).
ABOVE_LOW = "wants.number"  # Message id for inputs that must exceed their lower bound.
SPANS = {
    "residual": (0.0, 1.0, "wants.between"), "use": (0.0, 1.0, ABOVE_LOW),
    "pue": (1.0, MAX_INPUT, "wants.pue"), "years": (0.0, MAX_INPUT, ABOVE_LOW),
}  # fmt: skip
RENTED = ("on-demand",)


class BuyInputs(msgspec.Struct, frozen=True):
    """Inputs of the cost of ownership; None means the default. Money is text with a currency."""

    gpus: int | None = None
    price: str | None = None  # Price of one GPU, such as "RTX 3090=700usd".
    host_price: str | None = None
    power_price: str | None = None
    pue: float | None = None
    years: float | None = None
    residual: float | None = None
    use: float | None = None
    upkeep: str | None = None
    provider: Sequence[str] | str = ()
    region: Sequence[str] | str = ()
    term: Sequence[str] | str = RENTED
    currency: str | None = None


class BuyRow(msgspec.Struct, frozen=True):
    """Cost of owning a GPU against its cheapest rent. Shares are of all hours; break-evens are None if owning never pays."""

    gpu: str
    gpu_name: str
    gpus: int
    purchase: Money
    host: Money
    power_per_hour: Money  # cost of power per hour under load
    own_per_hour: Money  # total cost of ownership per hour of use
    hour_lines: Mapping[str, Money]  # parts of that: loss of value of GPUs and host, power (idle hours included), upkeep
    own_per_month: Money
    residual_value: Money
    rent: Offer | None
    rent_per_hour: Money | None  # rent per hour with its host
    rent_host: Money | None  # rent of the host per hour, if the GPU is priced without one
    break_even_use: float | None
    break_even_hours: float | None
    break_even_months: float | None
    sensitivity: Mapping[str, tuple[float | None, float | None]]
    host_advice: tuple[Message, ...]
    price_basis: str  # `given` by the user, `used` or `street` as observed, or `list` price.


class BuyAnswer(Displayable, msgspec.Struct, frozen=True):
    """Cost of owning against renting, with all inputs and the names of those left at their defaults."""

    as_of: str
    inputs: Mapping[str, str | float]
    defaults: tuple[str, ...]
    rows: tuple[BuyRow, ...]
    sources: tuple[Source, ...]
    assumptions: tuple[Message, ...]  # assumptions that no input changes


def buy(request: BuyRequest, context: Context) -> BuyAnswer:
    """Return the cost of owning each GPU, and the utilisation above which that is cheaper than renting it."""
    values = read(BuyRequest, request, context.spell)
    names, overlay, catalog = values.pop("names", ()), values.pop("prices", None), context.catalog
    inputs = BuyInputs(**values)
    day = context.as_of or catalog.as_known or date.today()
    exchanger = Exchanger(day, catalog.exchange)
    currency = exchanger.check(inputs.currency) if inputs.currency else DOLLAR
    counted_names = [split_count(name) for name in names]
    if not counted_names:
        raise UsageError(
            "missing-argument", msg("error.missing-argument", name="GPU"), msg("hint.see-help", command="whichgpu buy")
        )
    for count in (inputs.gpus, *(count for count, _ in counted_names)):
        if count is not None and not 1 <= count <= MAX_GPUS:
            raise invalid_value("gpus", count, msg("wants.whole", low=1, high=f"{MAX_GPUS:,}"))
    rows = tuple(
        _row(find_gpu(catalog, bare), count or inputs.gpus or 1, inputs, day, catalog, exchanger, currency, overlay)
        for count, bare in counted_names
    )
    filled, defaults = _filled(inputs)
    cited = [row.rent.source for row in rows if row.rent]
    gpus = tuple(source for row in rows for source in catalog.gpu_by_id[row.gpu].sources[:1])
    sources = catalog.cited_sources(tuple(cited), (POWER_SOURCE, *((PUE_SOURCE,) if (inputs.pue or 1.0) > 1.0 else ())), gpus)
    drawn = msg("buy.power-usual", load=f"{LOAD:.0%}", idle=f"{IDLE:.0%}", host=f"{HOST_WATTS:g} W")
    return BuyAnswer(day.isoformat(), filled, defaults, rows, sources, (drawn,))


def _row(
    gpu: Gpu,
    count: int,
    inputs: BuyInputs,
    day: date,
    catalog: Catalog,
    exchanger: Exchanger,
    currency: str,
    overlay: Path | None,
) -> BuyRow:
    if first_day(gpu.launch_date) > day:
        raise NoAnswer("not-yet", msg("error.not-launched", gpu=gpu.name, day=gpu.launch_date), msg("hint.not-launched"))
    own, basis = _owning(gpu, count, inputs, catalog, exchanger, currency)
    rents = _rent(gpu, count, inputs, day, catalog, exchanger, currency, overlay)
    rent, rent_of_host = rents if rents else (None, 0.0)
    hourly = (float(rent.price_per_gpu_hour.amount) + rent_of_host) * count if rent else None
    even = compare_with_rent(own, hourly) if hourly is not None else RentComparison(0.0, None, None, None)
    return BuyRow(
        gpu=gpu.id, gpu_name=gpu.name, gpus=count, purchase=money(own.gpu_price, currency), host=money(own.host_price, currency),
        power_per_hour=money(own.power(0.9) * own.power_price, currency), own_per_hour=money(own.hour, currency),
        hour_lines={name: money(value, currency) for name, value in _parts(own).items() if value},
        own_per_month=money(own.hour * own.use * 730, currency), residual_value=money(own.price * own.residual, currency),
        rent=rent,
        rent_per_hour=money(hourly, currency) if hourly is not None else None,
        rent_host=money(rent_of_host * count, currency) if rent_of_host else None, break_even_use=even.break_even_use,
        break_even_hours=even.break_even_hours, break_even_months=even.break_even_months,
        sensitivity=sensitivity(own, hourly) if hourly is not None else {},
        host_advice=build_advice(gpu, count), price_basis=basis,
    )  # fmt: skip


def _parts(own: OwnershipCosts) -> dict[str, float]:
    """Return the cost of ownership per hour of use, by part (loss of value, power, upkeep); idle hours are spread over it."""
    worn = (1.0 - own.residual) / (own.years * YEAR_HOURS) / own.use
    lost, host, upkeep = own.gpu_price * worn, own.host_price * worn, own.upkeep / YEAR_HOURS / own.use
    return {"gpu-value": lost, "host-value": host, "power": own.hour - lost - host - upkeep, "upkeep": upkeep}


def _owning(
    gpu: Gpu, count: int, inputs: BuyInputs, catalog: Catalog, exchanger: Exchanger, currency: str
) -> tuple[OwnershipCosts, str]:
    def read(text: str | None) -> float | None:
        return None if text is None else float(exchanger.convert(parse_typed_money(text, currency)[0], currency)[0].amount)

    amount = None
    for part in split_names(inputs.price or ()):
        name, equals, text = part.rpartition("=")
        if not equals or find_gpu(catalog, name.strip()).id == gpu.id:
            amount = read(text)
    price, basis = amount, "given"
    if price is None and (observed := observed_price(gpu.id, exchanger.day)) is not None:
        price, basis = float(exchanger.convert(Money(observed.price, DOLLAR), currency)[0].amount), observed.basis
    if price is None and gpu.launch_price is not None:
        basis = "list"
        price = float(exchanger.convert(gpu.launch_price, currency)[0].amount)
    if price is None:
        raise NoAnswer("no-price", msg("error.no-card-price", gpu=gpu.name), msg("hint.no-card-price", gpu=gpu.name))
    whole = price * count
    usual, minimum = (
        float(exchanger.convert(Money(Decimal(str(dollars)), DOLLAR), currency)[0].amount)
        for dollars in (POWER_PRICE, MIN_HOST_PRICE)
    )
    host, power, upkeep = read(inputs.host_price), read(inputs.power_price), read(inputs.upkeep)
    host = host_price(whole, minimum) if host is None else host
    filled, _ = _filled(inputs)
    return OwnershipCosts(
        gpu_price=whole, watts=float(gpu.tdp_watts or 0) * count, host_price=host,
        power_price=power if power is not None else usual, pue=float(filled["pue"]), years=float(filled["years"]),
        residual=float(filled["residual"]), use=float(filled["use"]), upkeep=upkeep or 0.0,
    ), basis  # fmt: skip


def _filled(inputs: BuyInputs) -> tuple[dict[str, str | float], tuple[str, ...]]:
    """Return every input with its value, and the names of the inputs left at their defaults."""
    usual: dict[str, str | float] = {
        "power_price": f"{POWER_PRICE}usd", "pue": 1.0, "years": YEARS, "residual": RESIDUAL, "use": USE, "upkeep": "0usd",
    }  # fmt: skip
    for name, (low, high, wants) in SPANS.items():
        value = getattr(inputs, name)
        if value is not None and not (low < value <= high or (value == low and wants != ABOVE_LOW)):
            raise invalid_value(name, f"{value:g}", msg(wants, low=f"{low:g}", high=f"{high:g}"))
    values = {name: getattr(inputs, name) for name in usual}
    defaulted = (*(name for name in usual if values[name] is None), *(("host_price",) if inputs.host_price is None else ()))
    return {name: usual[name] if values[name] is None else values[name] for name in usual}, defaulted


def _rent(
    gpu: Gpu, count: int, inputs: BuyInputs, day: date, catalog: Catalog, exchanger: Exchanger, currency: str,
    overlay: Path | None,
) -> tuple[Offer, float] | None:  # fmt: skip
    """Return the cheapest offer of a GPU with host, in machines of at most `count` GPUs, and the host's part of the hourly price.

    Prices too old for `recommend` count only if there are no others, or if their provider is named.
    """
    query = OffersQuery(
        gpu=gpu.id,
        provider=inputs.provider,
        region=inputs.region,
        term=inputs.term,
        currency=currency,
        gpus=(1.0, float(max(count, 8))),
    )
    try:
        offers = list_offers(query, day, catalog, overlay).offers
    except NoAnswer:
        return None
    markets = {one.id for one in catalog.providers if one.kind == MARKETPLACE} if not split_names(inputs.provider) else set()

    def old(one: Offer) -> bool:
        moves = one.provider in markets or (one.term == "spot" and "spot" not in split_names(inputs.term))
        return not split_names(inputs.provider) and one.age_days > (MOVING_DAYS if moves else LASTING_DAYS)

    def host_price(one: Offer) -> float:
        if one.includes != "gpu":
            return 0.0
        host = host_price_per_gpu(extras(one.provider))
        return float(exchanger.convert(Money(Decimal(repr(host)), DOLLAR), currency)[0].amount)

    best = min(offers, key=lambda one: (old(one), float(one.price_per_gpu_hour.amount) + host_price(one)))
    return best, host_price(best)
