"""The mixed-integer program over some of a problem's columns."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from whichgpu.decide.plan.solver.bound import Fees
from whichgpu.decide.plan.solver.job_rows import job_rows
from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.loss_rows import loss_rows
from whichgpu.decide.plan.solver.problem import BOTH, DECODE, OWNED, PREFILL, Bools, Floats, Ints, Problem

MAX_MACHINES = 5000  # Most machines of one kind.
MIN_SHARE = 1e-9  # A smaller share of a bucket counts as none.
MAX_STRONG = 1500  # With at most this many share variables, each gets a row "no share without a replica".
KINDS_GAP = 0.2  # Relative gap at which the search for the fewest kinds of machines stops.


class ProgramSolution(msgspec.Struct, frozen=True):
    """A solved program over some kinds of replica, with the fields of `Solution`; `counts` and `shares` cover these only."""

    cost: float
    bound: float
    counts: Ints
    shares: Floats
    machines: dict[tuple[int, int, int], int]
    jobs: tuple[tuple[tuple[int, float], ...], ...]
    change: float = 0.0
    late: Floats | None = None


class StartingPlan(msgspec.Struct, frozen=True):
    """A plan to start from: replicas of all kinds [levels, columns], and machines by level, pool and price option."""

    counts: Ints
    machines: dict[tuple[int, int, int], int]


class LinearRelaxation(msgspec.Struct, frozen=True):
    """A solved linear relaxation: its cost, shadow prices of request buckets and limits, and replicas of each kind (column)."""

    cost: float
    prices: Floats
    fees: Fees
    used: Floats


class Program:
    """The mixed-integer program over some columns (models on kinds of machine), and indices of its variables and rows.

    With `shares` [levels, chosen columns, items] it has only these shares of buckets, and proves no bound.
    """

    def __init__(self, problem: Problem, chosen: Ints, shares: Bools | None = None) -> None:
        self.problem, self.chosen, self.all_shares = problem, chosen, shares is None
        self.rows = rows = LinearProgram()
        self.loads = problem.loads()[:, chosen, :]
        levels, hours = range(problem.levels), problem.hours
        self.pools = sorted({int(problem.pool_of[j]) for j in chosen} | self._job_pools())
        self.machines: dict[tuple[int, int, int], int] = {}
        for p in self.pools:
            for w, option in enumerate(problem.pools[p].options):
                limit = option.limit if np.isfinite(option.limit) else INFINITE
                if option.committed:
                    place = rows.variable(option.price, limit, whole=True)
                    self.machines |= {(level, p, w): place for level in levels}
                else:
                    for level in levels:
                        self.machines[level, p, w] = rows.variable(option.price * hours[level], limit, whole=True)
        self.counts = {(level, at): rows.variable(0.0, whole=True) for level in levels for at in range(len(chosen))}
        # Shares of buckets by level, column and bucket; with late service, bucket + `width` is the part served late.
        self.shares: dict[tuple[int, int, int], int] = {}
        self.width = problem.demand.shape[1]
        self.scale = float(problem.slices or 1)  # A share variable has this value if one column serves the bucket alone.
        for level in levels:
            able = np.isfinite(self.loads[level]) & np.resize(problem.demand[level] > 0, self.loads.shape[2])[None, :]
            for at, b in np.argwhere(able if shares is None else able & shares[level]).tolist():
                self.shares[level, at, b] = rows.variable(0.0, self.scale, whole=problem.slices is not None)
        self.changes: list[int] = []
        self._serve()
        self._link()
        self._place()
        loss_rows(problem, rows, chosen, self.counts, self.loads)
        self.job_shares = job_rows(problem, rows, self.machines, self.pools)
        self._limits()
        self.costs = list(rows.cost)

    def _job_pools(self) -> set[int]:
        return {p for job in self.problem.jobs for p in np.flatnonzero(np.isfinite(job.hours)).tolist()}

    def _serve(self) -> None:
        """Add rows that require every bucket of requests to be served, by replicas with enough time."""
        problem, rows = self.problem, self.rows
        # A bucket that no column here serves keeps its empty row, so that the program has no solution.
        by_bucket: dict[tuple[int, int], list[tuple[int, float]]] = {
            (level, b): [] for level, b in np.argwhere(problem.demand > 0).tolist()
        }
        by_column: dict[tuple[int, int], list[tuple[int, float]]] = {key: [] for key in self.counts}
        parts: dict[tuple[int, int, int], list[int]] = {}  # Share variables, on time and late, by level, column and bucket.
        decodes = problem.decodes_only[self.chosen]
        for (level, at, b), place in self.shares.items():
            if not decodes[at]:  # The decoding of a bucket is required by the rows of `_link`.
                by_bucket[level, b % self.width].append((place, 1.0))
            by_column[level, at].append((place, float(self.loads[level, at, b]) / self.scale))
            parts.setdefault((level, at, b % self.width), []).append(place)
        self.demand_rows = {key: rows.row(terms, self.scale, self.scale) for key, terms in by_bucket.items()}
        for key, terms in by_column.items():
            rows.row([*terms, (self.counts[key], -problem.room)], -INFINITE, 0.0)
        if len(self.shares) <= MAX_STRONG and problem.slices is None:
            for (level, at, b), places in parts.items():
                if self.loads[level, at, b :: self.width].min() < problem.room:
                    rows.row([*((place, 1.0) for place in places), (self.counts[level, at], -1.0)], -INFINITE, 0.0)
        limits = problem.late_limits()
        late: dict[tuple[int, int], list[tuple[int, float]]] = {key: [] for key in limits}
        for (level, _, b), place in self.shares.items():
            if problem.late is not None and b >= self.width:
                model = int(problem.late.model_of[b - self.width])
                late[level, model].append((place, float(problem.demand[level, b - self.width])))
        self.late_rows = {key: rows.row(late[key], -INFINITE, limit * self.scale) for key, (_, limit) in limits.items()}

    def _link(self) -> None:
        """Add rows that require decode workers for all that prefill workers serve of a bucket, and nothing else."""
        workers = self.problem.workers
        if workers is None:
            return
        flows: dict[tuple[int, int, int], list[tuple[int, float]]] = {}
        for (level, at, b), place in self.shares.items():
            j = int(self.chosen[at])
            if workers.roles[j] != BOTH:
                side = 1.0 if workers.roles[j] == DECODE else -1.0
                flows.setdefault((level, int(workers.links[j]), b % self.width), []).append((place, side))
        for terms in flows.values():
            self.rows.row(terms, 0.0, 0.0)

    def _place(self) -> None:
        """Add rows that require enough machines for the GPUs of the replicas, per load level and pool of machines."""
        for level in range(self.problem.levels):
            for p in self.pools:
                pool = self.problem.pools[p]
                terms = [(place, float(uses)) for place, uses in self._counts_on(level, p)]
                terms += [(self.machines[level, p, w], -float(pool.size)) for w in range(len(pool.options))]
                self.rows.row(terms, -INFINITE, 0.0)

    def _counts_on(self, level: int, p: int) -> Iterator[tuple[int, int]]:
        """Yield the count variable of each kind of replica on pool `p` of equal machines, and the GPUs of one replica."""
        for at, j in enumerate(self.chosen.tolist()):
            if self.problem.pool_of[j] == p:
                yield self.counts[level, at], int(self.problem.uses[j])

    def _gpus(self, level: int, pools: list[int]) -> list[tuple[int, float]]:
        """Return the terms (variable, factor) whose sum is the number of GPUs in some pools of machines at a load level."""
        of = self.problem.pools
        return [(self.machines[level, p, w], float(of[p].size)) for p in pools for w in range(len(of[p].options))]

    def _limits(self) -> None:
        """Add the rows that limit the plan by quotas, spot share and budget, and the cost of changing the current fleet."""
        problem, rows = self.problem, self.rows
        self.quota_rows: dict[tuple[int, int], int] = {}
        for q, quota in enumerate(problem.quotas):
            for level in range(problem.levels):
                if terms := self._gpus(level, [p for p in self.pools if p in quota.pools]):
                    self.quota_rows[level, q] = rows.row(terms, -INFINITE, quota.limit)
        for one in problem.account_limits:
            for level in range(problem.levels):
                terms = [(self.machines[level, p, w], size) for (p, w), size in one.sizes.items() if p in self.pools]
                if terms:
                    rows.row(terms, -INFINITE, one.limit)
        options = [option for p in self.pools for option in problem.pools[p].options]
        if problem.spot_share < 1 and any(option.term == "spot" for option in options):
            for level in range(problem.levels):
                self._spot(level)
        if problem.budget is not None:
            rows.row([(place, cost) for place, cost in enumerate(rows.cost) if cost], -INFINITE, problem.budget)
        if problem.current is not None:
            self._current_fleet()

    def _spot(self, level: int) -> None:
        """Add rows that limit the spot share of the rented GPUs that a load level's requests keep busy.

        Idle GPUs do not count. In a pool with machines of both kinds, requests go to those that are not spot first.
        """
        rows, limit = self.rows, self.problem.spot_share
        busy: dict[int, list[tuple[int, float]]] = {}
        for (at_level, at, b), place in self.shares.items():
            if at_level == level:
                j = int(self.chosen[at])
                gpus = float(self.problem.uses[j] * self.loads[level, at, b]) / (self.scale * self.problem.room)
                busy.setdefault(int(self.problem.pool_of[j]), []).append((place, gpus))
        sides = []
        for p, terms in busy.items():
            options, size = self.problem.pools[p].options, float(self.problem.pools[p].size)
            if any(option.term == OWNED for option in options):
                continue
            for is_spot in (True, False):
                machines = [self.machines[level, p, w] for w, one in enumerate(options) if (one.term == "spot") == is_spot]
                gpus_busy = rows.variable(0.0)
                rows.row([(gpus_busy, 1.0), *((place, -size) for place in machines)], -INFINITE, 0.0)
                terms.append((gpus_busy, -1.0))
                sides.append((gpus_busy, (1.0 if is_spot else 0.0) - limit))
            rows.row(terms, 0.0, 0.0)
        rows.row(sides, -INFINITE, 0.0)

    def _current_fleet(self) -> None:
        """Add the penalty for GPUs added to or removed from the current fleet at the busiest load level."""
        problem, rows, current = self.problem, self.rows, self.problem.current
        assert current is not None
        for gpu in sorted({problem.pools[p].gpu for p in self.pools} | set(current.gpus)):
            more, fewer = rows.variable(current.change_cost), rows.variable(current.change_cost)
            self.changes += [more, fewer]
            terms = self._gpus(problem.busiest, [p for p in self.pools if problem.pools[p].gpu == gpu])
            rows.row([*terms, (more, -1.0), (fewer, 1.0)], current.gpus.get(gpu, 0.0), current.gpus.get(gpu, 0.0))

    def solve(self, seconds: float, gap: float, initial: StartingPlan | None = None) -> ProgramSolution | None:
        """Return the cheapest plan found in `seconds`, starting from `initial` if given; None if no plan is found."""
        start = self._values_of(initial) if initial is not None else self._rounded(seconds / 2)
        solved = self.rows.solve(seconds, gap, start)
        return (
            None if solved is None else self._read(solved.values, solved.objective, solved.bound if self.all_shares else -np.inf)
        )

    def simplest(self, seconds: float, ceiling: float) -> ProgramSolution | None:
        """Return a plan with the fewest kinds of machines that costs at most `ceiling` per hour; None if none is found."""
        rows, costs = self.rows, list(self.costs)
        rows.row([(place, cost) for place, cost in enumerate(costs) if cost], -INFINITE, ceiling)
        rows.cost = [1e-3 * cost / max(ceiling, 1e-12) for cost in costs]
        kinds: dict[tuple[int, int], list[int]] = {}
        for (_, p, w), place in self.machines.items():
            kinds.setdefault((p, w), []).append(place)
        for places in kinds.values():
            used = rows.variable(1.0, 1.0, whole=True)
            costs.append(0.0)
            for place in dict.fromkeys(places):
                max_machines = min(rows.upper[place], ceiling / max(costs[place], 1e-9), MAX_MACHINES)
                rows.row([(place, 1.0), (used, -np.ceil(max_machines))], -INFINITE, 0.0)
        solved = rows.solve(seconds, KINDS_GAP)
        if solved is None:
            return None
        whole = np.array([round(value) if whole else value for value, whole in zip(solved.values, rows.whole, strict=True)])
        return self._read(solved.values, float(np.dot(whole, costs)), -np.inf)

    def _values_of(self, plan: StartingPlan) -> dict[int, float]:
        """Return the values of the program's variables that describe a plan, by variable index."""
        start = {place: float(plan.counts[level, int(self.chosen[at])]) for (level, at), place in self.counts.items()}
        for key, place in self.machines.items():
            start[place] = max(start.get(place, 0.0), float(plan.machines.get(key, 0)))
        return start

    def _rounded(self, seconds: float) -> dict[int, float]:
        """Return starting values of the variables: the relaxation's replicas rounded up, and enough machines for them."""
        relaxed = self.rows.relax(seconds)
        if relaxed is None or self.problem.slices is not None:
            return {}
        values = relaxed.values
        start = {place: float(np.ceil(values[place] - 1e-7)) for place in self.counts.values()}
        machines: dict[int, float] = {}
        for level in range(self.problem.levels):
            for p in self.pools:
                pool = self.problem.pools[p]
                gpus = sum(start[place] * float(uses) for place, uses in self._counts_on(level, p))
                missing = np.ceil(gpus / pool.size - 1e-7)
                places = [self.machines[level, p, w] for w in range(len(pool.options))]
                for place in sorted(places, key=lambda one: -float(values[one])):  # Options the relaxation uses most come first.
                    machines.setdefault(place, min(float(np.ceil(values[place] - 1e-7)), max(missing, 0.0)))
                    missing -= machines[place]
                if missing > 0:
                    unlimited = min(places, key=lambda one: (self.rows.upper[one] < MAX_MACHINES, self.rows.cost[one]))
                    machines[unlimited] += missing
        return start | machines

    def relaxed(self, seconds: float) -> LinearRelaxation | None:
        """Return the solved linear relaxation (fractions of replicas allowed); None if it is infeasible."""
        relaxed = self.rows.relax(seconds)
        if relaxed is None:
            return None
        duals, reduced = relaxed.row_duals, relaxed.variable_duals
        prices = np.zeros_like(self.problem.demand)
        for (level, b), row in self.demand_rows.items():
            prices[level, b] = max(0.0, duals[row] * self.scale)
        options = {}
        for (level, p, w), place in self.machines.items():
            option = self.problem.pools[p].options[w]
            if np.isfinite(option.limit) and reduced[place] < 0:
                options[-1 if option.committed else level, p, w] = -float(reduced[place])
        quotas = {key: -float(duals[row]) for key, row in self.quota_rows.items() if duals[row] < 0}
        late = {key: -float(duals[row]) * self.scale for key, row in self.late_rows.items() if duals[row] < 0}
        used = np.zeros(len(self.chosen))
        for (_, at), place in self.counts.items():
            used[at] = max(used[at], relaxed.values[place])
        return LinearRelaxation(relaxed.objective, prices, Fees(options, quotas, late), used)

    def _read(self, values: Floats, cost: float, bound: float) -> ProgramSolution:
        problem = self.problem
        counts = np.zeros((problem.levels, len(self.chosen)), dtype=np.int64)
        for (level, at), place in self.counts.items():
            counts[level, at] = round(values[place])
        parts = np.zeros(self.loads.shape)
        for key, place in self.shares.items():
            parts[key] = values[place] / self.scale if values[place] > MIN_SHARE else 0.0
        late = parts[:, :, self.width :] if problem.late is not None else None
        shares = parts[:, :, : self.width] + (0.0 if late is None else late)
        machines = {key: round(values[place]) for key, place in self.machines.items() if values[place] > 0.5}
        jobs = tuple(
            tuple((p, float(values[place])) for (of, p), place in self.job_shares.items() if of == k and values[place] > 1e-6)
            for k in range(len(problem.jobs))
        )
        change = sum(float(values[place]) * self.costs[place] for place in self.changes)
        return ProgramSolution(cost, bound, counts, shares, machines, jobs, change, late)


def servable(problem: Problem) -> Bools:
    """Return a mask of the buckets of requests that some kind of replica can serve or that have no demand.

    Buckets that can only be served late count as not servable if they have more requests than may be late.
    """
    on_time: Bools = _reached(problem, problem.rates) | np.all(problem.demand <= 0, axis=0)
    if problem.late is None:
        return on_time
    served: Bools = on_time | _reached(problem, problem.best_rates)
    for (_, model), (demand, limit) in problem.late_limits().items():
        only_late = served & ~on_time & (problem.late.model_of == model)
        if demand[only_late].sum() > limit * (1 + 1e-9):
            served &= ~only_late
    return served


def _reached(problem: Problem, rates: Floats) -> Bools:
    """Return a mask of the buckets that some aggregated column serves at these rates, or a prefill and a linked decode worker."""
    served: Bools = np.any(rates[problem.aggregated] > 0, axis=0)
    workers = problem.workers
    if workers is None:
        return served
    for link in np.unique(workers.links[workers.links >= 0]).tolist():
        mine = workers.links == link
        both = [np.any(rates[mine & (workers.roles == role)] > 0, axis=0) for role in (PREFILL, DECODE)]
        served = served | (both[0] & both[1])
    return served
