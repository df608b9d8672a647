"""What no plan can cost less than: Lagrange's bound over every column, those the program leaves out too.

Give every bucket a price (`pi`). Each column then answers alone: how many copies pay for themselves, serving the buckets that pay
best for its time. What the buckets pay less what the columns keep is below the cost of every plan (weak duality), whatever the
prices; copies stay whole numbers in it, so it is tighter than the program's relaxation. Better prices are found by going uphill.
Limits and quotas have prices too (`Fees`), from the relaxation; at none the bound holds as well, only lower.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np

from whichgpu.decide.plan.solver.problem import Bools, Floats, Problem

OWNED = "owned"
MOST_COPIES = 4000  # of one column looked at one by one
ROUNDS, STEPS = 12, 60
PATIENCE = 10  # steps without gain before they are made smaller
LEAST_WORTH = 1e-3
NEAR = 0.15  # of the target: columns that a round of steps looks at


@dataclass(frozen=True, slots=True)
class Fees:
    """What the last machine of a limited way is worth by level, pool and way (a commitment's: level -1), and a GPU of quotas."""

    options: dict[tuple[int, int, int], float] = field(default_factory=dict)
    quotas: dict[tuple[int, int], float] = field(default_factory=dict)  # by level and quota
    spot: dict[int, float] = field(default_factory=dict)  # by level: of a GPU beyond the share that may be spot

    def rebate(self, problem: Problem) -> float:
        """What all that the limits allow is worth: it is paid back, since fees are no costs."""
        options = sum(fee * problem.pools[p].options[w].most for (_, p, w), fee in self.options.items())
        return float(options + sum(fee * problem.quotas[q].most for (_, q), fee in self.quotas.items()))


@dataclass(frozen=True, slots=True)
class Costs:
    """What a copy costs an average hour, its share of the cheapest machine: by the level's hours, and for all hours."""

    hourly: Floats  # [levels, columns]
    standing: Floats  # [columns]; inf where no commitment is offered
    rebate: float = 0.0


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` holds for all plans; `with_column[j]` for all that use column j at all."""

    value: float
    prices: Floats
    with_column: Floats


def column_costs(problem: Problem, fees: Fees | None = None) -> Costs:
    """Of every column."""
    fees = fees or Fees()
    plain = np.full((problem.levels, len(problem.pools)), np.inf)
    standing = np.full(len(problem.pools), np.inf)
    for p, pool in enumerate(problem.pools):
        dues = [
            pool.size * sum(fee for (of, q), fee in fees.quotas.items() if of == level and p in problem.quotas[q].pools)
            for level in range(problem.levels)
        ]
        for w, option in enumerate(pool.options):
            side = (1.0 if option.term == "spot" else 0.0) - problem.spot_share if option.term != OWNED else 0.0
            risk = [pool.size * side * fees.spot.get(level, 0.0) for level in range(problem.levels)]
            if option.committed:
                standing[p] = min(standing[p], option.price + fees.options.get((-1, p, w), 0.0) + sum(dues) + sum(risk))
                continue
            for level, due in enumerate(dues):
                price = option.price * problem.hours[level] + fees.options.get((level, p, w), 0.0) + due + risk[level]
                plain[level, p] = min(plain[level, p], price)
    sizes = np.array([pool.size for pool in problem.pools], dtype=float)
    share = problem.uses / sizes[problem.pool_of]
    return Costs(plain[:, problem.pool_of] * share[None, :], standing[problem.pool_of] * share, fees.rebate(problem))


def initial_prices(problem: Problem, loads: Floats, cost: Costs) -> Floats:
    """What each bucket costs where it is cheapest and copies can be split: the bound of the plain relaxation."""
    each = np.minimum(cost.hourly, cost.standing[None, :]) if problem.levels == 1 else _cheapest(cost, problem)
    with np.errstate(invalid="ignore"):
        told = np.where(np.isfinite(loads), loads * each[:, :, None] / problem.room, np.inf)
    found: Floats = told.min(axis=1)
    return np.where(np.isfinite(found), found, 0.0)


def _cheapest(cost: Costs, problem: Problem) -> Floats:
    """At several levels a commitment is worth no less than its share of the hours."""
    found: Floats = np.minimum(cost.hourly, cost.standing[None, :] * problem.hours[:, None])
    return found


def raise_bound(
    problem: Problem, cost: Costs, loads: Floats, target: float, seconds: float, prices: Floats | None = None
) -> Bound:
    """Uphill for so many seconds at most. Steps look at the columns that may pay at prices like these; rounds end with all."""
    end = monotonic() + seconds
    now = initial_prices(problem, loads, cost) if prices is None else prices
    best, worth = _told(problem, cost, loads, now), 1.0
    for _ in range(ROUNDS):
        if monotonic() > end or best.value >= target or worth < LEAST_WORTH:
            break
        near = np.flatnonzero(best.with_column < best.value + NEAR * target)
        part = replace(
            problem,
            columns=tuple(problem.columns[j] for j in near),
            pool_of=problem.pool_of[near],
            uses=problem.uses[near],
            rates=problem.rates[near],
        )
        some = Costs(cost.hourly[:, near], cost.standing[near], cost.rebate)
        climbed, worth = _climb(part, some, np.ascontiguousarray(loads[:, near]), target, best.prices, worth, end)
        told = _told(problem, cost, loads, climbed)
        if told.value > best.value:
            best = told
        else:
            worth /= 2
    return best


def _told(problem: Problem, cost: Costs, loads: Floats, prices: Floats) -> Bound:
    value, _, forced = _evaluate(problem, cost, loads, prices, forcing=True)
    return Bound(value, prices, value + forced)


def _climb(
    problem: Problem, cost: Costs, loads: Floats, target: float, prices: Floats, worth: float, end: float
) -> tuple[Floats, float]:
    """Some steps along subgradients, as long as the distance to `target` suggests (Polyak), in proportion to the prices."""
    asked = problem.demand > 0
    best = now = prices
    best_value, idle = -np.inf, 0
    held: Floats | None = None
    for _ in range(STEPS):
        value, served, _ = _evaluate(problem, cost, loads, now)
        if value > best_value + 1e-9 * abs(target):
            best, best_value, idle = now, value, 0
        elif (idle := idle + 1) >= PATIENCE:
            worth, idle, now, held = worth / 2, 0, best, None
            if worth < LEAST_WORTH:
                break
            continue
        missing = np.where(asked, 1.0 - served, 0.0)
        slope = missing * now
        held = slope if held is None else 0.7 * slope + 0.3 * held
        if not held.any() or target <= best_value or monotonic() > end:
            break
        step = worth * max(target - value, 1e-4 * target) / max(float((missing * held).sum()), 1e-12)
        now = np.maximum(0.0, now + np.clip(step * held, -0.5 * now, 0.5 * now + 1e-12))
    return best, worth


def _evaluate(
    problem: Problem, cost: Costs, loads: Floats, prices: Floats, forcing: bool = False
) -> tuple[float, Floats, Floats]:
    """The bound at some prices, how much of each bucket the columns would serve, and what using each column would add."""
    asked = problem.demand > 0
    density = np.divide(prices[:, None, :], loads, out=np.zeros_like(loads), where=loads > 0)  # a load of inf earns nothing
    full = density.max(axis=2) * problem.room  # the most a copy's time can earn at each level
    hopeful = (full > cost.hourly).any(axis=0) | (full.sum(axis=0) > cost.standing)
    value, served = float(prices[asked].sum()) - cost.rebate, np.zeros_like(prices)
    forced = _first_copy(problem, cost, loads, density, full, hopeful) if forcing else np.zeros(loads.shape[1])
    if problem.levels == 1:
        places = np.flatnonzero(hopeful)
        kept, single, shares = _at_once(problem.room, cost, loads[0], density[0], places)
        forced[places] = kept - single
        served[0] += shares
        return value - float(kept.sum()), served, np.maximum(forced, 0.0)
    for j in np.flatnonzero(hopeful).tolist():
        earned, taken, first = _column(problem, cost.hourly[:, j], float(cost.standing[j]), loads[:, j], density[:, j])
        value -= earned
        served += taken
        forced[j] = earned - first
    return value, served, np.maximum(forced, 0.0)


def _at_once(room: float, cost: Costs, loads: Floats, density: Floats, places: np.ndarray) -> tuple[Floats, Floats, Floats]:
    """Of columns that may pay, at one level: what each keeps, what it keeps when it must run a copy, and what all serve.

    What copies earn grows ever slower, so the best number is one of the two next to where time earns just its price.
    """
    if not len(places):
        return np.zeros(0), np.zeros(0), np.zeros(loads.shape[1])
    each = np.minimum(cost.hourly[0], cost.standing)[places]
    own, paying = loads[places], density[places]
    order = np.argsort(-paying, axis=1, kind="stable")
    worth = np.take_along_axis(paying, order, axis=1)
    size = np.where(worth > 0, np.take_along_axis(own, order, axis=1), 0.0)
    time, money = np.cumsum(size, axis=1), np.cumsum(size * worth, axis=1)
    even = np.where(worth * room > each[:, None], size, 0.0).sum(axis=1) / room
    few = np.floor(even)
    kept = [_earned(room * count, time, money, size, worth) - each * count for count in (few, few + 1, np.ones_like(few))]
    more = kept[1] > kept[0]
    counts = np.where(more, few + 1, few)
    best = np.maximum(kept[0], kept[1])
    first = np.where(counts > 0, best, kept[2])
    shares = np.clip((room * counts[:, None] - (time - size)) / np.maximum(size, 1e-300), 0.0, 1.0) * (size > 0)
    served = np.zeros_like(own)
    np.put_along_axis(served, order, shares, axis=1)
    told: Floats = served.sum(axis=0)
    return best, first, told


def _earned(room: Floats, time: Floats, money: Floats, size: Floats, worth: Floats) -> Floats:
    """What so much time earns, filled with what pays best."""
    whole = time <= room[:, None]
    at = whole.sum(axis=1)
    done = np.where(at > 0, np.take_along_axis(money, np.maximum(at - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    past = np.where(at > 0, np.take_along_axis(time, np.maximum(at - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    last = np.minimum(at, size.shape[1] - 1)[:, None]
    part = np.where(at < size.shape[1], np.take_along_axis(worth, last, axis=1)[:, 0] * (room - past), 0.0)
    told: Floats = done + part
    return told


def _first_copy(problem: Problem, cost: Costs, loads: Floats, density: Floats, full: Floats, hopeful: Bools) -> Floats:
    """What one copy of a column that does not pay costs beyond what it earns; its time filled with what pays best."""
    gained = np.minimum(cost.hourly, np.inf) - full
    alone = gained.min(axis=0)
    standing = cost.standing - np.minimum(full, np.where(np.isfinite(cost.hourly), cost.hourly, np.inf)).sum(axis=0)
    told: Floats = np.where(hopeful, 0.0, np.minimum(alone, standing))
    near = np.flatnonzero(~hopeful & (told < 0.2 * np.minimum(cost.hourly.min(axis=0), cost.standing)))
    for j in near.tolist():  # a bucket is served once: filling the time with several is worth less than its best alone
        gains = np.array([_gains(loads[level, j], density[level, j], problem.room, 1)[0] for level in range(problem.levels)])
        gains = gains[:, 0] if gains.size else np.zeros(problem.levels)
        told[j] = min(
            float((cost.hourly[:, j] - gains).min()), float(cost.standing[j] - np.minimum(gains, cost.hourly[:, j]).sum())
        )
    return told


def _column(problem: Problem, hourly: Floats, standing: float, loads: Floats, density: Floats) -> tuple[float, Floats, float]:
    """What a column keeps, what it serves, and what it keeps when it must run a copy."""
    load_levels, room = problem.levels, problem.room
    most = 1
    for level in range(load_levels):
        paying = density[level] * room > min(hourly[level], standing)
        most = max(most, int(np.ceil(loads[level][paying].sum() / room)) + 1) if paying.any() else most
    most = min(most, MOST_COPIES)
    gains, orders = [], []
    for level in range(load_levels):
        gain, order = _gains(loads[level], density[level], room, most)
        gains.append(gain)
        orders.append(order)
    marginal = np.stack(gains)  # what the k-th copy adds at each level
    covered = np.minimum(np.maximum(marginal, 0.0), hourly[:, None]).sum(axis=0) - standing
    committed = int((covered > 0).sum())
    beyond = np.maximum(marginal - hourly[:, None], 0.0)
    earned = float(np.maximum(covered, 0.0).sum() + beyond.sum())
    counts = np.maximum((marginal > hourly[:, None]).sum(axis=1), committed)
    served = np.zeros_like(loads)
    for level in range(load_levels):
        served[level] = _filled(loads[level], orders[level], room * counts[level])
    first = earned if counts.max() > 0 else max(float((marginal[:, 0] - hourly).max()), float(covered[0]))
    return earned, served, first


def _gains(loads: Floats, density: Floats, room: float, most: int) -> tuple[Floats, np.ndarray]:
    """What the first, second … copy earns with the buckets that pay best for its time, and the order of these."""
    order = np.argsort(-density, kind="stable")
    order = order[density[order] > 0]
    time = np.concatenate([[0.0], np.cumsum(loads[order])])
    money = np.concatenate([[0.0], np.cumsum(loads[order] * density[order])])
    at = np.interp(room * np.arange(most + 1), time, money)
    return np.diff(at), order


def _filled(loads: Floats, order: np.ndarray, room: float) -> Floats:
    """Shares of buckets that fit into so much time, best first."""
    served = np.zeros_like(loads)
    if room <= 0 or not len(order):
        return served
    before = np.concatenate([[0.0], np.cumsum(loads[order])[:-1]])
    served[order] = np.clip((room - before) / np.maximum(loads[order], 1e-300), 0.0, 1.0)
    return served
