"""A lower bound on the cost of every plan: the Lagrangian bound over all columns, also those outside the program.

Each bucket gets a price. Each column then decides alone how many replicas pay for themselves by serving the buckets that pay best
for its time. The sum of the prices less the profits of the columns is below the cost of every plan, whatever the prices (weak
duality). Replicas stay whole numbers in it, so it is tighter than the linear relaxation. Better prices are found by subgradient
steps. Limits and quotas have prices too (`Fees`), from the relaxation; without them the bound still holds, but is lower.
"""

from __future__ import annotations

from time import monotonic

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem

MAX_REPLICAS = 4000  # At most this many replicas of one column are evaluated.
ROUNDS, STEPS = 12, 60  # Rounds of the subgradient ascent, and steps in each round.
PATIENCE = 10  # Steps without gain after which the step size is halved.
MIN_STEP = 1e-3  # The ascent ends when the factor on the Polyak step falls below this.
NEAR = 0.15  # A round considers columns whose bound is within this share of the target.
VISITED, MAX_VISITED = 0.97, 60  # Prices whose bound is at least this share of the highest are reported, at most this many.


class Fees(msgspec.Struct, frozen=True):
    """Shadow prices of a plan's limits: per machine of a price option, per GPU under a quota, per late request."""

    options: dict[tuple[int, int, int], float] = msgspec.field(default_factory=dict)  # by level (-1: committed), pool, option
    quotas: dict[tuple[int, int], float] = msgspec.field(default_factory=dict)  # fee per GPU, by level and quota
    late: dict[tuple[int, int], float] = msgspec.field(default_factory=dict)  # per late request/s, by level and model

    def rebate(self, problem: Problem) -> float:
        """Return the sum of fee times limit per average hour; the bound is reduced by it, since these fees are not paid."""
        options = sum(fee * problem.pools[p].options[w].limit for (_, p, w), fee in self.options.items())
        limits = problem.late_limits() if self.late else {}
        late = sum(fee * limits[key][1] for key, fee in self.late.items())
        return float(options + late + sum(fee * problem.quotas[q].limit for (_, q), fee in self.quotas.items()))

    def late_fees(self, problem: Problem) -> Floats:
        """Return the fee for serving all of a bucket's requests late, [levels, buckets]."""
        fees, limits = np.zeros_like(problem.demand), problem.late_limits() if self.late else {}
        for (level, model), fee in self.late.items():
            fees[level] += fee * limits[level, model][0]
        return fees


class Costs(msgspec.Struct, frozen=True):
    """Cost per average hour of one replica of each column (a model on a kind of machine), at the cheapest price, with fees."""

    hourly: Floats  # cost if rented for the hours of one level, [levels, columns]
    committed: Floats  # cost if committed for all hours, [columns]; inf if no commitment is offered
    late_fees: Floats  # fee for serving all of a bucket's requests late, [levels, buckets]
    rebate: float = 0.0


class Bound(msgspec.Struct, frozen=True):
    """Lower bounds per average hour: `value` on the cost of every plan, `with_column[j]` on plans with replicas of kind j."""

    value: float
    prices: Floats
    with_column: Floats
    visited: tuple[Floats, ...] = ()  # other bucket prices that gave bounds nearly as high, best first


def column_costs(problem: Problem, fees: Fees | None = None) -> Costs:
    """Return the cost per average hour of one replica of every column (model on a kind of machine), fees included if given."""
    fees = fees or Fees()
    rented = np.full((problem.levels, len(problem.pools)), np.inf)
    committed = np.full(len(problem.pools), np.inf)
    for p, pool in enumerate(problem.pools):
        dues = [
            pool.size * sum(fee for (of, q), fee in fees.quotas.items() if of == level and p in problem.quotas[q].pools)
            for level in range(problem.levels)
        ]
        for w, option in enumerate(pool.options):
            if option.committed:
                committed[p] = min(committed[p], option.price + fees.options.get((-1, p, w), 0.0) + sum(dues))
                continue
            for level, due in enumerate(dues):
                price = option.price * problem.hours[level] + fees.options.get((level, p, w), 0.0) + due
                rented[level, p] = min(rented[level, p], price)
    sizes = np.array([pool.size for pool in problem.pools], dtype=float)
    share = problem.uses / sizes[problem.pool_of]
    hourly, bound = rented[:, problem.pool_of] * share[None, :], committed[problem.pool_of] * share
    return Costs(hourly, bound, fees.late_fees(problem), fees.rebate(problem))


def initial_prices(problem: Problem, loads: Floats, cost: Costs) -> Floats:
    """Return the cost of each request bucket on its cheapest kind of replica, fractions allowed, [levels, buckets]."""
    # With several levels, the part of a commitment's cost that falls on a level is at least the level's share of the hours.
    hours = np.ones(1) if problem.levels == 1 else problem.hours
    each = np.minimum(cost.hourly, cost.committed[None, :] * hours[:, None])
    with np.errstate(invalid="ignore"):
        cost_on = np.where(np.isfinite(loads), loads * each[:, :, None] / problem.room, np.inf)
    prices: Floats = cost_on.min(axis=1)
    width = problem.demand.shape[1]
    if prices.shape[1] > width:  # Buckets that no column serves on time cost what they cost late.
        prices = np.where(np.isfinite(prices[:, :width]), prices[:, :width], prices[:, width:])
    return np.where(np.isfinite(prices), prices, 0.0)


def raise_bound(
    problem: Problem, cost: Costs, loads: Floats, target: float, seconds: float, prices: Floats | None = None
) -> Bound:
    """Return a higher lower bound on the cost by subgradient steps from `prices`; stop after `seconds` or at `target`."""
    end = monotonic() + seconds
    now = initial_prices(problem, loads, cost) if prices is None else prices
    best, step = _bound_at(problem, cost, loads, now), 1.0
    visited = [(best.value, best.prices)]
    for _ in range(ROUNDS):
        if monotonic() > end or best.value >= target or step < MIN_STEP:
            break
        near = np.flatnonzero(best.with_column < best.value + NEAR * target)
        some = Costs(cost.hourly[:, near], cost.committed[near], cost.late_fees, cost.rebate)
        near_loads = np.ascontiguousarray(loads[:, near])
        climbed, step = _climb(problem.of_columns(near), some, near_loads, target, best.prices, step, end, visited)
        bound = _bound_at(problem, cost, loads, climbed)
        if bound.value > best.value:
            best = bound
        else:
            step /= 2
    high = sorted((one for one in visited if one[0] >= VISITED * best.value), key=lambda one: -one[0])
    every = -(-len(high) // MAX_VISITED)
    return replace(best, visited=tuple(prices for _, prices in high[:: max(1, every)]))


def _bound_at(problem: Problem, cost: Costs, loads: Floats, prices: Floats) -> Bound:
    value, _, forced = _evaluate(problem, cost, loads, prices, forcing=True)
    return Bound(value, prices, value + forced)


def _climb(
    problem: Problem,
    cost: Costs,
    loads: Floats,
    target: float,
    prices: Floats,
    factor: float,
    end: float,
    visited: list[tuple[float, Floats]],
) -> tuple[Floats, float]:
    """Take Polyak steps along subgradients towards `target`, scaled by `factor` and in proportion to the bucket prices.

    Return the best bucket prices found and the factor for the next round; all prices tried are appended to `visited`.
    """
    demanded = problem.demand > 0
    best = now = prices
    best_value, idle = -np.inf, 0
    direction: Floats | None = None
    for _ in range(STEPS):
        value, served, _ = _evaluate(problem, cost, loads, now)
        visited.append((value, now))
        if value > best_value + 1e-9 * abs(target):
            best, best_value, idle = now, value, 0
        elif (idle := idle + 1) >= PATIENCE:
            factor, idle, now, direction = factor / 2, 0, best, None
            if factor < MIN_STEP:
                break
            continue
        missing = np.where(demanded, 1.0 - served, 0.0)
        slope = missing * now
        direction = slope if direction is None else 0.7 * slope + 0.3 * direction
        if not direction.any() or target <= best_value or monotonic() > end:
            break
        step = factor * max(target - value, 1e-4 * target) / max(float((missing * direction).sum()), 1e-12)
        now = np.maximum(0.0, now + np.clip(step * direction, -0.5 * now, 0.5 * now + 1e-12))
    return best, factor


def _evaluate(
    problem: Problem, cost: Costs, loads: Floats, prices: Floats, forcing: bool = False
) -> tuple[float, Floats, Floats]:
    """Return the cost bound at these bucket prices, bucket shares served, and (`forcing`) its rise if a column must be used."""
    demanded = problem.demand > 0
    loads, density = _items(loads, prices, cost.late_fees)
    best_earnings = density.max(axis=2) * problem.room  # The most one replica can earn at each level.
    may_pay = (best_earnings > cost.hourly).any(axis=0) | (best_earnings.sum(axis=0) > cost.committed)
    value, served = float(prices[demanded].sum()) - cost.rebate, np.zeros_like(prices)
    forced = _forced_loss(problem, cost, loads, density, best_earnings, may_pay) if forcing else np.zeros(loads.shape[1])
    if problem.levels == 1:
        places = np.flatnonzero(may_pay)
        profit, single, shares = _single_level(problem.room, cost, loads[0], density[0], places)
        forced[places] = profit - single
        served[0] += shares[: prices.shape[1]]
        return value - float(profit.sum()), served, np.maximum(forced, 0.0)
    for j in np.flatnonzero(may_pay).tolist():
        earned, column_shares, first = _column(problem, cost.hourly[:, j], float(cost.committed[j]), loads[:, j], density[:, j])
        value -= earned
        served += column_shares[:, : prices.shape[1]]
        forced[j] = earned - first
    return value, served, np.maximum(forced, 0.0)


def _items(loads: Floats, prices: Floats, late_fees: Floats) -> tuple[Floats, Floats]:
    """Return loads and earnings per unit of load of what a column may serve, [levels, columns, items]; earnings 0 if it cannot.

    Without late service an item is a bucket of requests. With it, the first items are the buckets, served in the way that earns
    more per unit of load; those served late are followed by items that make them on time, for more load and without the late fee.
    """
    width = prices.shape[1]
    if loads.shape[2] == width:
        return loads, np.divide(prices[:, None, :], loads, out=np.zeros_like(loads), where=loads > 0)
    on_time, late = loads[:, :, :width], loads[:, :, width:]
    density = np.divide(prices[:, None, :], on_time, out=np.zeros_like(on_time), where=on_time > 0)
    left = np.maximum(prices - late_fees, 0.0)
    late_density = np.divide(left[:, None, :], late, out=np.zeros_like(late), where=late > 0)
    late_first = late_density > density
    with np.errstate(invalid="ignore"):
        more = np.where(late_first & np.isfinite(on_time), on_time - late, np.inf)
    fees = np.broadcast_to(np.minimum(late_fees, prices)[:, None, :], more.shape)
    upgrade = np.divide(fees, more, out=np.zeros_like(more), where=np.isfinite(more) & (more > 0))
    first = np.where(late_first, late, on_time)
    return np.concatenate([first, more], axis=2), np.concatenate([np.maximum(density, late_density), upgrade], axis=2)


def _single_level(room: float, cost: Costs, loads: Floats, density: Floats, places: np.ndarray) -> tuple[Floats, Floats, Floats]:
    """Return, at one load level, the profit of each kind of replica, that with at least one, and bucket shares served.

    Earnings are concave in the number of replicas, so the best number is next to where one more earns just its cost.
    """
    if not len(places):
        return np.zeros(0), np.zeros(0), np.zeros(loads.shape[1])
    each = np.minimum(cost.hourly[0], cost.committed)[places]
    order, size, earning_rate = _best_paying_first(loads[places], density[places])
    time, money = np.cumsum(size, axis=1), np.cumsum(size * earning_rate, axis=1)
    break_even = np.where(earning_rate * room > each[:, None], size, 0.0).sum(axis=1) / room
    floor_count = np.floor(break_even)
    profit = [
        _earned(room * count, time, money, size, earning_rate) - each * count
        for count in (floor_count, floor_count + 1, np.ones_like(floor_count))
    ]
    more = profit[1] > profit[0]
    counts = np.where(more, floor_count + 1, floor_count)
    best = np.maximum(profit[0], profit[1])
    first = np.where(counts > 0, best, profit[2])
    shares = np.clip((room * counts[:, None] - (time - size)) / np.maximum(size, 1e-300), 0.0, 1.0) * (size > 0)
    served = np.zeros_like(size)
    np.put_along_axis(served, order, shares, axis=1)
    total: Floats = served.sum(axis=0)
    return best, first, total


def _best_paying_first(loads: Floats, density: Floats) -> tuple[Ints, Floats, Floats]:
    """Return, for each column, its items in the order of what they pay per unit of time, their loads and what they pay."""
    order = np.argsort(-density, axis=1, kind="stable")
    earning_rate = np.take_along_axis(density, order, axis=1)
    return order, np.where(earning_rate > 0, np.take_along_axis(loads, order, axis=1), 0.0), earning_rate


def earnings(loads: Floats, prices: Floats, late_fees: Floats, room: float, replicas: int) -> Floats:
    """Return the most that the first, second ... replica of each column can earn at bucket prices, [columns, replicas]."""
    loads, density = (one[0] for one in _items(loads[None], prices[None], late_fees[None]))
    _, size, earning_rate = _best_paying_first(loads, density)
    time, money = np.cumsum(size, axis=1), np.cumsum(size * earning_rate, axis=1)
    full = [_earned(np.full(len(loads), room * count), time, money, size, earning_rate) for count in range(1, replicas + 1)]
    return np.diff(np.stack(full, axis=1), axis=1, prepend=0.0)


def _earned(room: Floats, time: Floats, money: Floats, size: Floats, earning_rate: Floats) -> Floats:
    """Return the money earned by the time of `room` replicas, spent on the request buckets that pay most per unit of time."""
    whole = time <= room[:, None]
    at = whole.sum(axis=1)
    done = np.where(at > 0, np.take_along_axis(money, np.maximum(at - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    past = np.where(at > 0, np.take_along_axis(time, np.maximum(at - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    last = np.minimum(at, size.shape[1] - 1)[:, None]
    part = np.where(at < size.shape[1], np.take_along_axis(earning_rate, last, axis=1)[:, 0] * (room - past), 0.0)
    total: Floats = done + part
    return total


def _forced_loss(problem: Problem, cost: Costs, loads: Floats, density: Floats, best_earnings: Floats, may_pay: Bools) -> Floats:
    """Return the loss of running one replica of each unprofitable kind, its time filled with the best-paying requests."""
    rented = (cost.hourly - best_earnings).min(axis=0)
    committed = cost.committed - np.minimum(best_earnings, cost.hourly).sum(axis=0)
    loss: Floats = np.where(may_pay, 0.0, np.minimum(rented, committed))
    near = np.flatnonzero(~may_pay & (loss < 0.2 * np.minimum(cost.hourly.min(axis=0), cost.committed)))
    for j in near.tolist():  # A bucket is served once, so a replica filled with several earns less than at its best.
        gains = np.array([_gains(*one, problem.room, 1)[0][0] for one in zip(loads[:, j], density[:, j], strict=True)])
        loss[j] = min(
            float((cost.hourly[:, j] - gains).min()), float(cost.committed[j] - np.minimum(gains, cost.hourly[:, j]).sum())
        )
    return loss


def _column(problem: Problem, hourly: Floats, committed: float, loads: Floats, density: Floats) -> tuple[float, Floats, float]:
    """Return a kind of replica's profit over all load levels, the bucket shares it serves, and its profit if one must run."""
    load_levels, room = problem.levels, problem.room
    max_replicas = 1
    for level in range(load_levels):
        paying = density[level] * room > min(hourly[level], committed)
        max_replicas = max(max_replicas, int(np.ceil(loads[level][paying].sum() / room)) + 1) if paying.any() else max_replicas
    max_replicas = min(max_replicas, MAX_REPLICAS)
    ranked = [_gains(loads[level], density[level], room, max_replicas) for level in range(load_levels)]
    marginal = np.stack([gains for gains, _ in ranked])  # Earnings of the k-th replica at each level.
    covered = np.minimum(np.maximum(marginal, 0.0), hourly[:, None]).sum(axis=0) - committed
    always = int((covered > 0).sum())
    beyond = np.maximum(marginal - hourly[:, None], 0.0)
    earned = float(np.maximum(covered, 0.0).sum() + beyond.sum())
    counts = np.maximum((marginal > hourly[:, None]).sum(axis=1), always)
    served = np.zeros_like(loads)
    for level in range(load_levels):
        served[level] = _filled(loads[level], ranked[level][1], room * counts[level])
    first = earned if counts.max() > 0 else max(float((marginal[:, 0] - hourly).max()), float(covered[0]))
    return earned, served, first


def _gains(loads: Floats, density: Floats, room: float, max_replicas: int) -> tuple[Floats, np.ndarray]:
    """Return what the first, second ... replica earns from the best-paying request buckets, and the order of these buckets."""
    order = np.argsort(-density, kind="stable")
    order = order[density[order] > 0]
    time = np.concatenate([[0.0], np.cumsum(loads[order])])
    money = np.concatenate([[0.0], np.cumsum(loads[order] * density[order])])
    at = np.interp(room * np.arange(max_replicas + 1), time, money)
    return np.diff(at), order


def _filled(loads: Floats, order: np.ndarray, room: float) -> Floats:
    """Return the shares of request buckets that fit into the time of `room` replicas, filled in the given order."""
    served = np.zeros_like(loads)
    if room <= 0 or not len(order):
        return served
    before = np.concatenate([[0.0], np.cumsum(loads[order])[:-1]])
    served[order] = np.clip((room - before) / np.maximum(loads[order], 1e-300), 0.0, 1.0)
    return served
