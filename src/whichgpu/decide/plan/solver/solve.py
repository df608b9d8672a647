"""Find the cheapest plan of a problem with a proven bound: compute a bound, choose columns, solve, tighten the bound."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import numpy as np
from msgspec.structs import replace

from whichgpu.base.parallel.process_pool import threads
from whichgpu.decide.plan.solver.all_columns import empty_solution, of_all_columns
from whichgpu.decide.plan.solver.bound import Bound, Costs, Fees, column_costs, initial_prices, raise_bound
from whichgpu.decide.plan.solver.capacity_test import CapacityTest
from whichgpu.decide.plan.solver.covering import cover
from whichgpu.decide.plan.solver.greedy import greedy_applies, greedy_start
from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem, Solution
from whichgpu.decide.plan.solver.program import Program, ProgramSolution, StartingPlan, servable
from whichgpu.decide.plan.solver.prune import dominated_pools, undominated
from whichgpu.decide.plan.solver.spare import solve_with_spare
from whichgpu.decide.plan.solver.whole_program import MAX_WHOLE, share_variables, solve_whole
from whichgpu.decide.plan.solver.with_workers import solve_with_workers

MAX_RELAXED = 60_000  # The linear relaxation of all columns is solved if it has at most this many variables.
MIN_USED = 1e-6  # Fewer replicas of a column in the linear relaxation count as none.
MAX_SMALL = 2000  # Up to this many share variables, every column goes into the program.
MAX_THREADS = 4  # At most this many load levels are solved at the same time.
MAX_JOINT = 10_000  # With more share variables, tied load levels are first solved one by one.
LEVELS_TIME = 0.75  # Share of the time in which the levels are solved one by one.
MAX_SHARES, MIN_SHARES = 12_000, 4  # Shares of buckets in a program of some columns, and columns that each bucket may use.
FIRST_COLUMNS, MAX_COLUMNS = 24, 72  # Columns in the first program, and in the last.
MAX_SMALL_FLEET = 10  # Fleets of more replicas are not searched by machine numbers: their gap is smaller without that.
Progress = Callable[[float], None]  # The argument is the share of the work done.


def solve(problem: Problem, seconds: float = 20.0, gap: float = 0.005, progress: Progress | None = None) -> Solution | None:
    """Return the best plan found in `seconds` with its cost bound; None if there is none, as when no replica serves a bucket."""
    start = monotonic()
    if not servable(problem).all():
        return None
    progress = progress or (lambda _: None)
    if problem.spare:
        return solve_with_spare(problem, seconds, gap, solve, progress)
    if problem.workers is not None:
        return solve_with_workers(problem, seconds, gap, solve, progress)
    free = undominated(problem) & ~dominated_pools(problem)[problem.pool_of]
    if problem.levels > 1 and _levels_independent(problem, free):
        return _by_level(problem, seconds, gap, progress)
    width = int((problem.demand > 0).sum()) * (1 if problem.late is None else 2)
    everything = np.flatnonzero(free)
    if len(everything) * width <= MAX_SMALL or problem.slices is not None:
        solved = Program(problem, everything).solve(seconds, gap)
        progress(1.0)
        return None if solved is None else of_all_columns(problem, everything, solved, solved.bound, monotonic() - start)
    tied = problem.levels > 1 and len(everything) * width > MAX_JOINT
    if tied and share_variables(problem, everything) <= MAX_WHOLE:
        result = solve_whole(problem, everything, seconds, gap)
        progress(1.0)
        return None if result is None else of_all_columns(problem, everything, *result, monotonic() - start)
    if tied:
        joined = _join_levels(problem, seconds, gap, progress)
        if joined is not None:
            return joined
    return _Search(problem, free, seconds, gap, progress, start).run()


def _levels_independent(problem: Problem, free: Bools) -> bool:
    """Return whether no commitment, job, current fleet or budget ties one load level to another."""
    pools = {int(p) for p in problem.pool_of[free]}
    tied = any(option.committed for p in pools for option in problem.pools[p].options)
    return not (tied or problem.jobs or problem.current is not None or problem.budget is not None)


def _by_level(problem: Problem, seconds: float, gap: float, progress: Progress) -> Solution | None:
    """Return a plan made by solving each load level (hours of similar traffic) as a problem of its own."""
    count = min(problem.levels, threads(), MAX_THREADS)
    done: list[int] = []

    def solve_level(level: int) -> Solution | None:
        losses = tuple((0, j) for at, j in problem.losses if at == level)
        demand, hours = problem.demand[level : level + 1], problem.hours[level : level + 1]
        part = replace(problem, demand=demand, hours=hours, losses=losses)
        one = solve(part, seconds * count / problem.levels, gap) if (part.demand > 0).any() else empty_solution(part)
        done.append(level)
        progress(len(done) / problem.levels)
        return one

    with ThreadPoolExecutor(count) as workers:  # HiGHS runs outside Python's lock, so the levels are solved at the same time.
        solutions = list(workers.map(solve_level, range(problem.levels)))
    parts = [one for one in solutions if one is not None]
    if len(parts) < problem.levels:
        return None
    return Solution(
        cost=sum(one.cost for one in parts),
        bound=sum(one.bound for one in parts),
        counts=np.concatenate([one.counts for one in parts]),
        shares=np.concatenate([one.shares for one in parts]),
        machines={(level, p, w): n for level, one in enumerate(parts) for (_, p, w), n in one.machines.items()},
        jobs=(),
        late=None if problem.late is None else np.concatenate([one.late for one in parts if one.late is not None]),
        program_columns=max(one.program_columns for one in parts),
        seconds=sum(one.seconds for one in parts),
    )


def _join_levels(problem: Problem, seconds: float, gap: float, progress: Progress) -> Solution | None:
    """Return a plan of a large problem whose load levels are tied by commitments, jobs, changes or a budget; None if not found.

    Each level is solved by itself, as if a committed machine could be rented for its hours alone. The sum of these costs is a
    lower bound. A program of the columns that these plans use, which starts from them, then obeys what ties the levels.
    """
    start = monotonic()
    pools = tuple(
        replace(pool, options=tuple(replace(option, committed=False) for option in pool.options)) for pool in problem.pools
    )
    apart = replace(problem, pools=pools, jobs=(), current=None, budget=None)
    parts = _by_level(apart, LEVELS_TIME * seconds, gap / 2, progress)
    if parts is None:
        return None
    limited = np.array([any(np.isfinite(one.limit) for one in pool.options) for pool in problem.pools])
    used = np.flatnonzero((parts.counts.sum(axis=0) > 0) | limited[problem.pool_of])
    initial = StartingPlan(parts.counts, parts.machines)
    solved = Program(problem, used).solve(max(0.5, seconds - (monotonic() - start)), gap / 2, initial)
    if solved is None:
        return None
    bound = parts.bound + sum(_min_job_cost(problem, k) for k in range(len(problem.jobs)))
    return of_all_columns(problem, used, solved, bound, monotonic() - start)


class _Search:
    """The search for a cheap fleet plan: programs over a few columns (models on machines) at a time, a cost bound over all."""

    def __init__(self, problem: Problem, free: Bools, seconds: float, gap: float, progress: Progress, start: float) -> None:
        self.problem, self.seconds, self.gap, self.progress, self.start = problem, seconds, gap, progress, start
        self.loads = problem.loads()
        self.free = free
        self.job_cost = sum(_min_job_cost(problem, k) for k in range(len(problem.jobs)))
        self.greedy = False
        self.large = int(np.isfinite(self.loads[:, free]).sum()) > MAX_RELAXED
        self.best: tuple[Ints, ProgramSolution] | None = None
        self.bound = -np.inf

    def run(self) -> Solution | None:
        if self.large:
            self._by_bucket()
        else:
            self._relax_all()
        if self.best is None:
            return self._last()
        return of_all_columns(self.problem, *self.best, min(self.bound, self.best[1].cost), monotonic() - self.start)

    def _relax_all(self) -> None:
        """Search by the linear relaxation over all kinds of replica (columns), then programs of those it uses, then of all."""
        everything = np.flatnonzero(self.free)
        whole = Program(self.problem, everything)
        relaxed = whole.relaxed(self._left(0.3))
        if relaxed is None:
            return
        self.bound = relaxed.cost
        self.progress(0.2)
        self.greedy = greedy_applies(self.problem)
        used = everything[relaxed.used > MIN_USED]
        self._try(used, self._left(0.4))
        self.progress(0.5)
        cost = column_costs(self.problem, relaxed.fees)
        bound = raise_bound(self.problem, cost, self.loads, self._target(relaxed.prices, cost), self._left(0.2), relaxed.prices)
        self.bound = max(self.bound, bound.value + self.job_cost)
        if not self._cover(bound, cost, 0.5):
            self._begin(bound.prices, cost, 0.1)
        if self._close_enough(self.bound):
            return
        chosen = np.union1d(used, self._promising(bound, used)[:MAX_COLUMNS])
        self._prove(bound, chosen, self._try(chosen, self._left(0.4)))
        self.progress(0.8)
        if not self._close_enough(self.bound) and len(chosen) < len(everything):
            solved = self._try(everything, self._left(1.0))
            self.bound = max(self.bound, solved.bound if solved else -np.inf)

    def _by_bucket(self) -> None:
        """Search with the cheapest kinds of replica per request bucket, then with those that the bound cannot exclude."""
        problem = self.problem
        plain = column_costs(problem)
        prices = initial_prices(problem, self.loads, plain)
        chosen = self._first(prices, plain)
        self.greedy = greedy_applies(problem)
        # Without limits nothing has a fee, and the bound's prices need no relaxation to start from.
        relaxed = None if self.greedy and problem.late is None else self._program(chosen).relaxed(self._left(0.3))
        fees = relaxed.fees if relaxed else Fees()
        cost = column_costs(problem, fees)
        limited = bool(fees.options or fees.quotas or fees.late)
        if relaxed is not None and limited:
            prices = relaxed.prices
        self.progress(0.1)
        if not self._begin(prices, cost, 0.15):
            self._try(chosen, min(self._left(0.25), 6.0))
        self.progress(0.3)
        for share in (0.45, 1.0):
            bound = raise_bound(problem, cost, self.loads, self._target(prices, cost), self._left(0.35), prices)
            prices = bound.prices
            self.bound = max(self.bound, bound.value + self.job_cost)
            if not self._cover(bound, cost, 0.9):
                self._begin(prices, cost, 0.2)
            if self._close_enough(self.bound):
                break
            chosen = self._promising(bound, chosen)
            solved = self._try(chosen, self._left(share))
            self._prove(bound, chosen, solved)
            self.progress(0.3 + 0.7 * share)
            if self._close_enough(self.bound):
                break

    def _begin(self, prices: Floats, cost: Costs, share: float) -> bool:
        """Look for a greedy plan in a `share` of the time left; return whether there is one."""
        if not self.greedy:
            return False
        problem, test = self.problem, CapacityTest(self.problem)
        each = np.minimum(cost.hourly[0], cost.committed)
        counts = greedy_start(problem, self.loads[0], prices[0], each, self.free, test, monotonic() + self._left(share))
        return counts is not None and self._adopt(counts, test)

    def _cover(self, bound: Bound, cost: Costs, share: float) -> bool:
        """Improve plan and bound of a small fleet by the program of counts in a `share` of the time left; return if tried."""
        if not self.greedy or self.best is None or self.best[1].counts.sum() > MAX_SMALL_FLEET:
            return False
        test = CapacityTest(self.problem)
        end = monotonic() + self._left(share)
        covering = cover(self.problem, cost, self.free, bound, self.best[1].cost, test, self.gap, end)
        self.bound = max(self.bound, covering.bound)
        if covering.counts is not None:
            self._adopt(covering.counts, test)
        return True

    def _adopt(self, counts: Ints, test: CapacityTest) -> bool:
        """Take replicas of each kind (column) as the best plan if they cost less; return whether they serve the load."""
        problem = self.problem
        machines: dict[tuple[int, int, int], int] = {}
        total = 0.0
        for j in np.flatnonzero(counts).tolist():
            p = int(problem.pool_of[j])
            prices_here = [one.price * (1.0 if one.committed else float(problem.hours[0])) for one in problem.pools[p].options]
            best = int(np.argmin(prices_here))
            machines[0, p, best] = machines.get((0, p, best), 0) + int(counts[j])
            total += prices_here[best] * int(counts[j])
        used, items = np.flatnonzero(counts), test.shares(counts)
        if items is None or (self.best is not None and self.best[1].cost <= total):
            return items is not None
        width = problem.demand.shape[1]
        late = None if problem.late is None else np.zeros((1, len(used), width))
        if late is not None and items.shape[1] > width:
            late[0] = items[used, width:]
        shares = items[used, :width] if late is None else items[used, :width] + late[0]
        shares[:, problem.demand[0] <= 0] = 0.0
        self.best = used, ProgramSolution(total, -np.inf, counts[None, used], shares[None], machines, (), late=late)
        return True

    def _left(self, share: float) -> float:
        """Return the given share of the search time left, in seconds, at least 0.5."""
        return max(0.5, (self.seconds - (monotonic() - self.start)) * share)

    def _first(self, prices: Floats, cost: Costs) -> Ints:
        """Return kinds of replica that are cheapest for some request bucket, costliest first, and some on limited machines."""
        problem = self.problem
        each = np.minimum(cost.hourly, cost.committed[None, :])
        weight, width = np.zeros(len(problem.columns)), problem.demand.shape[1]
        for level in range(problem.levels):
            with np.errstate(invalid="ignore"):
                bill = np.where(np.isfinite(self.loads[level]), self.loads[level] * each[level][:, None], np.inf)
            bill[~self.free] = np.inf
            for b in np.flatnonzero(np.resize(problem.demand[level] > 0, bill.shape[1])).tolist():
                ranked = np.argsort(bill[:, b], kind="stable")[:3]
                for place, j in enumerate(ranked.tolist()):
                    if np.isfinite(bill[j, b]):
                        weight[j] += prices[level, b % width] / (1 + 2 * place)
        order = np.argsort(-weight, kind="stable")
        chosen = order[: min(FIRST_COLUMNS, int((weight > 0).sum()))].tolist()
        chosen += [j for j in self._limited() if j not in set(chosen)][:FIRST_COLUMNS]
        rates = problem.best_rates
        missing = (problem.demand > 0).any(axis=0) & ~(rates[chosen] > 0).any(axis=0)
        for b in np.flatnonzero(missing).tolist():  # Every bucket gets at least one column that can serve it.
            chosen.append(int(np.argmax(np.where(self.free, rates[:, b] / np.maximum(each[0], 1e-12), 0.0))))
        return np.unique(np.array(chosen, dtype=np.int64))

    def _limited(self) -> list[int]:
        pools = self.problem.pools
        return [
            j
            for j, p in enumerate(self.problem.pool_of.tolist())
            if any(np.isfinite(option.limit) for option in pools[p].options)
        ]

    def _try(self, chosen: Ints, seconds: float, initial: StartingPlan | None = None) -> ProgramSolution | None:
        initial = initial or self._best_as_start(chosen)
        solved = self._program(chosen).solve(seconds, self.gap, initial)
        if solved is not None and (self.best is None or solved.cost < self.best[1].cost):
            self.best = chosen, solved
        return solved

    def _program(self, chosen: Ints) -> Program:
        """Return the program of some kinds of replica; of very many shares, those on the cheapest kinds for each bucket.

        Shares on limited machines and those of the best plan are kept as well.
        """
        loads = self.loads[:, chosen]
        if not self.large or int(np.isfinite(loads).sum()) <= MAX_SHARES:
            return Program(self.problem, chosen)
        bill = loads * column_costs(self.problem).hourly[:, chosen, None]
        per_bucket = min(len(chosen), max(MIN_SHARES, MAX_SHARES // (loads.shape[0] * loads.shape[2])))
        shares = bill <= np.partition(bill, per_bucket - 1, axis=1)[:, per_bucket - 1 : per_bucket]
        shares[:, np.isin(chosen, self._limited())] = True
        if self.best is not None:
            columns, solved = self.best
            width = self.problem.demand.shape[1]
            for place, j in enumerate(chosen.tolist()):
                for at in np.flatnonzero(columns == j).tolist():
                    shares[:, place] |= np.tile(solved.shares[:, at] > 0, loads.shape[2] // width)
        return Program(self.problem, chosen, shares)

    def _best_as_start(self, chosen: Ints) -> StartingPlan | None:
        """Return the best plan so far to start from; None if there is none or it uses kinds of replica not in `chosen`."""
        if self.best is None:
            return None
        mine, solved = self.best
        counts = np.zeros((self.problem.levels, len(self.problem.columns)), dtype=np.int64)
        counts[:, mine] = solved.counts
        expressible = set(np.flatnonzero(counts.any(axis=0)).tolist()) <= set(chosen.tolist())
        return StartingPlan(counts, solved.machines) if expressible else None

    def _target(self, prices: Floats, cost: Costs) -> float:
        """Return the cost per average hour, without jobs, that the bound should reach: the best plan's, else an estimate."""
        if self.best is not None:
            return self.best[1].cost - self.job_cost
        return 1.1 * (float(prices.sum()) - cost.rebate)

    def _close_enough(self, bound: float) -> bool:
        return self.best is not None and self.best[1].cost * (1 - self.gap) <= bound

    def _promising(self, bound: Bound, before: Ints) -> Ints:
        """Return kinds of replica that may be in a cheaper plan, those of the best plan, and some on limited machines."""
        ceiling = self.best[1].cost if self.best else np.inf
        improving = self.free & (bound.with_column + self.job_cost < ceiling * (1 - self.gap / 2))
        order = np.argsort(np.where(improving, bound.with_column, np.inf), kind="stable")
        promising = [j for j in order[:MAX_COLUMNS].tolist() if improving[j]]
        used = self.best[0][self.best[1].counts.sum(axis=0) > 0].tolist() if self.best else []
        return np.unique(np.array([*promising, *used, *self._limited()[:FIRST_COLUMNS]] or before.tolist(), dtype=np.int64))

    def _prove(self, bound: Bound, chosen: Ints, solved: ProgramSolution | None) -> None:
        """Raise the proven cost bound to the program's, or to that of plans with kinds of replica outside it if lower."""
        if solved is None:
            return
        left = self.free.copy()
        left[chosen] = False
        others = float(bound.with_column[left].min()) + self.job_cost if left.any() else np.inf
        self.bound = max(self.bound, min(solved.bound, others))

    def _last(self) -> Solution | None:
        """Solve the program of all kinds of replica in the time left, if smaller ones gave no plan; None if it gives none."""
        everything = np.flatnonzero(self.free)
        solved = self._program(everything).solve(self._left(1.0), self.gap)
        if solved is None:
            return None
        return of_all_columns(self.problem, everything, solved, max(self.bound, solved.bound), monotonic() - self.start)


def fewest_kinds(problem: Problem, solution: Solution, tolerance: float, seconds: float = 5.0) -> Solution:
    """Return a plan with fewer kinds of machines that costs at most the share `tolerance` more; else the plan given."""
    if tolerance <= 0 or problem.slices is not None or problem.spare or len(solution.machines) < 2:
        return solution
    kinds = len({(p, w) for _, p, w in solution.machines})
    if kinds < 2:
        return solution
    start = monotonic()
    pools = sorted({p for _, p, _ in solution.machines})
    chosen = np.flatnonzero(np.isin(problem.pool_of, pools))
    simpler = Program(problem, chosen).simplest(seconds, solution.cost * (1 + tolerance))
    if simpler is None or len({(p, w) for _, p, w in simpler.machines}) >= kinds:
        return solution
    return of_all_columns(problem, chosen, simpler, solution.bound, solution.seconds + monotonic() - start)


def _min_job_cost(problem: Problem, k: int) -> float:
    """Return the least cost of job `k` on any machine, spread over the planning horizon, per hour."""
    job = problem.jobs[k]
    costs = [
        min((option.price for option in pool.options if not option.committed), default=np.inf)
        * float(job.hours[p])
        / problem.horizon
        for p, pool in enumerate(problem.pools)
        if np.isfinite(job.hours[p])
    ]
    return min(costs, default=0.0)
