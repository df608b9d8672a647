"""The offers of a day as arrays: prices per hour in one currency, and billing terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichgpu.base.dates import first_day
from whichgpu.base.lru import LruCache
from whichgpu.catalog.architecture import has_rates
from whichgpu.catalog.currency import Exchanger
from whichgpu.catalog.engines.engine import Engine, may_run_on
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.places.distance import RoundTrips
from whichgpu.catalog.pricing import Discount
from whichgpu.catalog.store import Catalog
from whichgpu.decide.constraints import Constraints
from whichgpu.decide.framework_support import runs_frameworks
from whichgpu.estimate.confidence.novelty import measured_makers
from whichgpu.price.billing import billing_on, billing_prefixes, extras
from whichgpu.price.quotas import AccountQuota, QuotaOffer, machine_limit
from whichgpu.price.run import OfferTerms, committed_years
from whichgpu.price.table import WORDS, Floats, Ints, PriceTable, rows_on_day

# A price of a service, and a spot price, counts 25% more in a ranking if it is older than 45 days, and 50% if older than 180
# (assumed): it is to be rented now, and an old price may no longer be offered.
FRESH_DAYS, OLD_DAYS, AGE_WEIGHT = 45, 180, 0.25
HOST_VCPUS, HOST_GIB = 8.0, 30.0  # vCPUs and GiB of the host added to a GPU that is priced without one (n1-standard-8)
DAY = 86400.0  # seconds
# Oldest price accepted by default, in days (assumed). Older spot and marketplace prices, which change daily, count only if the
# user names a term or provider; other older prices only if the user names their GPU, machine or provider.
MOVING_DAYS, LASTING_DAYS = 365, 400
MARKETPLACE = "marketplace"
Bools = NDArray[np.bool_]
# A day's price table with derived discounts, the step lists of sustained-use discounts, and each row's index into these or -1.
PricesOfDay = tuple[PriceTable, tuple[tuple[float, ...], ...], Ints]
_PRICES_OF_DAY = LruCache[tuple[PricesOfDay, PriceTable, Sequence[Discount]]](4)


class Market(msgspec.Struct, frozen=True):
    """The offers of a day that meet the constraints, as arrays; `rejected` counts the others by the first one each fails."""

    table: PriceTable  # prices valid on the day, derived discounts included
    rows: Ints  # rows of the table with the remaining offers
    price: Floats  # price per hour of each remaining offer, in the user's currency
    rejected: Counter[str]
    steps: tuple[tuple[float, ...], ...]  # price shares of each sustained-use discount, by part of the month
    step_of: Ints  # index into `steps` for each remaining offer; -1 without a discount
    round_trip: Floats  # seconds to the region of each remaining offer
    memory: Floats  # bytes of one GPU of each remaining offer
    day: date
    rate: float  # units of the user's currency per US dollar
    terms: NDArray[np.str_]  # term (on-demand, spot, ...) of each remaining offer
    age_days: Ints  # days before the day on which each remaining offer's price was last seen
    max_machines: Floats  # most machines of each remaining offer that the user's quotas allow


def market(
    table: PriceTable, catalog: Catalog, constraints: Constraints, exchanger: Exchanger, trips: RoundTrips | None = None,
    discounts: Mapping[str, float] | None = None, engine: Engine | None = None,
) -> Market:  # fmt: skip
    """Return the offers of a day that meet the constraints and whose GPUs the `engine` supports.

    `discounts` are the user's own discounts by provider, as shares of the list price.
    """
    of_day, steps, step_of = _prices_of_day(table, catalog.discounts, constraints.day)
    seconds = _round_trips(of_day, trips)
    rates = _exchange_rates(of_day, exchanger, constraints.currency)
    passing, rejected = _passing(of_day, catalog, constraints, seconds, engine, rates)
    rows = np.flatnonzero(passing)
    left = of_day.select_rows(rows)
    price = left.price * rates[left.column("currency")]
    if discounts:
        factor = np.ones(len(of_day.words))
        for name, share in discounts.items():
            if (code := of_day.place(name)) is not None:
                factor[code] = 1.0 - share
        listed = left.matches("standing", ("list",)) & ~left.matches("term", ("spot",))
        price = np.where(listed, price * factor[left.column("provider")], price)
    rate = float(exchanger.rate("USD", constraints.currency).value) if constraints.currency != "USD" else 1.0
    memory = _gpu_memory(left, catalog)
    today = constraints.day.toordinal()
    age = today - np.minimum(left.days[1], today)
    limits = _machine_limits(left, catalog, constraints.quotas)
    return Market(
        of_day, rows, price, rejected, steps, step_of[rows], seconds[rows], memory, constraints.day, rate, _term_names(left), age,
        limits,
    )  # fmt: skip


def _term_names(table: PriceTable) -> NDArray[np.str_]:
    """Return the term of each row of prices."""
    codes, at = np.unique(table.column("term"), return_inverse=True)
    return np.array([table.words[code] for code in codes.tolist()] or [""])[at.reshape(-1)]


def _machine_limits(table: PriceTable, catalog: Catalog, quotas: Sequence[AccountQuota]) -> Floats:
    """Return the most machines of each row of prices that quotas allow; infinite without a quota."""
    limits: Floats = np.full(len(table), np.inf)
    for row in np.flatnonzero(table.matches("provider", {one.provider for one in quotas})).tolist():
        limits[row] = machine_limit(quotas, quota_offer(table, row), catalog, float(table.gpus[row]))
    return limits


def quota_offer(table: PriceTable, row: int) -> QuotaOffer:
    """Return what a quota asks of an offer in a row of prices."""
    provider, region, instance, gpu, term = (table.word(name, row) for name in ("provider", "region", "instance", "gpu", "term"))
    return provider, region, instance, gpu, term


def _gpu_memory(table: PriceTable, catalog: Catalog) -> Floats:
    """Return the bytes of one GPU of each row of prices."""
    codes, rows = np.unique(table.column("gpu"), return_inverse=True)
    sizes = [float(catalog.gpu_by_id[table.words[code]].memory_marketed_bytes or 0) for code in codes.tolist()]
    by_row: Floats = np.array(sizes or [0.0])[rows.reshape(-1)]
    return by_row


def _round_trips(table: PriceTable, trips: RoundTrips | None) -> Floats:
    """Return the round-trip seconds from the user's city to the region of each row of prices; nan if unknown."""
    if trips is None:
        return np.full(len(table), np.nan)
    size = len(table.words)
    codes, rows = np.unique(table.column("provider") * size + table.column("region"), return_inverse=True)
    seconds = [trips.get((table.words[code // size], table.words[code % size]), np.nan) for code in codes.tolist()]
    by_row: Floats = np.array(seconds or [np.nan])[rows.reshape(-1)]
    return by_row


def _exchange_rates(table: PriceTable, exchanger: Exchanger, target: str) -> Floats:
    """Return units of `target` per unit of each currency, indexed by the table's words; nan without an exchange rate."""
    rates = np.full(len(table.words), np.nan)
    for code in _codes(table.column("currency")):
        if exchanger.can_convert(table.words[code], target):
            rates[code] = float(exchanger.rate(table.words[code], target).value)
    return rates


def _passing(
    table: PriceTable, catalog: Catalog, constraints: Constraints, trips: Floats, engine: Engine | None, rates: Floats
) -> tuple[Bools, Counter[str]]:
    """Return a mask of offers that meet every constraint, and how many offers each constraint removes, applied in turn."""
    passing = np.ones(len(table), dtype=bool)
    rejected: Counter[str] = Counter()
    for name, test in _tests(table, catalog, constraints, trips, engine, rates):
        if lost := int((passing & ~test).sum()):
            rejected[name] = lost
        passing &= test
    return passing, rejected


def _tests(
    table: PriceTable, catalog: Catalog, constraints: Constraints, trips: Floats, engine: Engine | None, rates: Floats
) -> Iterator[tuple[str, Bools]]:
    """Yield each constraint's name with a mask of the offers that meet it, in the order in which rejections are counted."""
    words, providers = table.words, table.column("provider").tolist()
    gpus = {code: catalog.gpu_by_id.get(words[code]) for code in _codes(table.column("gpu"))}

    def by_gpu(test: Callable[[Gpu], bool]) -> Bools:
        return np.isin(table.column("gpu"), [code for code, gpu in gpus.items() if gpu is not None and test(gpu)])

    def by_pair(column: str, pairs: Collection[tuple[str, str]]) -> Bools:
        codes = {(table.place(provider), table.place(name)) for provider, name in pairs}
        return np.array([pair in codes for pair in zip(providers, table.column(column).tolist(), strict=True)], dtype=bool)

    yield "unknown-gpu", by_gpu(has_rates)
    yield "slice", table.gpus >= (0.0 if constraints.slices else 1.0)
    yield "old-price", _fresh(table, catalog, constraints)
    if engine is not None:
        yield "engine", by_gpu(lambda gpu: may_run_on(engine, gpu))
    if constraints.gpu_ids is None and constraints.machines is None:  # A GPU that the user names is considered, whatever it is.
        yield "framework", by_gpu(lambda gpu: runs_frameworks(gpu, constraints.day))
        yield "unmeasured", by_gpu(lambda gpu: gpu.vendor in measured_makers())
    if constraints.gpu_ids is not None:
        yield "gpu", by_gpu(lambda gpu: gpu.id in (constraints.gpu_ids or ()))
    if constraints.machines is not None:
        yield "instance", by_pair("instance", constraints.machines)
    if constraints.needs:
        yield "needs", by_gpu(lambda gpu: set(constraints.needs) <= set(gpu.supports))
    if constraints.min_memory:
        yield "min-memory", by_gpu(lambda gpu: gpu.memory_marketed_bytes >= (constraints.min_memory or 0))
    own = table.matches("provider", ("owned",))  # The user's own machines pass the filters of provider, place and term.
    if constraints.providers:
        yield "provider", table.matches("provider", constraints.providers) | own
    if constraints.excluded_providers:
        yield "exclude-provider", ~table.matches("provider", constraints.excluded_providers) | own
    if constraints.regions is not None:
        yield "region", by_pair("region", constraints.regions) | own
    if constraints.terms:
        yield "term", table.matches("term", constraints.terms) | own
    if constraints.max_latency is not None:
        yield "max-latency", (np.nan_to_num(trips, nan=np.inf) <= constraints.max_latency) | own
    yield "gpus", table.gpus <= constraints.span[1]
    yield "exchange-rate", np.isfinite(rates[table.column("currency")])


def _fresh(table: PriceTable, catalog: Catalog, constraints: Constraints) -> Bools:
    """Return a mask of the prices that were observed recently enough, by the age the constraints allow."""
    today = constraints.day.toordinal()
    age = today - np.minimum(table.days[1], today)
    if constraints.max_age is not None:
        return np.asarray(age * DAY <= constraints.max_age)
    markets = [one.id for one in catalog.providers if one.kind == MARKETPLACE and one.id not in constraints.providers]
    moving = table.matches("provider", markets)
    if "spot" not in constraints.terms:
        moving |= table.matches("term", ("spot",))
    names_offers = bool(constraints.providers) or constraints.machines is not None or constraints.gpu_ids is not None
    lasting = np.full(len(table), names_offers) | (age <= LASTING_DAYS) | table.matches("term", ("owned",))
    return np.asarray(np.where(moving, age <= MOVING_DAYS, lasting))


def _prices_of_day(table: PriceTable, rules: Sequence[Discount], day: date) -> PricesOfDay:
    """Return a day's prices with derived discounts, from a cache keyed by the identities of table and rules and by the day."""
    key = id(table), id(rules), day
    return _PRICES_OF_DAY.get(key, lambda: (_with_rules(table.select_rows(rows_on_day(table, day)), rules, day), table, rules))[0]


def _with_rules(table: PriceTable, rules: Sequence[Discount], day: date) -> PricesOfDay:
    """Return the prices plus those that published discounts derive from on-demand ones, unless one is stated for that term."""
    derived: list[tuple[Ints, Ints, Floats]] = []  # These are the words, days and numbers of the derived rows.
    steps: list[tuple[float, ...]] = []
    step_of = [np.full(len(table), -1, dtype=np.int64)]
    words = {word: code for code, word in enumerate(table.words)}
    machines = _machine_and_region(table)
    for rule in rules:
        if first_day(rule.first) > day or (rule.last and first_day(rule.last) < day) or table.place(rule.provider) is None:
            continue
        base = np.flatnonzero(table.matches("provider", (rule.provider,)) & table.matches("term", ("on-demand",)))
        instances = table.column("instance")[base]
        fitting = [code for code in _codes(instances) if table.words[code].startswith(rule.instances)]
        base = base[np.isin(instances, fitting)]
        rows = base[~np.isin(machines[base], machines[table.matches("term", (rule.term,))])]
        if not len(rows):
            continue
        part = table.select_rows(rows)
        places, numbers = part.places.copy(), part.numbers.copy()
        places[WORDS.index("term")] = words.setdefault(rule.term, len(words))
        places[WORDS.index("source")] = words.setdefault(rule.sources[0], len(words))
        if rule.share is not None:
            numbers[1] *= float(rule.share)
        derived.append((places, part.days, numbers))
        step_of.append(np.full(len(rows), len(steps) if rule.share is None else -1, dtype=np.int64))
        if rule.share is None:
            steps.append(tuple(map(float, rule.steps)))
    whole = PriceTable(
        tuple(words),
        np.concatenate([table.places, *(one[0] for one in derived)], axis=1),
        np.concatenate([table.days, *(one[1] for one in derived)], axis=1),
        np.concatenate([table.numbers, *(one[2] for one in derived)], axis=1),
    )
    return whole, tuple(steps), np.concatenate(step_of)


def _machine_and_region(table: PriceTable) -> Ints:
    """Return a number per row of prices that is equal for rows of the same provider, instance and region."""
    size = len(table.words) + 1
    return (table.column("provider") * size + table.column("instance")) * size + table.column("region")


def terms_of(market: Market) -> OfferTerms:
    """Return the billing terms of each offer, from which the cost of a run is computed."""
    table, words = market.table.select_rows(market.rows), market.table.words
    column = table.column("provider")
    providers = {code: words[code] for code in _codes(column)}
    billing = {code: billing_on(name, market.day) for code, name in providers.items()}
    charges = {code: extras(name) for code, name in providers.items()}  # Extra charges are in US dollars.

    def by_provider(values: Mapping[int, float]) -> Floats:
        by_word = np.zeros(len(words))
        for code, value in values.items():
            by_word[code] = value
        return by_word[column]

    minimum = by_provider({code: one.minimum for code, one in billing.items()})
    granularity = by_provider({code: one.granularity for code, one in billing.items()})
    for code, provider in providers.items():
        for prefix in billing_prefixes(provider):
            own = [at for at in _codes(table.column("instance")[column == code]) if words[at].startswith(prefix)]
            apart, one = (column == code) & np.isin(table.column("instance"), own), billing_on(provider, market.day, prefix)
            granularity, minimum = np.where(apart, one.granularity, granularity), np.where(apart, one.minimum, minimum)
    names = market.terms
    host = by_provider({code: host_price_per_gpu(one) * market.rate for code, one in charges.items()})
    return OfferTerms(
        price=market.price, machines=np.ones(len(table)), spot=names == "spot",
        years=np.array([committed_years(name) for name in names.tolist()], dtype=float), granularity=granularity, minimum=minimum,
        on_demand=_on_demand(table, names, market.price),
        host=np.where(table.matches("includes", ("gpu",)), host * table.gpus, 0.0),
        disk=by_provider({code: one.get("disk", 0.0) * market.rate for code, one in charges.items()}),
        egress=by_provider({code: one.get("egress", 0.0) * market.rate for code, one in charges.items()}),
        steps=market.steps, step_of=market.step_of,
    )  # fmt: skip


def host_price_per_gpu(charged: Mapping[str, float]) -> float:
    """Return US dollars per hour for the host of one GPU whose provider prices the GPU alone."""
    return charged.get("host-vcpu", 0.0) * HOST_VCPUS + charged.get("host-gib", 0.0) * HOST_GIB


def _on_demand(table: PriceTable, terms: NDArray[np.str_], price: Floats) -> Floats:
    """Return the on-demand price per hour of each offer's machine in its region; nan if there is none."""
    codes = _machine_and_region(table)
    plain = np.flatnonzero(terms == "on-demand")
    if not len(plain):
        return np.full(len(table), np.nan)
    order = plain[np.argsort(codes[plain], kind="stable")]
    at = np.minimum(np.searchsorted(codes[order], codes), len(order) - 1)
    return np.where(codes[order][at] == codes, price[order][at], np.nan)


def _codes(column: Ints) -> list[int]:
    """Return the distinct values of a column in ascending order; `np.unique` would import numpy.ma, which takes 15 ms."""
    return sorted(set(column.tolist()))


def outdated_offers(service: bool, market: Market, offer: Ints) -> Bools:
    """Return a mask of the offers whose price per hour was last seen over half a year ago: of runs only spot prices."""
    terms = market.terms[offer]
    moving = np.isin(terms, ("on-demand", "spot")) if service else terms == "spot"
    mask: Bools = moving & (market.age_days[offer] > OLD_DAYS)
    return mask


def age_factor(service: bool, market: Market, offer: Ints) -> Floats:
    """Return the factor by which each offer's cost counts more in a ranking, by its price's age; for runs, of spot only."""
    terms = market.terms[offer]
    ages = terms != "owned" if service else terms == "spot"
    age = np.where(ages, market.age_days[offer], 0)
    return 1.0 + AGE_WEIGHT * (age > FRESH_DAYS) + AGE_WEIGHT * (age > OLD_DAYS)
