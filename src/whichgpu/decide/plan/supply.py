"""Machines that can be had: offers grouped by the GPUs they hold, with the cheapest of every footing; and what is owned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.groups import Group, Groups, groups_of
from whichgpu.decide.constraints import Owned
from whichgpu.decide.market import MOVING_DAYS, Market, terms_of
from whichgpu.decide.plan.solver.problem import Bools, Pool, PriceOption
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.price.run import RunSettings, sustained
from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS

OWNED = "owned"
LARGEST = 8  # GPUs of one copy or machine


@dataclass(frozen=True, slots=True)
class Machine:
    """What a way of a pool is: an offer of the market (its row among those left), or the owner's own."""

    row: int | None
    price: float  # what an hour is billed at
    term: str


@dataclass(frozen=True, slots=True)
class GpuPool:
    """A pool with the GPU it holds, how they are linked, most GPUs a copy may span, and what each of its ways is."""

    pool: Pool
    gpu: Gpu
    fabric: Fabric
    widest: int
    machines: tuple[Machine, ...]

    @property
    def owned(self) -> bool:
        """Whether it is the user's."""
        return self.machines[0].term == OWNED


@dataclass(frozen=True, slots=True)
class Supply:
    """All stands; how many offers were looked at; how many spot prices were too old to be."""

    gpu_pools: tuple[GpuPool, ...]
    offers: int
    old: int = 0


def rented(
    found: Market,
    catalog: Catalog,
    span: tuple[float, float],
    horizon: float,
    run_settings: RunSettings,
    spot: bool,
    old_spot: bool = False,
) -> Supply:
    """Of the offers left: by group the cheapest on demand, the cheapest commitment and, where asked for, the cheapest spot.

    Spot prices not seen for a year count only with `old_spot`.
    """
    low, high = span
    groups = groups_of(found, catalog, (low, min(high, LARGEST)), several=False)
    old = np.zeros(len(found.rows), dtype=bool) if old_spot else _old_spot(found)
    best = _cheapest(found, groups, horizon, run_settings, spot, old)
    gpu_pools = []
    for place, group in enumerate(groups.groups):
        options, machines = [], []
        plain = best.get((place, "plain"), (np.inf, None))[0]
        for footing in ("plain", "spot", "standing"):
            one = best.get((place, footing))
            if one is not None and (footing == "plain" or one[0] < plain):  # else it is never worth having
                price, machine = one
                options.append(PriceOption(f"{place}:{machine.row}", price, footing == "standing", term=machine.term))
                machines.append(machine)
        if options:
            pool = Pool(f"{group.gpu.id}:{group.per_machine}:{place}", group.gpu.id, group.per_machine, tuple(options))
            gpu_pools.append(GpuPool(pool, group.gpu, group.fabric, _power_of_two(group), tuple(machines)))
    left_out = int(old.sum()) if spot else 0
    return Supply(tuple(gpu_pools), len(found.rows) - left_out, left_out)


def _old_spot(found: Market) -> Bools:
    """Spot prices that say nothing any more."""
    today = found.day.toordinal()
    age = today - np.minimum(found.table.days[1][found.rows], today)
    return np.asarray((found.terms == "spot") & (age > MOVING_DAYS))


def _cheapest(
    found: Market, groups: Groups, horizon: float, run_settings: RunSettings, spot: bool, old: Bools
) -> dict[tuple[int, str], tuple[float, Machine]]:
    """By group and footing: what an hour comes to over the horizon, and the offer.

    A spot machine is away while another starts: its hour is worth less by that share. Sustained use is for those who stay.
    """
    terms, names = terms_of(found), found.terms
    hours = np.full(len(found.rows), min(horizon, float(MONTH_HOURS)))
    billed = terms.price * sustained(terms, hours) + terms.host
    bound = terms.years * YEAR_HOURS
    paid = np.where(bound > 0, np.ceil(horizon / np.maximum(bound, 1.0)) * bound / horizon, 1.0) * billed
    lost = np.minimum(0.9, run_settings.interruptions * run_settings.startup / 3600.0)
    price = np.where(terms.spot, paid / (1.0 - lost), paid)
    standing = (bound > 0) | (names == "sustained")
    usable = ~terms.spot if not spot else ~old
    best: dict[tuple[int, str], tuple[float, Machine]] = {}
    order = np.argsort(price[groups.offer_of], kind="stable")
    for pair in order.tolist():
        group, row = int(groups.group_of[pair]), int(groups.offer_of[pair])
        key = (group, "standing" if standing[row] else "spot" if terms.spot[row] else "plain")
        if usable[row] and np.isfinite(price[row]) and key not in best:
            best[key] = float(price[row]), Machine(row, float(billed[row]), str(names[row]))
    return best


def _power_of_two(group: Group) -> int:
    return min(LARGEST, 1 << (group.per_machine.bit_length() - 1))


def owned(machines: Sequence[Owned], catalog: Catalog) -> tuple[GpuPool, ...]:
    """What the user has: single GPUs, as many as there are, at the cost of their power."""
    gpu_pools = []
    for one in machines:
        gpu = catalog.gpu_by_id[one.gpu]
        option = PriceOption(OWNED, one.cost_per_hour, most=float(one.gpus), term=OWNED)
        pool = Pool(f"{OWNED}:{gpu.id}", gpu.id, 1, (option,))
        widest = min(LARGEST, 1 << (one.gpus.bit_length() - 1))
        gpu_pools.append(GpuPool(pool, gpu, fabric_of(gpu), widest, (Machine(None, one.cost_per_hour, OWNED),)))
    return tuple(gpu_pools)
