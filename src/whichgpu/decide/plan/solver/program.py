"""The mixed-integer program of some of a problem's columns, on HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whichgpu.decide.plan.solver.bound import OWNED, Fees
from whichgpu.decide.plan.solver.job_rows import job_rows
from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem

INFINITE = 1e30
MANY = 5000  # machines of a kind
WHOLE_SHARE = 1e-9  # a share below it is none
STRONG = 4000  # pairs of column and bucket up to which "no share without a copy" is said for each


@dataclass(frozen=True, slots=True)
class ProgramSolution:
    """What a program came to; `copies` and `shares` are of the chosen columns."""

    cost: float
    bound: float
    copies: Ints
    shares: Floats
    machines: dict[tuple[int, int, int], int]
    jobs: tuple[tuple[tuple[int, float], ...], ...]
    spent_jobs: float
    optimal: bool
    change: float = 0.0


@dataclass(frozen=True, slots=True)
class StartingPlan:
    """A plan to begin with: copies of every column of the problem, [levels, columns], and machines by level, pool and way."""

    copies: Ints
    machines: dict[tuple[int, int, int], int]


@dataclass(frozen=True, slots=True)
class LinearRelaxation:
    """The relaxation: its cost, what each bucket costs, what limits are worth, and how many copies of each column it uses."""

    cost: float
    prices: Floats
    fees: Fees
    used: Floats


class LinearProgram:
    """A program put together row by row."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.whole: list[bool] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.starts: list[int] = [0]
        self.places: list[int] = []
        self.values: list[float] = []

    def variable(self, cost: float, upper: float = INFINITE, whole: bool = False) -> int:
        """A variable from 0 to `upper`."""
        self.cost.append(cost)
        self.upper.append(min(upper, INFINITE))
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], low: float, high: float) -> int:
        """A row between two ends."""
        for place, value in terms:
            self.places.append(place)
            self.values.append(value)
        self.starts.append(len(self.places))
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def model(self, relaxed: bool) -> Any:
        """As HiGHS takes it."""
        import highspy

        told = highspy.HighsLp()
        told.num_col_, told.num_row_ = len(self.cost), len(self.low)
        told.col_cost_ = np.array(self.cost)
        told.col_lower_, told.col_upper_ = np.zeros(len(self.cost)), np.array(self.upper)
        told.row_lower_, told.row_upper_ = np.array(self.low), np.array(self.high)
        told.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        told.a_matrix_.start_ = np.array(self.starts, dtype=np.int32)
        told.a_matrix_.index_ = np.array(self.places, dtype=np.int32)
        told.a_matrix_.value_ = np.array(self.values)
        if not relaxed:
            kinds = highspy.HighsVarType
            told.integrality_ = [kinds.kInteger if one else kinds.kContinuous for one in self.whole]
        return told


class Program:
    """The variables of chosen columns and where each is."""

    def __init__(self, problem: Problem, chosen: Ints) -> None:
        self.problem, self.chosen = problem, chosen
        self.rows = rows = LinearProgram()
        self.loads = problem.loads()[:, chosen, :]
        load_levels, hours = range(problem.levels), problem.hours
        pools = sorted({int(problem.pool_of[j]) for j in chosen} | self._job_pools())
        self.machines: dict[tuple[int, int, int], int] = {}
        for p in pools:
            for w, option in enumerate(problem.pools[p].options):
                most = option.most if np.isfinite(option.most) else INFINITE
                if option.committed:
                    place = rows.variable(option.price, most, whole=True)
                    self.machines |= {(level, p, w): place for level in load_levels}
                else:
                    for level in load_levels:
                        self.machines[level, p, w] = rows.variable(option.price * hours[level], most, whole=True)
        self.copies = {(level, at): rows.variable(0.0, whole=True) for level in load_levels for at in range(len(chosen))}
        self.shares: dict[tuple[int, int, int], int] = {}
        scale = float(problem.slices or 1)
        for level in load_levels:
            able = np.isfinite(self.loads[level]) & (problem.demand[level] > 0)[None, :]
            for at, b in np.argwhere(able).tolist():
                self.shares[level, at, b] = rows.variable(0.0, scale, whole=problem.slices is not None)
        self.changes: list[int] = []
        self._serve(scale)
        self._stand(pools)
        self.job_shares = job_rows(problem, rows, self.machines, pools)
        self._limits(pools)
        self.spent = list(rows.cost)

    def _job_pools(self) -> set[int]:
        return {p for job in self.problem.jobs for p in np.flatnonzero(np.isfinite(job.hours)).tolist()}

    def _serve(self, scale: float) -> None:
        """Every bucket is served, by copies that have the time."""
        problem, rows = self.problem, self.rows
        # A bucket that none of these columns serves keeps its row, empty: the program then has no solution.
        by_bucket: dict[tuple[int, int], list[tuple[int, float]]] = {
            (level, b): [] for level, b in np.argwhere(problem.demand > 0).tolist()
        }
        by_copy: dict[tuple[int, int], list[tuple[int, float]]] = {key: [] for key in self.copies}
        for (level, at, b), place in self.shares.items():
            by_bucket[level, b].append((place, 1.0))
            by_copy[level, at].append((place, float(self.loads[level, at, b]) / scale))
        self.demand_rows = {key: rows.row(terms, scale, scale) for key, terms in by_bucket.items()}
        for key, terms in by_copy.items():
            rows.row([*terms, (self.copies[key], -problem.room)], -INFINITE, 0.0)
        if len(self.shares) <= STRONG and problem.slices is None:
            for (level, at, b), place in self.shares.items():
                if self.loads[level, at, b] < problem.room:
                    rows.row([(place, 1.0), (self.copies[level, at], -1.0)], -INFINITE, 0.0)

    def _stand(self, pools: list[int]) -> None:
        """Copies stand on machines."""
        problem, rows = self.problem, self.rows
        self.pool_rows: dict[tuple[int, int], int] = {}
        for level in range(problem.levels):
            for p in pools:
                pool = problem.pools[p]
                terms = [
                    (self.copies[level, at], float(problem.uses[j]))
                    for at, j in enumerate(self.chosen.tolist())
                    if problem.pool_of[j] == p
                ]
                terms += [(self.machines[level, p, w], -float(pool.size)) for w in range(len(pool.options))]
                self.pool_rows[level, p] = rows.row(terms, -INFINITE, 0.0)

    def _limits(self, pools: list[int]) -> None:
        problem, rows = self.problem, self.rows
        self.quota_rows: dict[tuple[int, int], int] = {}
        for q, quota in enumerate(problem.quotas):
            for level in range(problem.levels):
                terms = [
                    (self.machines[level, p, w], float(problem.pools[p].size))
                    for p in pools
                    if p in quota.pools
                    for w in range(len(problem.pools[p].options))
                ]
                if terms:
                    self.quota_rows[level, q] = rows.row(terms, -INFINITE, quota.most)
        self.spot_rows = {level: self._spot(level, pools) for level in range(problem.levels)} if problem.spot_share < 1 else {}
        if problem.budget is not None:
            spent = [(place, cost) for place, cost in enumerate(rows.cost) if cost]
            rows.row(spent, -INFINITE, problem.budget)
        if problem.current is not None:
            self._stay(pools)

    def _spot(self, level: int, pools: list[int]) -> int:
        """Of what is rented, no more than so much is on spot terms."""
        terms = []
        for p in pools:
            pool = self.problem.pools[p]
            for w, option in enumerate(pool.options):
                if option.term != OWNED:
                    side = (1.0 if option.term == "spot" else 0.0) - self.problem.spot_share
                    terms.append((self.machines[level, p, w], pool.size * side))
        return self.rows.row(terms, -INFINITE, 0.0)

    def simplest(self, seconds: float, ceiling: float) -> ProgramSolution | None:
        """Of the plans that cost no more than so much, one with the fewest kinds of machines."""
        rows = self.rows
        column_costs = list(self.spent)
        rows.row([(place, cost) for place, cost in enumerate(column_costs) if cost], -INFINITE, ceiling)
        rows.cost = [1e-3 * cost / max(ceiling, 1e-12) for cost in column_costs]
        used: dict[tuple[int, int], list[int]] = {}
        for (_, p, w), place in self.machines.items():
            used.setdefault((p, w), []).append(place)
        for places in used.values():
            kind = rows.variable(1.0, 1.0, whole=True)
            column_costs.append(0.0)
            for place in dict.fromkeys(places):
                most = min(rows.upper[place], ceiling / max(column_costs[place], 1e-9), MANY)
                rows.row([(place, 1.0), (kind, -np.ceil(most))], -INFINITE, 0.0)
        engine = _engine(seconds)
        engine.setOptionValue("mip_rel_gap", 0.2)
        engine.passModel(rows.model(relaxed=False))
        engine.run()
        if engine.getInfo().primal_solution_status != 2:
            return None
        values = np.array(engine.getSolution().col_value)
        whole = np.array([round(value) if whole else value for value, whole in zip(values, rows.whole, strict=True)])
        return self._read(values, float(np.dot(whole, column_costs)), -np.inf, optimal=False)

    def _stay(self, pools: list[int]) -> None:
        """What is added to the fleet there is, or taken from it, costs something at the busiest level."""
        problem, rows, stay = self.problem, self.rows, self.problem.current
        assert stay is not None
        level = int(np.argmax(problem.demand.sum(axis=1)))
        for gpu in sorted({problem.pools[p].gpu for p in pools} | set(stay.gpus)):
            more, fewer = rows.variable(stay.change_cost), rows.variable(stay.change_cost)
            self.changes += [more, fewer]
            terms = [
                (self.machines[level, p, w], float(problem.pools[p].size))
                for p in pools
                if problem.pools[p].gpu == gpu
                for w in range(len(problem.pools[p].options))
            ]
            rows.row([*terms, (more, -1.0), (fewer, 1.0)], stay.gpus.get(gpu, 0.0), stay.gpus.get(gpu, 0.0))

    def solve(self, seconds: float, gap: float, known: StartingPlan | None = None) -> ProgramSolution | None:
        """The best mix; None where there is none. `known` is a plan to begin with."""
        engine = _engine(seconds)
        engine.setOptionValue("mip_rel_gap", gap)
        start = self._begun(known) if known is not None else self._rounded(seconds / 2)
        engine.passModel(self.rows.model(relaxed=False))
        if start:
            engine.setSolution(len(start), np.array(list(start), dtype=np.int32), np.array(list(start.values())))
        engine.run()
        info, solution = engine.getInfo(), engine.getSolution()
        if info.primal_solution_status != 2:
            return None
        values = np.array(solution.col_value)
        return self._read(
            values, info.objective_function_value, info.mip_dual_bound, str(engine.getModelStatus()).endswith("kOptimal")
        )

    def _begun(self, known: StartingPlan) -> dict[int, float]:
        """A known plan as values."""
        start = {place: float(known.copies[level, int(self.chosen[at])]) for (level, at), place in self.copies.items()}
        for key, place in self.machines.items():
            start[place] = max(start.get(place, 0.0), float(known.machines.get(key, 0)))
        return start

    def _rounded(self, seconds: float) -> dict[int, float]:
        """Whole numbers to begin with: the relaxation's copies rounded up, and machines enough for them."""
        told = run(self.rows, seconds)
        if told is None or self.problem.slices is not None:
            return {}
        values, _ = told
        start = {place: float(np.ceil(values[place] - 1e-7)) for place in self.copies.values()}
        held: dict[int, float] = {}
        for (level, p), _ in self.pool_rows.items():
            pool = self.problem.pools[p]
            wanted = sum(
                start[self.copies[level, at]] * float(self.problem.uses[j])
                for at, j in enumerate(self.chosen.tolist())
                if self.problem.pool_of[j] == p
            )
            missing = np.ceil(wanted / pool.size - 1e-7)
            places = [self.machines[level, p, w] for w in range(len(pool.options))]
            for place in sorted(places, key=lambda one: -float(values[one])):  # those the relaxation likes best first
                taken = held.get(place, min(float(np.ceil(values[place] - 1e-7)), max(missing, 0.0)))
                held[place] = taken
                missing -= taken
            if missing > 0:
                roomy = min(
                    places,
                    key=lambda one: (self.rows.upper[one] < MANY, self.rows.cost[one]),
                )
                held[roomy] += missing
        return start | held

    def relaxed(self, seconds: float) -> LinearRelaxation | None:
        """The relaxation; None where there is none."""
        engine = _engine(seconds)
        engine.passModel(self.rows.model(relaxed=True))
        engine.run()
        info, solution = engine.getInfo(), engine.getSolution()
        if info.primal_solution_status != 2:
            return None
        duals, reduced, values = (np.array(one) for one in (solution.row_dual, solution.col_dual, solution.col_value))
        prices = np.zeros_like(self.problem.demand)
        scale = float(self.problem.slices or 1)
        for (level, b), row in self.demand_rows.items():
            prices[level, b] = max(0.0, duals[row] * scale)
        options = {}
        for (level, p, w), place in self.machines.items():
            option = self.problem.pools[p].options[w]
            if np.isfinite(option.most) and reduced[place] < 0:
                options[-1 if option.committed else level, p, w] = -float(reduced[place])
        quotas = {key: -float(duals[row]) for key, row in self.quota_rows.items() if duals[row] < 0}
        used = np.zeros(len(self.chosen))
        for (_, at), place in self.copies.items():
            used[at] = max(used[at], values[place])
        spot = {level: -float(duals[row]) for level, row in self.spot_rows.items() if duals[row] < 0}
        return LinearRelaxation(float(info.objective_function_value), prices, Fees(options, quotas, spot), used)

    def _read(self, values: Floats, cost: float, bound: float, optimal: bool) -> ProgramSolution:
        problem, scale = self.problem, float(self.problem.slices or 1)
        copies = np.zeros((problem.levels, len(self.chosen)), dtype=np.int64)
        for (level, at), place in self.copies.items():
            copies[level, at] = round(values[place])
        shares = np.zeros((problem.levels, len(self.chosen), problem.demand.shape[1]))
        for key, place in self.shares.items():
            shares[key] = values[place] / scale if values[place] > WHOLE_SHARE else 0.0
        machines = {key: round(values[place]) for key, place in self.machines.items() if values[place] > 0.5}
        jobs = tuple(
            tuple((p, float(values[place])) for (of, p), place in self.job_shares.items() if of == k and values[place] > 1e-6)
            for k in range(len(problem.jobs))
        )
        spent = sum(float(values[place]) * self.spent[place] for place in self.job_shares.values())
        change = sum(float(values[place]) * self.spent[place] for place in self.changes)
        return ProgramSolution(float(cost), float(bound), copies, shares, machines, jobs, spent, optimal, change)


def _engine(seconds: float) -> Any:
    import highspy

    engine: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("time_limit", max(0.1, seconds))
    engine.setOptionValue("threads", 1)  # the same answer on every machine
    engine.setOptionValue("random_seed", 0)
    return engine


def run(rows: LinearProgram, seconds: float = 10.0) -> tuple[Floats, Floats] | None:
    """Values and duals of a program without whole numbers; None where there is none."""
    engine = _engine(seconds)
    engine.passModel(rows.model(relaxed=True))
    engine.run()
    if engine.getInfo().primal_solution_status != 2:
        return None
    solution = engine.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)


def servable(problem: Problem) -> Bools:
    """Which buckets some column can serve, or nobody asks for."""
    told: Bools = np.any(problem.rates > 0, axis=0) | np.all(problem.demand <= 0, axis=0)
    return told
