"""Machines available to a plan: offers grouped by their GPUs, with the cheapest of each kind of term; and owned GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.decide.candidates import unreliable_offers
from whichgpu.decide.configurations.groups import Groups, groups_of
from whichgpu.decide.constraints import Constraints, Owned
from whichgpu.decide.market import MOVING_DAYS, Market, terms_of
from whichgpu.decide.plan.solver.problem import OWNED, Bools, Pool, PriceOption
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.price.run import RunSettings, sustained
from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS

MAX_GPUS = 8  # Most GPUs of one replica or machine.
MAX_LOST = 0.9  # Restarts take at most this share of a spot machine's hours.


class GpuPool(msgspec.Struct, frozen=True):
    """A pool of equal machines with the facts of its GPU, how its GPUs are linked, and the most GPUs of one replica."""

    pool: Pool
    gpu: Gpu
    fabric: Fabric
    max_tp: int
    place: str = ""  # GPUs of one place send each other KV caches; empty if that is not known, as of rented machines

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
) -> Supply:
    """Return pools of equal rentable machines: per group of GPUs the cheapest on-demand, committed and, with `spot`, spot price.

    Spot prices not observed for a year count only with `old_spot`. A commitment or spot price above on demand is left out, and
    so is a seller that a service avoids.
    """
    low, high = constraints.span
    groups = groups_of(market, catalog, (low, min(high, MAX_GPUS)), several=False)
    avoided = unreliable_offers(constraints, market, groups, groups.group_of, groups.offer_of)
    groups = replace(groups, group_of=groups.group_of[~avoided], offer_of=groups.offer_of[~avoided])
    old = np.zeros(len(market.rows), dtype=bool) if old_spot else _old_spot(market)
    best = _cheapest(market, groups, horizon, constraints.run_settings, spot, old)
    pools = []
    for place, group in enumerate(groups.groups):
        listed = best.get((place, "on-demand"), [])
        others = [one for term in ("spot", "committed") for one in best.get((place, term), [])]
        on_demand = min((one.price for one in listed), default=np.inf)
        options = (*listed, *(one for one in others if one.price < on_demand))
        if options:
            pool = Pool(f"{group.gpu.id}:{group.per_machine}:{place}", group.gpu.id, group.per_machine, options)
            pools.append(GpuPool(pool, group.gpu, group.fabric, _power_of_two(group.per_machine)))
    left_out = int(old.sum()) if spot else 0
    sellers = len(np.unique(groups.offer_of))
    return Supply(tuple(pools), min(sellers, len(market.rows) - left_out), left_out, int(avoided.sum()))


def _old_spot(market: Market) -> Bools:
    """Return a mask of the spot offers whose price is too old to count."""
    return np.asarray((market.terms == "spot") & (market.age_days > MOVING_DAYS))


def _cheapest(
    market: Market, groups: Groups, horizon: float, run_settings: RunSettings, spot: bool, old: Bools
) -> dict[tuple[int, str], list[PriceOption]]:
    """Return, by group of GPUs and kind of term, the offer with the lowest price per hour over the planning horizon.

    If a quota limits its machines, the cheapest one without a limit follows it.

    A commitment is paid until it ends. A spot machine is idle while its replacement starts, so its price is raised accordingly.
    """
    terms, names = terms_of(market), market.terms
    hours = np.full(len(market.rows), min(horizon, float(MONTH_HOURS)))
    billed = terms.price * sustained(terms, hours) + terms.host
    bound = terms.years * YEAR_HOURS
    paid = np.where(bound > 0, np.ceil(horizon / np.maximum(bound, 1.0)) * bound / horizon, 1.0) * billed
    lost = np.minimum(MAX_LOST, run_settings.interruptions * run_settings.startup / 3600.0)
    price = np.where(terms.spot, paid / (1.0 - lost), paid)
    committed = (bound > 0) | (names == "sustained")
    usable = (~terms.spot if not spot else ~old) & (market.max_machines >= 1)
    best: dict[tuple[int, str], list[PriceOption]] = {}
    order = np.argsort(price[groups.offer_of], kind="stable")
    for pair in order.tolist():
        group, row = int(groups.group_of[pair]), int(groups.offer_of[pair])
        key = (group, "committed" if committed[row] else "spot" if terms.spot[row] else "on-demand")
        limit, cheaper = float(market.max_machines[row]), best.get(key, [])
        if usable[row] and np.isfinite(price[row]) and (not cheaper or (np.isfinite(cheaper[-1].limit) and np.isinf(limit))):
            option = PriceOption(
                f"{group}:{row}",
                float(price[row]),
                bool(committed[row]),
                limit=limit,
                term=str(names[row]),
                billed=float(billed[row]),
                row=row,
            )
            best.setdefault(key, []).append(option)
    return best


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
