"""What is on offer on a day, as arrays: prices in one currency, terms, and which group of GPUs each offer is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from whichgpu.base.dates import first_day
from whichgpu.base.lru import LruCache
from whichgpu.catalog.currency import Exchanger
from whichgpu.catalog.engines.engine import Engine, may_run_on
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.pricing import Discount
from whichgpu.catalog.store import Catalog
from whichgpu.decide.constraints import Constraints
from whichgpu.decide.framework_support import runs_frameworks
from whichgpu.estimate.time.calibration import MEASURED_VENDORS
from whichgpu.price.billing import billing_on, extras, machines_apart
from whichgpu.price.run import Terms, committed_years
from whichgpu.price.table import Floats, Ints, PriceTable, standing_rows

HOST_VCPUS, HOST_GIB = 8.0, 30.0  # beside each GPU rented alone: n1-standard-8
SMALLEST = 1.0  # GPUs; slices are another matter
DAY = 86400.0
# Spot prices and those of marketplaces move every day: older ones say nothing, and count only where such are asked for by name.
MOVING_DAYS, MARKETPLACE = 365, "marketplace"
LASTING_DAYS = 400  # of all others: what nobody saw for longer counts only where its GPU, machine or provider is asked for
# The table with what rules make of it, steps of discounts, and which of them each row has.
Standing = tuple[PriceTable, tuple[tuple[float, ...], ...], Ints]
_STANDING = LruCache[tuple[Standing, PriceTable, Sequence[Discount]]](4)


@dataclass(frozen=True, slots=True)
class Market:
    """Offers that the wishes leave; `rejected` counts the others by the first wish that takes them out."""

    table: PriceTable  # of what stood on the day, rules applied
    rows: Ints  # offers left, places in the table
    price: Floats  # of each of them, an hour, in the wished currency
    rejected: Counter[str]
    steps: tuple[tuple[float, ...], ...]
    step_of: Ints
    round_trip: Floats
    day: date
    rate: float  # of the wished currency for one US dollar

    @property
    def terms(self) -> NDArray[np.str_]:
        """The term of each offer left."""
        column, words = self.table.column("term")[self.rows], self.table.words
        codes, at = np.unique(column, return_inverse=True)
        return (
            np.array([words[code] for code in codes.tolist()] or [""])[at.reshape(-1)] if len(column) else np.array([], dtype=str)
        )


class Places:
    """Round trips to the regions of a table, where a city is named."""

    def __init__(self, seconds: Mapping[tuple[str, str], float]) -> None:
        self.seconds = seconds

    def of(self, table: PriceTable) -> Floats:
        """Of every row; nan where it is not known."""
        size = len(table.words)
        pair = table.column("provider") * size + table.column("region")
        unique, places = np.unique(pair, return_inverse=True)
        told = [self.seconds.get((table.words[code // size], table.words[code % size]), np.nan) for code in unique.tolist()]
        found: Floats = np.array(told or [np.nan])[places.reshape(-1)]
        return found


def market(
    table: PriceTable, catalog: Catalog, constraints: Constraints, exchanger: Exchanger, places: Places | None = None,
    off: Mapping[str, float] | None = None, engine: Engine | None = None,
) -> Market:  # fmt: skip
    """The offers of the wished day, providers, regions and terms. `off` is the user's own discount by provider.

    GPUs that an `engine` cannot run on are left out.
    """
    standing, steps, step_of = _standing(table, catalog.discounts, constraints.day)
    trips = places.of(standing) if places else np.full(len(standing), np.nan)
    rates = _rates(standing, exchanger, constraints.currency)
    keep, rejected = _kept(standing, catalog, constraints, trips, engine, rates)
    rows = np.flatnonzero(keep)
    part = standing.taken(rows)
    price = part.price * rates[part.column("currency")]
    if off:
        own = np.ones(len(standing.words))
        for name, share in off.items():
            if (at := standing.place(name)) is not None:
                own[at] = 1.0 - share
        listed = part.named("standing", ("list",))
        price = np.where(listed, price * own[part.column("provider")], price)
    rate = float(exchanger.rate("USD", constraints.currency).value) if constraints.currency != "USD" else 1.0
    return Market(standing, rows, price, rejected, steps, step_of[rows], trips[rows], constraints.day, rate)


def _rates(table: PriceTable, exchanger: Exchanger, target: str) -> Floats:
    """What money in the currency at each place of the words is worth in the target; nan if there is no exchange rate."""
    rates = np.full(len(table.words), np.nan)
    for place in np.unique(table.column("currency")).tolist():
        if exchanger.can_convert(table.words[place], target):
            rates[place] = float(exchanger.rate(table.words[place], target).value)
    return rates


def _kept(
    table: PriceTable, catalog: Catalog, constraints: Constraints, trips: Floats, engine: Engine | None, rates: Floats
) -> tuple[NDArray[np.bool_], Counter[str]]:
    """Offers that pass every wish, and how many each wish takes out in its turn."""
    known = catalog.gpu_by_id
    words = table.words
    gpu_words = {code: known.get(words[code]) for code in np.unique(table.column("gpu")).tolist()}

    def by_gpu(test: Callable[[Gpu], bool]) -> NDArray[np.bool_]:
        passing = [code for code, gpu in gpu_words.items() if gpu is not None and test(gpu)]
        return np.isin(table.column("gpu"), passing)

    high = constraints.span[1]
    tests: list[tuple[str, NDArray[np.bool_]]] = [
        ("unknown-gpu", by_gpu(lambda gpu: bool(gpu.peaks and gpu.memory_bandwidth))),
        ("slice", table.gpus >= (0.0 if constraints.slices else SMALLEST)),
        ("old-price", _fresh(table, catalog, constraints)),
    ]
    if engine is not None:
        tests.append(("engine", by_gpu(lambda gpu: may_run_on(engine, gpu))))
    if constraints.gpu_ids is None and constraints.machines is None:  # what is named by the user is looked at, whatever it is
        tests.append(("framework", by_gpu(lambda gpu: runs_frameworks(gpu, constraints.day))))
        tests.append(("unmeasured", by_gpu(lambda gpu: gpu.vendor in MEASURED_VENDORS)))
    if constraints.gpu_ids is not None:
        tests.append(("gpu", by_gpu(lambda gpu: gpu.id in (constraints.gpu_ids or ()))))
    if constraints.machines is not None:
        pairs = {(table.place(a), table.place(b)) for a, b in constraints.machines}
        both = zip(table.column("provider").tolist(), table.column("instance").tolist(), strict=True)
        tests.append(("instance", np.array([pair in pairs for pair in both], dtype=bool)))
    if constraints.needs:
        tests.append(("needs", by_gpu(lambda gpu: set(constraints.needs) <= set(gpu.supports))))
    if constraints.min_memory:
        tests.append(("min-memory", by_gpu(lambda gpu: gpu.memory_marketed_bytes >= (constraints.min_memory or 0))))
    own = table.named("provider", ("owned",))  # one's own machines stand where one wants them
    if constraints.providers:
        tests.append(("provider", table.named("provider", constraints.providers) | own))
    if constraints.regions is not None:
        names = {(a, b) for a, b in constraints.regions}
        both = zip(table.column("provider").tolist(), table.column("region").tolist(), strict=True)
        tests.append(("region", np.array([(words[a], words[b]) in names for a, b in both], dtype=bool) | own))
    if constraints.terms:
        tests.append(("term", table.named("term", constraints.terms) | own))
    if constraints.max_latency is not None:
        tests.append(("max-latency", (np.nan_to_num(trips, nan=np.inf) <= constraints.max_latency) | own))
    tests.append(("gpus", table.gpus <= high))
    if constraints.only_owned:
        tests.append(("owned", table.named("term", ("owned",))))
    tests.append(("exchange-rate", np.isfinite(rates[table.column("currency")])))
    keep = np.ones(len(table), dtype=bool)
    rejected: Counter[str] = Counter()
    for name, passing in tests:
        if lost := int((keep & ~passing).sum()):
            rejected[name] = lost
        keep &= passing
    return keep, rejected


def _fresh(table: PriceTable, catalog: Catalog, constraints: Constraints) -> NDArray[np.bool_]:
    """Prices seen lately enough to go by."""
    today = constraints.day.toordinal()
    age = today - np.minimum(table.days[1], today)
    if constraints.max_age is not None:
        return np.asarray(age * DAY <= constraints.max_age)
    markets = [one.id for one in catalog.providers if one.kind == MARKETPLACE and one.id not in constraints.providers]
    moving = table.named("provider", markets)
    if "spot" not in constraints.terms:
        moving |= table.named("term", ("spot",))
    named = bool(constraints.providers) or constraints.machines is not None or constraints.gpu_ids is not None
    lasting = np.full(len(table), named) | (age <= LASTING_DAYS) | table.named("term", ("owned",))
    return np.asarray(np.where(moving, age <= MOVING_DAYS, lasting))


def _standing(table: PriceTable, rules: Sequence[Discount], day: date) -> Standing:
    """What stands on a day, whoever asks; worked out once, table and rules being kept with it."""
    key = id(table), id(rules), day
    return _STANDING.get(key, lambda: (_with_rules(table.taken(standing_rows(table, day)), rules, day), table, rules))[0]


def _with_rules(table: PriceTable, rules: Sequence[Discount], day: date) -> Standing:
    """Prices that published rules make of on-demand prices, where none is stated for that very offer (`terms.derived`)."""
    extra: list[tuple[Ints, Ints, Floats]] = []  # places, days and numbers of the derived rows
    steps: list[tuple[float, ...]] = []
    step_of = [np.full(len(table), -1, dtype=np.int64)]
    words = {word: place for place, word in enumerate(table.words)}
    every: Ints | None = None  # machine and region of each row
    for rule in rules:
        if first_day(rule.first) > day or (rule.last and first_day(rule.last) < day) or table.place(rule.provider) is None:
            continue
        base = np.flatnonzero(table.named("provider", (rule.provider,)) & table.named("term", ("on-demand",)))
        instances = table.column("instance")[base]
        fitting = [place for place in np.unique(instances).tolist() if table.words[place].startswith(rule.instances)]
        base = base[np.isin(instances, fitting)]
        if not len(base):
            continue
        every = _places_of(table, np.ones(len(table), dtype=bool)) if every is None else every
        rows = base[~np.isin(every[base], every[table.named("term", (rule.term,))])]
        if not len(rows):
            continue
        part = table.taken(rows)
        places, numbers = part.places.copy(), part.numbers.copy()
        places[_place("term")] = words.setdefault(rule.term, len(words))
        places[_place("source")] = words.setdefault(rule.sources[0], len(words))
        if rule.share is not None:
            numbers[1] *= float(rule.share)
        extra.append((places, part.days, numbers))
        step_of.append(np.full(len(rows), len(steps) if rule.share is None else -1, dtype=np.int64))
        if rule.share is None:
            steps.append(tuple(map(float, rule.steps)))
    whole = PriceTable(
        tuple(words),
        np.concatenate([table.places, *(one[0] for one in extra)], axis=1),
        np.concatenate([table.days, *(one[1] for one in extra)], axis=1),
        np.concatenate([table.numbers, *(one[2] for one in extra)], axis=1),
    )
    return whole, tuple(steps), np.concatenate(step_of)


def _place(name: str) -> int:
    from whichgpu.price.table import WORDS

    return WORDS.index(name)


def _places_of(table: PriceTable, rows: NDArray[np.bool_]) -> Ints:
    """A number for machine and region of each row."""
    size = len(table.words) + 1
    code = (table.column("provider") * size + table.column("instance")) * size + table.column("region")
    return code[rows]


def terms_of(found: Market) -> Terms:
    """What the cost of a run needs to know of each offer."""
    table, rows = found.table.taken(found.rows), np.arange(len(found.rows))
    words = found.table.words
    providers = {code: words[code] for code in np.unique(table.column("provider")).tolist()}
    billed = {code: billing_on(name, found.day) for code, name in providers.items()}
    charged = {code: extras(name) for code, name in providers.items()}
    column = table.column("provider")

    def by_provider(values: Mapping[int, float]) -> Floats:
        told = np.zeros(len(words))
        for code, value in values.items():
            told[code] = value
        return told[column]

    minimum = by_provider({code: one.minimum for code, one in billed.items()})
    granularity = by_provider({code: one.granularity for code, one in billed.items()})
    for code, provider in providers.items():
        for start in machines_apart(provider):
            own = [at for at in np.unique(table.column("instance")[column == code]).tolist() if words[at].startswith(start)]
            apart, one = (column == code) & np.isin(table.column("instance"), own), billing_on(provider, found.day, start)
            granularity, minimum = np.where(apart, one.granularity, granularity), np.where(apart, one.minimum, minimum)
    names = found.terms
    bound = {code: committed_years(words[code]) for code in np.unique(table.column("term")).tolist()}
    years = np.array([bound[code] for code in table.column("term").tolist()], dtype=float)
    alone = table.named("includes", ("gpu",))
    host = {code: host_price_per_gpu(price) * found.rate for code, price in charged.items()}
    return Terms(
        price=found.price,
        machines=np.ones(len(rows)),
        spot=names == "spot",
        years=years,
        granularity=granularity,
        minimum=minimum,
        on_demand=_on_demand(table, found, rows),
        host=np.where(alone, by_provider(host) * table.gpus, 0.0),
        disk=by_provider({code: price.get("disk", 0.0) * found.rate for code, price in charged.items()}),
        egress=by_provider({code: price.get("egress", 0.0) * found.rate for code, price in charged.items()}),
        steps=found.steps,
        step_of=found.step_of,
    )


def host_price_per_gpu(charged: Mapping[str, float]) -> float:
    """US dollars an hour of the host beside one GPU that is priced alone, from what its provider charges."""
    return charged.get("host-vcpu", 0.0) * HOST_VCPUS + charged.get("host-gib", 0.0) * HOST_GIB


def _on_demand(table: PriceTable, found: Market, rows: Ints) -> Floats:
    """The on-demand price of the same machine in the same region; nan where there is none."""
    codes = _places_of(table, np.ones(len(rows), dtype=bool))
    plain = np.flatnonzero(found.terms == "on-demand")
    order = np.argsort(codes[plain], kind="stable")
    known, prices = codes[plain][order], found.price[plain][order]
    if not len(known):
        return np.full(len(rows), np.nan)
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[place] == codes, prices[place], np.nan)


def machine_of(found: Market, row: int, machines: Mapping[tuple[str, str], Instance]) -> Instance | None:
    """The machine of an offer, where the catalog describes it."""
    at = int(found.rows[row])
    return machines.get((found.table.word("provider", at), found.table.word("instance", at)))
