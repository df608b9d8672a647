"""A fast test whether given replicas serve a load level: assignments of whole buckets, mixed until no replica is overloaded.

Each assignment gives every bucket to the column where it costs least at some prices of the columns' time. The mixture of
assignments with the lowest utilisation is a linear program with one row per column in use, and its duals are the next prices
(Dantzig-Wolfe decomposition). That is far smaller than the program of all shares: some milliseconds for 2,000 buckets.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.problem import Floats, Ints, Problem

TOLERANCE = 1e-9  # Utilisation above 1 that counts as none.
UNDECIDED = 1e-4  # A fleet whose lowest utilisation is known to lie within this range around 1 counts as too small.
MAX_ROUNDS = 200  # Assignments tried in one test.
MAX_KEPT = 150  # Assignments of earlier tests that the next one starts from.
MIN_PRICE = 1e-9  # Share of the mean price that every column's time has at least.


class Shortage(msgspec.Struct, frozen=True):
    """Why replicas do not serve a load: bucket prices at which their time, late service included, earns less than the sum.

    `proven` is a lower bound on the utilisation of the fullest column, `utilisation` the lowest found.
    """

    proven: float
    utilisation: float
    prices: Floats
    late_fees: Floats  # fee for serving all of a bucket's requests late
    rebate: float  # fees of all the requests that may be late


class CapacityTest:
    """Tests of fleets for one load level; assignments found in one test are used in the next."""

    def __init__(self, problem: Problem, level: int = 0) -> None:
        self.loads, self.room = problem.loads()[level], problem.room
        self.width = problem.demand.shape[1]
        self.buckets = np.arange(self.width)
        limits = [pair for (at, _), pair in problem.late_limits().items() if at == level]
        self.late = [(demand, limit) for demand, limit in limits if limit > 0] if self.loads.shape[1] > self.width else []
        self.assignments: list[tuple[Ints, Floats]] = []  # item of each bucket; use of every column and late limit

    def shares(self, counts: Ints) -> Floats | None:
        """Return the share of each item (bucket on time, then late) on each column that these replicas can serve, else None."""
        outcome = self.outcome(counts, np.inf)
        return None if isinstance(outcome, Shortage) else outcome

    def serves(self, counts: Ints) -> bool:
        """Return whether these replicas serve the whole load within their headroom."""
        return bool(counts.any()) and self.shares(counts) is not None

    def outcome(self, counts: Ints, precision: float) -> Floats | Shortage:
        """Return the shares that these replicas can serve, as `shares` does, or why not, with utilisation to a `precision`."""
        used = np.concatenate([np.flatnonzero(counts), len(counts) + np.arange(len(self.late))])
        able = np.zeros(len(counts) + len(self.late), dtype=bool)
        able[used] = True
        capacity = np.concatenate([self.room * counts[counts > 0], [limit for _, limit in self.late]])
        assignments = [one for one in self.assignments[-MAX_KEPT:] if able[np.flatnonzero(one[1])].all()]
        prices = 1.0 / capacity / len(capacity)
        weights: Floats = np.zeros(0)
        lowest, shortage = np.inf, Shortage(0.0, np.inf, np.zeros(self.width), np.zeros(self.width), 0.0)
        for _ in range(MAX_ROUNDS):
            if assignments:
                lowest, weights, prices = _best_mixture(np.array([use[used] for _, use in assignments]), capacity)
                if lowest <= 1.0 + TOLERANCE:
                    return self._mixed(assignments, weights, len(counts))
            items, use, costs = self._cheapest(counts, prices)
            value = float(costs.sum())
            if value > shortage.proven:
                shortage = self._shortage(costs, prices[len(prices) - len(self.late) :], value)
            apart = lowest - value if np.isfinite(value) else 0.0
            if (value > 1.0 + TOLERANCE and apart <= precision) or apart < UNDECIDED:
                break
            assignments.append((items, use))
            self.assignments = [*self.assignments[-MAX_KEPT:], (items, use)]
        return replace(shortage, utilisation=lowest)

    def _shortage(self, prices: Floats, fees: Floats, value: float) -> Shortage:
        if not np.isfinite(value):  # No replica serves some buckets at all, so these alone have a price.
            return Shortage(value, np.inf, np.isinf(prices).astype(float), np.zeros(self.width), 0.0)
        late_fees = np.zeros(self.width)
        for fee, (demand, _) in zip(fees, self.late, strict=True):
            late_fees += fee * demand
        rebate = sum(float(fee) * limit for fee, (_, limit) in zip(fees, self.late, strict=True))
        return Shortage(value, np.inf, prices, late_fees, rebate)

    def _cheapest(self, counts: Ints, prices: Floats) -> tuple[Ints, Floats, Floats]:
        """Return the cheapest item of each bucket (column x items of a column + item), the use of resources, and each's cost.

        The cost of all buckets is a lower bound on the utilisation of the fullest column.
        """
        columns = np.flatnonzero(counts)
        costs = prices[: len(columns), None] * self.loads[columns]
        for fee, (demand, _) in zip(prices[len(columns) :], self.late, strict=True):
            costs[:, self.width :] += fee * demand
        options = costs.reshape(len(columns), -1, self.width) if costs.shape[1] > self.width else costs[:, None, :]
        flat = options.reshape(-1, self.width)
        chosen = flat.argmin(axis=0)
        per_column = options.shape[1]
        column, late = columns[chosen // per_column], chosen % per_column > 0
        item = self.buckets + self.width * late
        use = np.zeros(len(counts) + len(self.late))
        np.add.at(use, column, self.loads[column, item])
        for place, (demand, _) in enumerate(self.late):
            use[len(counts) + place] = float(demand[late].sum())
        return column * self.loads.shape[1] + item, use, flat[chosen, self.buckets]

    def _mixed(self, assignments: list[tuple[Ints, Floats]], weights: Floats, columns: int) -> Floats:
        shares = np.zeros(columns * self.loads.shape[1])
        for (items, _), weight in zip(assignments, weights, strict=True):
            shares[items] += weight
        return shares.reshape(columns, -1)


def _best_mixture(uses: Floats, capacity: Floats) -> tuple[float, Floats, Floats]:
    """Return the lowest utilisation of the fullest resource over mixtures of uses, the weights, and prices of the resources."""
    program = LinearProgram()
    fullest = program.variable(1.0)
    places = [program.variable(0.0) for _ in uses]
    rows = [
        program.row([*((place, use) for place, use in zip(places, column, strict=True) if use), (fullest, -1.0)], -INFINITE, 0.0)
        for column in (uses / capacity).T.tolist()
    ]
    program.row([(place, 1.0) for place in places], 1.0, 1.0)
    solved = program.relax()
    assert solved is not None
    weights = np.maximum(solved.values[places], 0.0)
    prices = (np.abs(solved.row_duals[rows]) + MIN_PRICE) / capacity
    return float(solved.values[fullest]), weights / weights.sum(), prices / float(prices @ capacity)
