"""Machines available to a plan: offers grouped by their GPUs, with the cheapest of each kind of term; and owned GPUs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.places.user_places import Reach
from whichgpu.catalog.store import Catalog
from whichgpu.decide.candidates import unreliable_offers
from whichgpu.decide.configurations.groups import Groups, clustered_machines, groups_of
from whichgpu.decide.constraints import Constraints, Owned
from whichgpu.decide.market import MOVING_DAYS, Market, age_factor, outdated_offers, terms_of
from whichgpu.decide.plan.solver.problem import OWNED, Bools, Floats, Ints, Pool, PriceOption
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.price.run import RunSettings, sustained
from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS

MAX_GPUS = 8  # Most GPUs of one replica or machine.
MAX_LOST = 0.9  # Restarts take at most this share of a spot machine's hours.
Key = TypeVar("Key", bound=Hashable)


class GpuPool(msgspec.Struct, frozen=True):
    """A pool of equal machines with the facts of its GPU, how its GPUs are linked, and the most GPUs of one replica."""

    pool: Pool
    gpu: Gpu
    fabric: Fabric
    max_tp: int
    place: str = ""  # GPUs of one place send each other KV caches; empty if that is not known
    reach: tuple[bool, ...] = ()  # whether it is near enough to each city of users; empty if they are not in several
    workers_only: bool = False  # machines of a place for prefill and decode workers; aggregated replicas use other pools

    @property
    def owned(self) -> bool:
        """Return whether the user owns the GPUs of this pool."""
        return self.pool.options[0].term == OWNED

    @property
    def gpus_per_job(self) -> int:
        """Return the GPUs a job runs on: a whole rented machine, or the largest power of two of owned GPUs."""
        return self.max_tp if self.owned else self.pool.size


class Supply(msgspec.Struct, frozen=True):
    """All pools of machines a plan may use, how many offers were considered, and how many spot prices were too old."""

    pools: tuple[GpuPool, ...]
    offers: int
    old: int = 0
    avoided: int = 0  # offers of sellers, or on cards for desktops, that a service avoids


def rented_pools(
    market: Market,
    catalog: Catalog,
    constraints: Constraints,
    horizon: float,
    spot: bool,
    old_spot: bool = False,
    reach: Reach | None = None,
) -> Supply:
    """Return pools of equal rentable machines: per group of GPUs the cheapest on-demand, committed and, with `spot`, spot price.

    Spot prices not observed for a year count only with `old_spot`. A seller that a service avoids is left out. With `reach`
    machines near different cities of users are different pools, and those near none are left out.
    """
    low, high = constraints.span
    groups = groups_of(market, catalog, (low, min(high, MAX_GPUS)), several=False)
    avoided = unreliable_offers(constraints, market, groups, groups.group_of, groups.offer_of)
    groups = replace(groups, group_of=groups.group_of[~avoided], offer_of=groups.offer_of[~avoided])
    groups = _without_outdated(groups, market, old_spot)
    old = np.zeros(len(market.rows), dtype=bool) if old_spot else _old_spot(market)
    prices = _hourly_prices(market, horizon, constraints.run_settings, spot, old)
    near = _near(market, reach, groups.offer_of)
    if reach is not None:
        reachable = np.array([any(one) for one in near], dtype=bool)
        groups = replace(groups, group_of=groups.group_of[reachable], offer_of=groups.offer_of[reachable])
        near = [one for one in near if any(one)]
    best = _cheapest(prices, list(zip(groups.group_of.tolist(), near, strict=True)), groups.offer_of)
    pools = []
    for (place, reached), options in sorted(best.items()):
        group = groups.groups[place]
        name = f"{group.gpu.id}:{group.per_machine}:{place}" + "".join(":" + "01"[one] for one in reached)
        pool = Pool(name, group.gpu.id, group.per_machine, options)
        pools.append(GpuPool(pool, group.gpu, group.fabric, _power_of_two(group.per_machine), reach=reached))
    pools += _worker_pools(market, catalog, prices, np.unique(groups.offer_of), reach)
    left_out = int(old.sum()) if spot else 0
    sellers = len(np.unique(groups.offer_of))
    return Supply(tuple(pools), min(sellers, len(market.rows) - left_out), left_out, int(avoided.sum()))


def _without_outdated(groups: Groups, market: Market, old_spot: bool) -> Groups:
    """Return the groups without offers last seen over half a year ago, as in `recommend`: unless only such are left."""
    outdated = outdated_offers(True, market, groups.offer_of)
    if old_spot:
        outdated &= market.terms[groups.offer_of] != "spot"
    if outdated.all():
        return groups
    return replace(groups, group_of=groups.group_of[~outdated], offer_of=groups.offer_of[~outdated])


def _near(market: Market, reach: Reach | None, offers: Ints) -> list[tuple[bool, ...]]:
    """Return, for each of the offers, to which cities of users it is near enough; empty tuples if they are not in several."""
    if reach is None:
        return [()] * len(offers)
    table = market.table.select_rows(market.rows[offers])
    return [reach.of(table.word("provider", at), table.word("region", at)) for at in range(len(offers))]


def _old_spot(market: Market) -> Bools:
    """Return a mask of the spot offers whose price is too old to count."""
    return np.asarray((market.terms == "spot") & (market.age_days > MOVING_DAYS))


class _HourlyPrices(msgspec.Struct, frozen=True):
    """Prices per hour over the planning horizon of each offer of a market, in the order of its rows.

    A commitment is paid until it ends. A spot machine is idle while its replacement starts, so its price is raised accordingly.
    """

    price: Floats
    compared: Floats  # the same, an old price raised as in the ranking of `recommend`
    billed: Floats
    committed: Bools
    usable: Bools
    limits: Floats  # most machines of each offer that quotas allow
    terms: NDArray[np.str_]


def _hourly_prices(market: Market, horizon: float, run_settings: RunSettings, spot: bool, old: Bools) -> _HourlyPrices:
    terms, names = terms_of(market), market.terms
    hours = np.full(len(market.rows), min(horizon, float(MONTH_HOURS)))
    billed = terms.price * sustained(terms, hours) + terms.host
    bound = terms.years * YEAR_HOURS
    paid = np.where(bound > 0, np.ceil(horizon / np.maximum(bound, 1.0)) * bound / horizon, 1.0) * billed
    lost = np.minimum(MAX_LOST, run_settings.interruptions * run_settings.startup / 3600.0)
    price = np.where(terms.spot, paid / (1.0 - lost), paid)
    usable = (~terms.spot if not spot else ~old) & (market.max_machines >= 1) & np.isfinite(price)
    committed = (bound > 0) | (names == "sustained")
    compared = price * age_factor(True, market, np.arange(len(market.rows)))
    return _HourlyPrices(price, compared, billed, committed, usable, market.max_machines, names)


def _cheapest(prices: _HourlyPrices, keys: Sequence[Key], offers: Ints) -> dict[Key, tuple[PriceOption, ...]]:
    """Return the price options of equal machines by key, which says what machines each of the offers is of.

    Of each kind of term it is the offer with the lowest price per hour; if a quota limits its machines, the cheapest one without
    a limit follows it. A commitment or spot price above on demand is left out.
    """
    best: dict[Key, dict[str, list[PriceOption]]] = {}
    for at in np.argsort(prices.compared[offers], kind="stable").tolist():
        key, row = keys[at], int(offers[at])
        if not prices.usable[row]:
            continue
        term = "committed" if prices.committed[row] else "spot" if prices.terms[row] == "spot" else "on-demand"
        cheaper = best.setdefault(key, {"on-demand": [], "spot": [], "committed": []})[term]
        limit = float(prices.limits[row])
        if not cheaper or (np.isfinite(cheaper[-1].limit) and np.isinf(limit)):
            cheaper.append(
                PriceOption(
                    f"{key}:{row}",
                    float(prices.price[row]),
                    bool(prices.committed[row]),
                    limit=limit,
                    term=str(prices.terms[row]),
                    billed=float(prices.billed[row]),
                    row=row,
                )
            )
    options = {}
    for key, by_term in best.items():
        on_demand = min((one.price for one in by_term["on-demand"]), default=np.inf)
        others = (one for term in ("spot", "committed") for one in by_term[term] if one.price < on_demand)
        options[key] = (*by_term["on-demand"], *others)
    return {key: several for key, several in options.items() if several}


def _worker_pools(market: Market, catalog: Catalog, prices: _HourlyPrices, offers: Ints, reach: Reach | None) -> list[GpuPool]:
    """Return pools of machines that send each other KV caches: of one provider and region, joined by a fast network.

    They are those of the places where some kind of GPU is cheapest.
    """
    machines = clustered_machines(catalog)
    table = market.table.select_rows(market.rows[offers])
    keys, rows = [], []
    for at, row in enumerate(offers.tolist()):
        provider, region, instance = (table.word(name, at) for name in ("provider", "region", "instance"))
        if (machine := machines.get((provider, instance))) is not None and 1 <= machine.gpus <= MAX_GPUS:
            keys.append((provider, region, instance))
            rows.append(row)
    options = _cheapest(prices, keys, np.array(rows, dtype=np.int64))
    cheapest: dict[str, tuple[float, tuple[str, str]]] = {}
    for (provider, region, instance), price_options in options.items():
        machine = machines[provider, instance]
        here = min(one.price for one in price_options) / machine.gpus, (provider, region)
        cheapest[machine.gpu] = min(here, cheapest.get(machine.gpu, here))
    places, pools = {place for _, place in cheapest.values()}, []
    for (provider, region, instance), price_options in options.items():
        if (provider, region) in places:
            machine = machines[provider, instance]
            gpu, size, place = catalog.gpu_by_id[machine.gpu], int(machine.gpus), f"{provider} {region}"
            pool = Pool(f"{place}:{instance}", gpu.id, size, price_options)
            near = reach.of(provider, region) if reach else ()
            pools.append(GpuPool(pool, gpu, fabric_of(gpu, machine), _power_of_two(size), place, near, workers_only=True))
    return pools


def _power_of_two(gpus: int) -> int:
    return min(MAX_GPUS, 1 << (gpus.bit_length() - 1))


def owned_pools(owned: Sequence[Owned], catalog: Catalog) -> tuple[GpuPool, ...]:
    """Return a pool of single GPUs for each kind the user owns, limited to their number, at the cost of their power."""
    pools = []
    for one in owned:
        gpu = catalog.gpu_by_id[one.gpu]
        option = PriceOption(OWNED, one.cost_per_hour, limit=float(one.gpus), term=OWNED, billed=one.cost_per_hour)
        pool = Pool(f"{OWNED}:{gpu.id}", gpu.id, 1, (option,))
        pools.append(GpuPool(pool, gpu, fabric_of(gpu), _power_of_two(one.gpus), OWNED))
    return tuple(pools)
