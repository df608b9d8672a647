"""The cheapest numbers of machines, without shares of buckets: a covering program whose rows every plan fulfils.

At any prices of the buckets, a plan's replicas can together earn the sum of the prices, each column at most what its time filled
with the buckets that pay best for it earns. Rows for the prices that the bound visited leave few plans of a few machines, where
the bound alone leaves a gap because machines are whole. Numbers of machines that cannot serve the load give one more row
(Benders decomposition); asked for as much more as they lacked, the program usually gives numbers that can.
"""

from __future__ import annotations

from itertools import pairwise
from time import monotonic

import msgspec
import numpy as np

from whichgpu.decide.plan.solver.bound import Bound, Costs, earnings
from whichgpu.decide.plan.solver.capacity_test import CapacityTest, Shortage
from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem

MAX_STEPS = 6  # Each replica of a column has its own earnings if a plan has at most this many; else all earn the first's.
MAX_CANDIDATES = 400  # With more columns than this the program is not solved.
ATTEMPTS = 4  # Programs solved for numbers that serve the load before the bound is raised further.
PRECISION = 1e-3  # Precision of the utilisation of replicas that cannot serve the load.
TOLERANCE = 1e-7  # Share of the earnings required that a plan may lack by rounding.


class Covering(msgspec.Struct, frozen=True):
    """Replicas of each column that serve the load for less than a known plan (None if not found), and a lower bound."""

    counts: Ints | None
    bound: float


class _Rows:
    """The program of the columns that plans below a cost may have, and the rows found so far."""

    def __init__(self, problem: Problem, each: Floats, columns: Ints, ceiling: float) -> None:
        self.columns, self.each, self.room = columns, each[columns], problem.room
        self.loads = problem.loads()[0][columns]
        limits = np.floor(ceiling / self.each)
        self.limits = np.where(limits <= MAX_STEPS, 1.0, limits)  # of one variable
        self.steps = np.where(limits <= MAX_STEPS, limits, 1).astype(np.int64)  # variables of each column
        self.rows: list[Floats] = []  # earnings of the replicas of each column as shares of what is required

    def add(self, prices: Floats, late_fees: Floats, rebate: float) -> None:
        """Add the row of some bucket prices: all replicas must be able to earn their sum less the late fees not paid."""
        required = float(prices.sum()) - rebate
        if required > 0:
            self.rows.append(earnings(self.loads, prices, late_fees, self.room, MAX_STEPS) / required)

    def solve(self, required: float, ceiling: float, seconds: float) -> tuple[Ints | None, float]:
        """Return the cheapest numbers of replicas that earn `required` times what is asked by every row, and a lower bound."""
        program = LinearProgram()
        places = [
            [program.variable(cost, limit, whole=True) for _ in range(steps)]
            for cost, limit, steps in zip(self.each.tolist(), self.limits.tolist(), self.steps.tolist(), strict=True)
        ]
        for mine in places:
            for first, second in pairwise(mine):
                program.row([(first, 1.0), (second, -1.0)], 0.0, INFINITE)
        for row in self.rows:
            terms = [
                (place, min(earning, required))
                for mine, column in zip(places, row.tolist(), strict=True)
                for place, earning in zip(mine, column, strict=False)
                if earning > 0
            ]
            program.row(terms, required * (1.0 - TOLERANCE), INFINITE)
        solved, bound = program.solve_below(ceiling, seconds)
        counts = None if solved is None else np.array([round(float(solved.values[mine].sum())) for mine in places])
        return counts, bound


def cover(
    problem: Problem, cost: Costs, free: Bools, bound: Bound, best_cost: float, test: CapacityTest, gap: float, end: float
) -> Covering:
    """Return a plan cheaper than `best_cost` and a bound, within the share `gap` of each other if `end` leaves the time.

    It is for problems of one load level whose machines are unlimited and filled by one replica each (`greedy_applies`).
    """
    each = np.minimum(cost.hourly[0], cost.committed)
    ceiling = best_cost * (1.0 - gap)
    columns = np.flatnonzero(free & (bound.with_column < ceiling))  # No cheaper plan has a replica of any other column.
    if not 0 < len(columns) <= MAX_CANDIDATES:
        return Covering(None, ceiling if not len(columns) else bound.value)
    rows = _Rows(problem, each, columns, ceiling)
    for prices in bound.visited:
        rows.add(prices[0], cost.late_fees[0], cost.rebate)
    cheapest: Ints | None = None
    proven, last = bound.value, np.zeros(0, dtype=np.int64)
    while proven < best_cost * (1.0 - gap) and monotonic() < end:
        replicas, lowest = rows.solve(1.0, best_cost * (1.0 - gap), end - monotonic())
        proven = max(proven, min(lowest, ceiling))
        if replicas is None or np.array_equal(replicas, last):  # Rounding may leave numbers that just fail in the program.
            break
        last = replicas
        counts = _serving(problem, rows, replicas, best_cost, proven, test, end)
        if counts is not None and float(counts @ each) < best_cost:
            cheapest, best_cost = counts, float(counts @ each)
    return Covering(cheapest, proven)


def _serving(
    problem: Problem, rows: _Rows, replicas: Ints, best_cost: float, proven: float, test: CapacityTest, end: float
) -> Ints | None:
    """Return numbers of replicas that serve the load and cost less than `best_cost`, from some that may not; None if not found.

    The program is asked for more earnings, by what is lacking, but not for so much that no cheaper plan is left.
    """
    required, ceiling = 1.0, float(np.sqrt(best_cost / proven))
    for _ in range(ATTEMPTS):
        counts = _in_problem(problem, rows.columns, replicas)
        utilisation = _lacking(test, counts, rows)
        if utilisation is None:
            return counts
        required = min(required * utilisation, max(ceiling, required))
        more, _ = rows.solve(required, best_cost, end - monotonic())
        if more is None:
            return None
        replicas = more
    return None


def _in_problem(problem: Problem, columns: Ints, replicas: Ints) -> Ints:
    counts = np.zeros(len(problem.columns), dtype=np.int64)
    counts[columns] = replicas
    return counts


def _lacking(test: CapacityTest, counts: Ints, rows: _Rows) -> float | None:
    """Return the utilisation of replicas that cannot serve the load, after adding the row that says so; None if they can."""
    outcome = test.outcome(counts, PRECISION)
    if not isinstance(outcome, Shortage):
        return None
    rows.add(outcome.prices, outcome.late_fees, outcome.rebate)
    return max(outcome.utilisation, 1.0)
