"""From a problem to the cheapest plan and the proof of how near it is: bound, choose columns, solve, bound again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import numpy as np

from whichgpu.decide.plan.solver.bound import Bound, Costs, Fees, column_costs, initial_prices, raise_bound
from whichgpu.decide.plan.solver.greedy import greedy_applies, greedy_start
from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem, Solution
from whichgpu.decide.plan.solver.program import Program, ProgramSolution, StartingPlan, servable
from whichgpu.decide.plan.solver.prune import dominated_pools, undominated

WHOLE = 60_000  # shares up to which the relaxation of all columns is solved
USED = 1e-6  # copies in the relaxation
SMALL = 2000  # shares of buckets up to which every column goes into the program
FIRST, MOST = 24, 72  # columns of the first program, and of the last
PROVEN = 0.03  # gap that is good enough to stop at
Told = Callable[[float], None]


def solve(problem: Problem, seconds: float = 20.0, gap: float = 0.005, progress: Told | None = None) -> Solution | None:
    """The best plan found in the time, with its bound; None where there is none, as where nothing serves some bucket."""
    start = monotonic()
    if not servable(problem).all():
        return None
    told = progress or (lambda _: None)
    free = undominated(problem) & ~dominated_pools(problem)[problem.pool_of]
    if problem.levels > 1 and _apart(problem, free):
        return _by_level(problem, seconds, gap, told)
    width = int((problem.demand > 0).sum())
    everything = np.flatnonzero(free)
    if len(everything) * width <= SMALL or problem.slices is not None:
        found = Program(problem, everything).solve(seconds, gap)
        told(1.0)
        return None if found is None else _whole(problem, everything, found, found.bound, monotonic() - start)
    return _Search(problem, free, seconds, gap, told, start).run()


def _apart(problem: Problem, free: Bools) -> bool:
    """Whether nothing ties one level of load to another."""
    pools = {int(p) for p in problem.pool_of[free]}
    tied = any(option.committed for p in pools for option in problem.pools[p].options)
    return not (tied or problem.jobs or problem.current is not None or problem.budget is not None)


def _by_level(problem: Problem, seconds: float, gap: float, told: Told) -> Solution | None:
    """Each level a problem of its own."""
    found = []
    for level in range(problem.levels):
        part = replace(problem, demand=problem.demand[level : level + 1], hours=problem.hours[level : level + 1])
        one = solve(part, seconds / problem.levels, gap) if (part.demand > 0).any() else _nothing(part)
        if one is None:
            return None
        told((level + 1) / problem.levels)
        found.append(one)
    return Solution(
        cost=sum(one.cost for one in found),
        bound=sum(one.bound for one in found),
        copies=np.concatenate([one.copies for one in found]),
        shares=np.concatenate([one.shares for one in found]),
        machines={(level, p, w): n for level, one in enumerate(found) for (_, p, w), n in one.machines.items()},
        jobs=(),
        considered=len(problem.columns),
        kept=max(one.kept for one in found),
        seconds=sum(one.seconds for one in found),
    )


class _Search:
    """One large problem."""

    def __init__(self, problem: Problem, free: Bools, seconds: float, gap: float, told: Told, start: float) -> None:
        self.problem, self.seconds, self.gap, self.told, self.start = problem, seconds, gap, told, start
        self.loads = problem.loads()
        self.free = free
        self.jobs = sum(_job_least(problem, k) for k in range(len(problem.jobs)))
        self.easy = False
        self.best: tuple[Ints, ProgramSolution] | None = None
        self.bound = -np.inf

    def run(self) -> Solution | None:
        if int(np.isfinite(self.loads[:, self.free]).sum()) <= WHOLE:
            self._whole_relaxation()
        else:
            self._by_bucket()
        if self.best is None:
            return self._last()
        return _whole(self.problem, *self.best, min(self.bound, self.best[1].cost), monotonic() - self.start)

    def _whole_relaxation(self) -> None:
        """Few enough columns for one linear program: those it uses make the first program, and all of them the last."""
        everything = np.flatnonzero(self.free)
        whole = Program(self.problem, everything)
        relaxed = whole.relaxed(self._left(0.3))
        if relaxed is None:
            return
        self.bound = relaxed.cost
        self.told(0.2)
        self.easy = greedy_applies(self.problem)
        used = everything[relaxed.used > USED]
        self._try(used, self._left(0.4))
        self.told(0.5)
        cost = column_costs(self.problem, relaxed.fees)
        bound = raise_bound(self.problem, cost, self.loads, self._target(relaxed.prices, cost), self._left(0.2), relaxed.prices)
        self.bound = max(self.bound, bound.value + self.jobs)
        self._begin(bound.prices, cost, 0.1)
        if self._good(self.bound):
            return
        chosen = np.union1d(used, self._kept(bound, used)[:MOST])
        self._prove(bound, chosen, self._try(chosen, self._left(0.4)))
        self.told(0.8)
        if not self._good(self.bound) and len(chosen) < len(everything):
            found = self._try(everything, self._left(1.0))
            self.bound = max(self.bound, found.bound if found else -np.inf)

    def _by_bucket(self) -> None:
        """Too many columns for one linear program: those cheapest at some bucket first, then those the bound cannot rule out."""
        problem = self.problem
        plain = column_costs(problem)
        prices = initial_prices(problem, self.loads, plain)
        chosen = self._first(prices, plain)
        relaxed = Program(problem, chosen).relaxed(self._left(0.3))
        fees = relaxed.fees if relaxed else Fees()
        cost = column_costs(problem, fees)
        limited = bool(fees.options or fees.quotas or fees.spot)
        if relaxed is not None and limited:
            prices = relaxed.prices
        self.told(0.1)
        self.easy = greedy_applies(problem)
        if not self._begin(prices, cost, 0.15):
            self._try(chosen, min(self._left(0.25), 6.0))
        self.told(0.3)
        for share in (0.45, 1.0):
            bound = raise_bound(problem, cost, self.loads, self._target(prices, cost), self._left(0.35), prices)
            prices = bound.prices
            self.bound = max(self.bound, bound.value + self.jobs)
            self._begin(prices, cost, 0.2)
            if self._good(self.bound):
                break
            chosen = self._kept(bound, chosen)
            found = self._try(chosen, self._left(share))
            self._prove(bound, chosen, found)
            self.told(0.3 + 0.7 * share)
            if self._good(self.bound):
                break

    def _begin(self, prices: Floats, cost: Costs, share: float) -> bool:
        """A plan by earnings at these prices, where that is the kind of problem; its columns are then mixed as is best."""
        if not self.easy:
            return False
        each = np.minimum(cost.hourly[0], cost.standing)
        copies = greedy_start(self.problem, self.loads[0], prices[0], each, self.free, monotonic() + self._left(share))
        if copies is None:
            return False
        problem = self.problem
        machines: dict[tuple[int, int, int], int] = {}
        for j in np.flatnonzero(copies).tolist():
            pool = problem.pools[int(problem.pool_of[j])]
            best = min(range(len(pool.options)), key=lambda w: pool.options[w].price)
            key = (0, int(problem.pool_of[j]), best)
            machines[key] = machines.get(key, 0) + int(copies[j])
        known = StartingPlan(copies[None, :], machines)
        return self._try(np.flatnonzero(copies), min(2.0, self._left(0.1)), known) is not None

    def _left(self, share: float) -> float:
        """Seconds to spend."""
        return max(0.5, (self.seconds - (monotonic() - self.start)) * share)

    def _first(self, prices: Floats, cost: Costs) -> Ints:
        """Columns that are the cheapest of some bucket, heaviest buckets first, and those with limits that are cheap."""
        problem = self.problem
        each = np.minimum(cost.hourly, cost.standing[None, :])
        weight = np.zeros(len(problem.columns))
        for level in range(problem.levels):
            with np.errstate(invalid="ignore"):
                bill = np.where(np.isfinite(self.loads[level]), self.loads[level] * each[level][:, None], np.inf)
            bill[~self.free] = np.inf
            for b in np.flatnonzero(problem.demand[level] > 0).tolist():
                ranked = np.argsort(bill[:, b], kind="stable")[:3]
                for place, j in enumerate(ranked.tolist()):
                    if np.isfinite(bill[j, b]):
                        weight[j] += prices[level, b] / (1 + 2 * place)
        order = np.argsort(-weight, kind="stable")
        chosen = order[: min(FIRST, int((weight > 0).sum()))].tolist()
        chosen += [j for j in self._limited() if j not in set(chosen)][:FIRST]
        missing = (problem.demand > 0).any(axis=0) & ~(problem.rates[chosen] > 0).any(axis=0)
        for b in np.flatnonzero(missing).tolist():  # every bucket has somebody
            chosen.append(int(np.argmax(np.where(self.free, problem.rates[:, b] / np.maximum(each[0], 1e-12), 0.0))))
        return np.unique(np.array(chosen, dtype=np.int64))

    def _limited(self) -> list[int]:
        pools = self.problem.pools
        return [
            j for j, p in enumerate(self.problem.pool_of.tolist()) if any(np.isfinite(option.most) for option in pools[p].options)
        ]

    def _try(self, chosen: Ints, seconds: float, known: StartingPlan | None = None) -> ProgramSolution | None:
        known = known or self._known(chosen)
        found = Program(self.problem, chosen).solve(seconds, self.gap, known)
        if found is not None and (self.best is None or found.cost < self.best[1].cost):
            self.best = chosen, found
        return found

    def _known(self, chosen: Ints) -> StartingPlan | None:
        """The best plan so far, where these columns can tell it."""
        if self.best is None:
            return None
        mine, found = self.best
        copies = np.zeros((self.problem.levels, len(self.problem.columns)), dtype=np.int64)
        copies[:, mine] = found.copies
        return (
            StartingPlan(copies, found.machines)
            if set(np.flatnonzero(copies.any(axis=0)).tolist()) <= set(chosen.tolist())
            else None
        )

    def _target(self, prices: Floats, cost: Costs) -> float:
        """What the bound may rise to."""
        if self.best is not None:
            return self.best[1].cost - self.jobs
        return 1.1 * (float(prices.sum()) - cost.rebate)

    def _good(self, bound: float) -> bool:
        return self.best is not None and self.best[1].cost * (1 - self.gap) <= bound

    def _kept(self, bound: Bound, before: Ints) -> Ints:
        """Columns that may be part of a cheaper plan, likeliest first."""
        ceiling = self.best[1].cost if self.best else np.inf
        hopeful = self.free & (bound.with_column + self.jobs < ceiling * (1 - self.gap / 2))
        order = np.argsort(np.where(hopeful, bound.with_column, np.inf), kind="stable")
        kept = [j for j in order[:MOST].tolist() if hopeful[j]]
        used = self.best[0][self.best[1].copies.sum(axis=0) > 0].tolist() if self.best else []
        return np.unique(np.array([*kept, *used, *self._limited()[:FIRST]] or before.tolist(), dtype=np.int64))

    def _prove(self, bound: Bound, chosen: Ints, found: ProgramSolution | None) -> None:
        """The program bounds plans of its columns; any other plan uses a column left out and costs at least its bound."""
        if found is None:
            return
        left = self.free.copy()
        left[chosen] = False
        others = float(bound.with_column[left].min()) + self.jobs if left.any() else np.inf
        self.bound = max(self.bound, min(found.bound, others))

    def _last(self) -> Solution | None:
        """Nothing in the columns tried: all of them, as long as there is time."""
        everything = np.flatnonzero(self.free)
        found = Program(self.problem, everything).solve(self._left(1.0), self.gap)
        if found is None:
            return None
        return _whole(self.problem, everything, found, max(self.bound, found.bound), monotonic() - self.start)


def fewest_kinds(problem: Problem, solution: Solution, tolerance: float, seconds: float = 5.0) -> Solution:
    """The plan with the fewest kinds of machines among those no dearer than so much; the same where none is found in time."""
    if tolerance <= 0 or problem.slices is not None or len(solution.machines) < 2:
        return solution
    kinds = len({(p, w) for _, p, w in solution.machines})
    if kinds < 2:
        return solution
    start = monotonic()
    pools = sorted({p for _, p, _ in solution.machines})
    chosen = np.flatnonzero(np.isin(problem.pool_of, pools))
    found = Program(problem, chosen).simplest(seconds, solution.cost * (1 + tolerance))
    if found is None or len({(p, w) for _, p, w in found.machines}) >= kinds:
        return solution
    return _whole(problem, chosen, found, solution.bound, solution.seconds + monotonic() - start)


def _job_least(problem: Problem, k: int) -> float:
    """The least a job can cost, an average hour."""
    job = problem.jobs[k]
    told = [
        min((option.price for option in pool.options if not option.committed), default=np.inf)
        * float(job.hours[p])
        / problem.horizon
        for p, pool in enumerate(problem.pools)
        if np.isfinite(job.hours[p])
    ]
    return min(told, default=0.0)


def _nothing(problem: Problem) -> Solution:
    """For hours in which nobody comes."""
    copies = np.zeros((problem.levels, len(problem.columns)), dtype=np.int64)
    shares = np.zeros((problem.levels, len(problem.columns), problem.demand.shape[1]))
    return Solution(0.0, 0.0, copies, shares, {}, (), len(problem.columns), 0, 0.0)


def _whole(problem: Problem, chosen: Ints, found: ProgramSolution, bound: float, seconds: float) -> Solution:
    """Over all columns of the problem."""
    copies = np.zeros((problem.levels, len(problem.columns)), dtype=np.int64)
    shares = np.zeros((problem.levels, len(problem.columns), problem.demand.shape[1]))
    copies[:, chosen], shares[:, chosen] = found.copies, found.shares
    return Solution(
        found.cost,
        max(0.0, min(bound, found.cost)),
        copies,
        shares,
        found.machines,
        found.jobs,
        len(problem.columns),
        len(chosen),
        seconds,
        found.spent_jobs,
        found.change,
    )
