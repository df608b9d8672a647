"""From a solved problem to rows people read: groups and why each is there, the bill, hours, owned GPUs, jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.candidate import Cost
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.ranges import TimeRange, time_range
from whichgpu.decide.market import Market
from whichgpu.decide.plan.plan_answer import (
    BillRow,
    GroupRow,
    HourPoint,
    JobRow,
    LevelRow,
    OwnedRow,
    Serves,
    money,
)
from whichgpu.decide.plan.solver.build import Column, Formulation
from whichgpu.decide.plan.solver.growth import utilisation
from whichgpu.decide.plan.solver.problem import Solution
from whichgpu.decide.plan.supply import GpuPool
from whichgpu.decide.plan.verify import max_batch
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Parallel

SHOWN = 1e-4  # share of a bucket below which it is not worth telling


@dataclass(frozen=True, slots=True)
class Offer:
    """Whose a machine is."""

    provider: str
    instance: str
    region: str
    observed: str
    source: str


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """A plan on its way to being told. `market` knows the offers; None where there are none."""

    formulation: Formulation
    solution: Solution
    market: Market | None
    currency: str

    @property
    def busiest(self) -> int:
        """The level with most to do."""
        return int(np.argmax(self.formulation.problem.demand.sum(axis=1)))

    def offer(self, gpu_pool: GpuPool, way: int) -> Offer:
        """Of one way of a stand."""
        machine = gpu_pool.machines[way]
        if machine.row is None or self.market is None:
            return Offer("owned", gpu_pool.gpu.name, "", "", gpu_pool.gpu.sources[0] if gpu_pool.gpu.sources else "")
        table, row = self.market.table, int(self.market.rows[machine.row])
        from datetime import date

        seen = date.fromordinal(min(int(table.days[1][row]), self.market.day.toordinal())).isoformat()
        return Offer(
            table.word("provider", row), table.word("instance", row), table.word("region", row), seen, table.word("source", row)
        )

    def groups(self) -> tuple[GroupRow, ...]:
        """Copies at the busiest level, dearest first."""
        level, problem = self.busiest, self.formulation.problem
        work = utilisation(problem, self.solution.copies[level].astype(float), self.solution.shares[level], level)
        rows = [self._group(int(j), float(work[j])) for j in np.flatnonzero(self.solution.copies[level] > 0)]
        return tuple(sorted(rows, key=lambda row: (-float(row.cost_per_hour.amount), row.gpu)))

    def _group(self, j: int, work: float) -> GroupRow:
        formulation, level = self.formulation, self.busiest
        column, problem = formulation.columns[j], formulation.problem
        work *= formulation.ease[column.model] if formulation.ease else 1.0
        gpu_pool, one = formulation.gpu_pools[column.pool_index], formulation.served[column.model]
        count = int(self.solution.copies[level, j])
        gpus = count * int(problem.uses[j])
        way, machines, price = self._stands_on(j)
        offer = self.offer(gpu_pool, way)
        sure = sure_of(one.asked, gpu_pool, column.replica.tp)
        start = formulation.starts[column.model]
        rates = problem.demand[level] * self.solution.shares[level, j]
        rate = float(rates.sum())
        serves = tuple(
            Serves(one.traffic.buckets[b - start].name, float(self.solution.shares[level, j, b]), float(rates[b]))
            for b in np.flatnonzero(self.solution.shares[level, j] > SHOWN).tolist()
        )
        told = money(price, self.currency).amount
        return GroupRow(
            model=one.name,
            gpu=gpu_pool.gpu.id,
            gpu_name=gpu_pool.gpu.name,
            gpus=gpus,
            copies=count * column.copies,
            gpus_per_copy=column.replica.tp,
            machines=machines if not gpu_pool.owned else 0,
            provider=offer.provider,
            instance=offer.instance,
            region=offer.region,
            term=gpu_pool.machines[way].term,
            precision=column.replica.precision,
            parallel=Parallel(dp=count * column.copies, tp=column.replica.tp),
            batch=max_batch(column),
            rate=rate,
            capacity=sure.rate(rate / work if work > 0 else 0.0, "requests/s"),
            utilisation=work,
            cost_per_hour=Cost(
                told, money(price * sure.low, self.currency).amount, money(price * sure.high, self.currency).amount, self.currency
            ),
            serves=serves,
            copies_by_level=tuple(int(n) * column.copies for n in self.solution.copies[:, j]),
            because=self._because(j, column),
            price_observed_at=offer.observed,
            gpus_per_machine=gpu_pool.pool.size if not gpu_pool.owned else 0,
        )

    def _stands_on(self, j: int) -> tuple[int, int, float]:
        """The way most of a column's machines are had, how many of them it stands on, and its part of their bill.

        Columns of a pool stand one after the other; two that share a machine both stand on it, and share its price.
        """
        level, problem = self.busiest, self.formulation.problem
        p = int(problem.pool_of[j])
        pool, size = problem.pools[p], problem.pools[p].size
        ways = sorted((w, n) for (at, q, w), n in self.solution.machines.items() if at == level and q == p)
        held = {int(k): int(self.solution.copies[level, k] * problem.uses[k]) for k in np.flatnonzero(problem.pool_of == p)}
        start = sum(gpus for k, gpus in held.items() if k < j)
        end = start + held[j]
        parts, first = [], 0
        for w, n in ways:
            parts.append((min(end, first + n * size) - max(start, first), w))
            first += n * size
        spent = sum(pool.options[w].price * n for w, n in ways)
        return max(parts)[1], -(-end // size) - start // size, spent * held[j] / max(1, sum(held.values()))

    def _because(self, j: int, column: Column) -> tuple[Message, ...]:
        """Where it is the cheapest, against the cheapest other kind in the plan or on offer."""
        problem, level = self.formulation.problem, self.busiest
        mine = np.flatnonzero(self.solution.shares[level, j] > SHOWN)
        prices = np.array([min(way.price for way in pool.options) / pool.size for pool in problem.pools])
        each = prices[problem.pool_of] * problem.uses
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = np.where(problem.rates > 0, each[:, None] / problem.rates, np.inf)[:, mine] / 3.6  # of a thousand requests
        gpu = problem.pools[int(problem.pool_of[j])].gpu
        others = np.array([problem.pools[int(p)].gpu != gpu for p in problem.pool_of])
        gpu_pool = self.formulation.gpu_pools[column.pool_index]
        if gpu_pool.owned:
            return (msg("plan.because-owned", gpu=gpu_pool.gpu.name),)
        if not others.any() or not np.isfinite(cost[others]).any():
            return (msg("plan.because-only", gpu=gpu_pool.gpu.name),)
        weights = (problem.demand[level] * self.solution.shares[level, j])[mine]
        rest = cost[others]
        finite = np.isfinite(rest).all(axis=1)
        ours = float((cost[j] * weights).sum() / weights.sum())
        if not finite.any():
            return (msg("plan.because-only", gpu=gpu_pool.gpu.name),)
        totals = np.where(finite, (np.where(np.isfinite(rest), rest, 0.0) * weights).sum(axis=1) / weights.sum(), np.inf)
        best = int(np.argmin(totals))
        other = self.formulation.gpu_pools[int(problem.pool_of[np.flatnonzero(others)[best]])]
        name = "plan.because-cheapest" if ours <= totals[best] else self._dearer(int(np.flatnonzero(others)[best]))
        return (
            msg(
                name,
                gpu=gpu_pool.gpu.name,
                ours=significant(ours),
                theirs=significant(float(totals[best])),
                other=other.gpu.name,
                currency=self.currency,
            ),
        )

    def _dearer(self, cheaper: int) -> str:
        """Why a column serves what another would for less: no more of that are there or allowed, or machines come whole."""
        problem, level = self.formulation.problem, self.busiest
        p, uses = int(problem.pool_of[cheaper]), int(problem.uses[cheaper])
        gpus = dict.fromkeys(range(len(problem.pools)), 0)
        for (at, q, _), n in self.solution.machines.items():
            gpus[q] += n * problem.pools[q].size if at == level else 0
        if self.formulation.gpu_pools[p].owned and gpus[p] + uses > problem.pools[p].options[0].most:
            return "plan.because-used-up"
        for quota in problem.quotas:
            if p in quota.pools and sum(gpus[q] for q in quota.pools) + uses > quota.most:
                return "plan.because-quota"
        return "plan.because-whole"

    def bill(self) -> tuple[BillRow, ...]:
        """Machines by offer."""
        found: dict[tuple[int, int], list[int]] = {}
        problem = self.formulation.problem
        for (level, p, w), n in self.solution.machines.items():
            found.setdefault((p, w), [0] * problem.levels)[level] = n
        rows = []
        for (p, w), counts in found.items():
            gpu_pool, way = self.formulation.gpu_pools[p], problem.pools[p].options[w]
            offer = self.offer(gpu_pool, w)
            spent = way.price * (max(counts) if way.committed else float(np.dot(counts, problem.hours)))
            rows.append(
                BillRow(
                    provider=offer.provider,
                    instance=offer.instance,
                    region=offer.region,
                    gpu=gpu_pool.gpu.id,
                    gpu_name=gpu_pool.gpu.name,
                    gpus_per_machine=gpu_pool.pool.size,
                    term=gpu_pool.machines[w].term,
                    machines=max(counts),
                    machines_by_level=tuple(counts),
                    price=money(gpu_pool.machines[w].price, self.currency),
                    cost_per_hour=money(spent, self.currency),
                    cost_per_month=money(spent * MONTH_HOURS, self.currency),
                    price_observed_at=offer.observed,
                    source=offer.source,
                )
            )
        return tuple(sorted(rows, key=lambda row: -row.cost_per_hour.amount))

    def levels(self) -> tuple[LevelRow, ...]:
        """Hours of like load."""
        problem, rows = self.formulation.problem, []
        for level in range(problem.levels):
            rates = {}
            for m, one in enumerate(self.formulation.served):
                start = self.formulation.starts[m]
                rates[one.name] = float(problem.demand[level, start : start + len(one.traffic.buckets)].sum())
            rows.append(
                LevelRow(float(problem.hours[level]), rates, self._gpus(level), money(self.cost_at(level), self.currency))
            )
        return tuple(rows)

    def cost_at(self, level: int) -> float:
        """What an hour of a level costs."""
        problem = self.formulation.problem
        return sum(problem.pools[p].options[w].price * n for (at, p, w), n in self.solution.machines.items() if at == level)

    def _gpus(self, level: int) -> int:
        problem = self.formulation.problem
        return sum(problem.pools[p].size * n for (at, p, _), n in self.solution.machines.items() if at == level)

    def timeline(self) -> tuple[HourPoint, ...]:
        """Every hour of the curve."""
        rates = np.sum(
            [np.resize(one.traffic.hourly, len(self.formulation.hour_level)) for one in self.formulation.served], axis=0
        )
        rows = []
        for hour, level in enumerate(self.formulation.hour_level.tolist()):
            kinds: dict[str, int] = {}
            for (at, p, _), n in self.solution.machines.items():
                if at == level:
                    gpu_pool = self.formulation.gpu_pools[p]
                    kinds[gpu_pool.gpu.name] = kinds.get(gpu_pool.gpu.name, 0) + n * gpu_pool.pool.size
            rows.append(HourPoint(hour, float(rates[hour]), level, kinds, money(self.cost_at(level), self.currency)))
        return tuple(rows)

    def owned(self) -> tuple[OwnedRow, ...]:
        """Every owned GPU: its role, or why it has none."""
        rows = []
        level, problem = self.busiest, self.formulation.problem
        for p, gpu_pool in enumerate(self.formulation.gpu_pools):
            if not gpu_pool.owned:
                continue
            mine = [int(j) for j in np.flatnonzero(problem.pool_of == p) if self.solution.copies[level, j] > 0]
            roles = [
                msg(
                    "plan.role-serves",
                    model=self.formulation.served[self.formulation.columns[j].model].name,
                    n=int(self.solution.copies[level, j]),
                    tp=self.formulation.columns[j].replica.tp,
                )
                for j in mine
            ]
            for k, job in enumerate(problem.jobs):
                roles += [msg("plan.role-job", name=job.name) for at, share in self.solution.jobs[k] if at == p and share > 0]
            used = sum(int(self.solution.copies[level, j] * problem.uses[j]) for j in mine)
            worked = [
                gpu_pool.widest for k in range(len(problem.jobs)) for at, share in self.solution.jobs[k] if at == p and share > 0
            ]
            used = max([used, *worked])
            have = int(problem.pools[p].options[0].most)
            reasons = self._idle(p, have - used) if used < have else ()
            rows.append(OwnedRow(gpu_pool.gpu.id, gpu_pool.gpu.name, have, used, tuple(roles), reasons))
        return tuple(rows)

    def _idle(self, p: int, left: int) -> tuple[Message, ...]:
        """Why GPUs of a pool have nothing to serve: they cannot, they miss the objective, or others do it for less."""
        reasons = []
        for m, one in enumerate(self.formulation.served):
            copies = self.formulation.copies[m][p]
            able = [copy for copy in copies if copy.rates.any()]
            if not one.runs_on(self.formulation.gpu_pools[p].gpu):
                assert one.engine is not None
                reasons.append(msg("plan.idle-engine", engine=one.engine.name, model=one.name))
            elif not copies or all(copy.short == "memory" and not copy.rates.any() for copy in copies):
                reasons.append(msg("plan.idle-memory", model=one.name))
            elif not able:
                late = [copy for copy in copies if copy.short not in ("", "memory")] or list(copies)
                near = min(late, key=lambda copy: copy.off)
                limit = getattr(one.goals, f"{near.short}_max", None) if near.short else None
                reasons.append(
                    msg(
                        "plan.idle-late",
                        model=one.name,
                        goal=msg(f"plan.goal-{near.short or 'latency'}"),
                        limit=format_seconds(limit),
                        over=f"{near.off:.0%}",
                    )
                    if limit
                    else msg("plan.idle-slow", model=one.name)
                )
            elif min(copy.tp for copy in able) > left:
                reasons.append(msg("plan.idle-few", model=one.name, tp=min(copy.tp for copy in able)))
            else:
                reasons.append(msg("plan.idle-unneeded", model=one.name))
        return tuple(reasons)

    def jobs(self) -> tuple[JobRow, ...]:
        """Where jobs run."""
        rows = []
        problem = self.formulation.problem
        for job, places in zip(problem.jobs, self.solution.jobs, strict=False):
            for p, share in places:
                gpu_pool = self.formulation.gpu_pools[p]
                prices = [way.price for way in gpu_pool.pool.options]
                w = prices.index(min(prices))
                offer = self.offer(gpu_pool, w)
                rows.append(
                    JobRow(
                        job.name,
                        gpu_pool.gpu.name,
                        gpu_pool.widest if gpu_pool.owned else gpu_pool.pool.size,
                        offer.provider,
                        offer.instance,
                        gpu_pool.machines[w].term,
                        share,
                        float(job.wall[p]) * share,
                        job.window,
                        money(gpu_pool.pool.options[w].price * float(job.hours[p]) * share, self.currency),
                        offer.region,
                        offer.observed,
                        money(gpu_pool.pool.options[w].price * float(job.hours[p]) * share / problem.horizon, self.currency),
                    )
                )
        return tuple(rows)


def sure_of(asked: WorkloadRequest, gpu_pool: GpuPool, tp: int) -> TimeRange:
    """How sure a copy's times are."""
    way = Configuration("", Parallel(tp=tp), 1, None, 1, "none", 1.0, 1.0, "", 0, 0, "fits", "", "generate")
    return time_range(asked, Group(gpu_pool.gpu, tp, 1, gpu_pool.fabric), way)
