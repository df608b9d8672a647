"""Rows of a plan's answer: groups of replicas with reasons, the bill, load levels, hours, owned GPUs, jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import msgspec
import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.candidate import Cost
from whichgpu.decide.market import Market
from whichgpu.decide.plan.capacity import ReplicaCapacity, replica_memory
from whichgpu.decide.plan.plan_answer import BillRow, GroupRow, HourPoint, JobRow, LevelRow, OwnedRow, Serves, money
from whichgpu.decide.plan.simulate import replica_range
from whichgpu.decide.plan.solver.build import Formulation, ServedModel
from whichgpu.decide.plan.solver.growth import utilisation
from whichgpu.decide.plan.solver.marginal import added_replica, saving
from whichgpu.decide.plan.solver.problem import Solution
from whichgpu.decide.plan.solver.starts import Starts
from whichgpu.decide.plan.supply import GpuPool
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Parallel

MIN_SHARE = 1e-4  # A row lists the buckets of requests of which it serves at least this share.
ROLE_MESSAGES = {"both": "plan.role-serves", "prefill": "plan.role-serves-prefill", "decode": "plan.role-serves-decode"}
MIN_CHANGE = 0.005  # A smaller change, as a share of the plan's cost, counts as none.
PER_THOUSAND = 3.6  # Price per hour of one request per second over this is the price of 1000 requests.


class AnswerRows(msgspec.Struct, frozen=True):
    """Makes the rows of a plan's answer (groups of replicas, bill, levels of load, hours, owned GPUs, jobs) from its solution."""

    formulation: Formulation
    solution: Solution
    market: Market
    currency: str
    starts: Starts

    @property
    def busiest(self) -> int:
        """Return the index of the load level with the most requests."""
        return self.formulation.problem.busiest

    def _offer(self, gpu_pool: GpuPool, option: int) -> dict[str, Any]:
        """Return the fields that say where a row's machines come from: provider, instance, region, term, day of the price."""
        place, term = gpu_pool.pool.options[option].row, gpu_pool.pool.options[option].term
        if place is None:
            return {"provider": "owned", "instance": gpu_pool.gpu.name, "region": "", "term": term, "price_observed_at": ""}
        table, row = self.market.table, int(self.market.rows[place])
        observed_at = date.fromordinal(min(int(table.days[1][row]), self.market.day.toordinal())).isoformat()
        words = {name: table.word(name, row) for name in ("provider", "instance", "region")}
        return {**words, "term": term, "price_observed_at": observed_at}

    def _source(self, gpu_pool: GpuPool, option: int) -> str:
        place = gpu_pool.pool.options[option].row
        if place is None:
            return gpu_pool.gpu.sources[0] if gpu_pool.gpu.sources else ""
        return self.market.table.word("source", int(self.market.rows[place]))

    def groups(self) -> tuple[GroupRow, ...]:
        """Return the plan's groups of equal replicas at the busiest level of load, highest cost first."""
        level, counts = self.busiest, self.solution.counts[self.busiest]
        busy = utilisation(self.formulation.problem, self.solution, level)
        rows = [self._group(int(j), float(busy[j])) for j in np.flatnonzero(counts > 0)]
        return tuple(sorted(rows, key=lambda row: (-float(row.cost_per_hour.amount), row.gpu)))

    def _group(self, j: int, busy: float) -> GroupRow:
        formulation, level, problem = self.formulation, self.busiest, self.formulation.problem
        column, shares = formulation.columns[j], self.solution.shares[level, j]
        busy *= formulation.rate_factors[column.model] if formulation.rate_factors else 1.0
        gpu_pool, model = formulation.gpu_pools[column.pool_index], formulation.models[column.model]
        count, tp = int(self.solution.counts[level, j]), column.replica.tp
        option, machines, price = self._machines_of(j)
        step_range = replica_range(model.request, gpu_pool, column.replica)
        start, buckets = formulation.first_buckets[column.model], model.traffic.buckets
        rates = problem.demand[level] * shares
        rate = float(rates.sum())
        memory = replica_memory(model.request, column.replica, gpu_pool.gpu)
        amount, low, high = (money(price * factor, self.currency).amount for factor in (1.0, step_range.low, step_range.high))
        return GroupRow(
            model=model.name,
            gpu=gpu_pool.gpu.id,
            gpu_name=gpu_pool.gpu.name,
            gpus=count * int(problem.uses[j]),
            copies=count * column.replicas,
            gpus_per_copy=tp,
            machines=machines if not gpu_pool.owned else 0,
            **self._offer(gpu_pool, option),
            precision=column.replica.precision,
            parallel=Parallel(dp=count * column.replicas, tp=tp),
            batch=column.replica.largest_batch,
            rate=rate,
            capacity=step_range.rate(rate / busy if busy > 0 else 0.0, "requests/s"),
            utilisation=busy,
            cost_per_hour=Cost(amount, low, high, self.currency),
            serves=tuple(
                Serves(buckets[b - start].name, float(shares[b]), float(rates[b]), buckets[b - start].place)
                for b in np.flatnonzero(shares > MIN_SHARE).tolist()
            ),
            copies_by_level=tuple(int(n) * column.replicas for n in self.solution.counts[:, j]),
            because=(self._reason(j, rate / busy / max(1, count * column.replicas) if busy > 0 else 0.0),),
            role=column.replica.role,
            gpus_per_machine=gpu_pool.pool.size if not gpu_pool.owned else 0,
            memory=memory.allocated,
            memory_device=memory.device,
        )

    def _machines_of(self, j: int) -> tuple[int, int, float]:
        """Return the price option of most machines that column `j` (a model on a pool) uses, their number, and cost per hour.

        Columns of a pool are placed one after the other; two that share a machine both count it, and split its price.
        """
        level, problem = self.busiest, self.formulation.problem
        p = int(problem.pool_of[j])
        pool, size = problem.pools[p], problem.pools[p].size
        options = sorted((w, n) for (at, q, w), n in self.solution.machines.items() if at == level and q == p)
        gpus = {int(k): int(self.solution.counts[level, k] * problem.uses[k]) for k in np.flatnonzero(problem.pool_of == p)}
        start = sum(count for k, count in gpus.items() if k < j)
        end = start + gpus[j]
        parts, first = [], 0
        for w, n in options:
            parts.append((min(end, first + n * size) - max(start, first), w))
            first += n * size
        spent = sum(pool.options[w].price * n for w, n in options)
        return max(parts)[1], -(-end // size) - start // size, spent * gpus[j] / max(1, sum(gpus.values()))

    def _reason(self, j: int, capacity: float) -> Message:
        """Return why column `j` (a model on a kind of machine) is used: its cost per 1,000 requests against the next kind's.

        A prefill or decode worker's reason is its `capacity`, in requests per second of one replica.
        """
        problem, level, column = self.formulation.problem, self.busiest, self.formulation.columns[j]
        if column.replica.role != "both":
            gpu, model = self.formulation.gpu_pools[column.pool_index].gpu.name, self.formulation.models[column.model].name
            return msg(f"roles.because-{column.replica.role}", gpu=gpu, rate=f"{capacity:.3g}", model=model)
        mine = np.flatnonzero(self.solution.shares[level, j] > MIN_SHARE)
        cost = problem.cost_per_request()[:, mine] / PER_THOUSAND
        gpu_pool = self.formulation.gpu_pools[int(problem.pool_of[j])]
        if gpu_pool.owned:
            return msg("plan.because-owned", gpu=gpu_pool.gpu.name)
        others = np.flatnonzero([problem.pools[int(p)].gpu != gpu_pool.gpu.id for p in problem.pool_of])
        others = others[np.isfinite(cost[others]).all(axis=1)]
        if not len(mine) or not len(others):
            return msg("plan.because-only", gpu=gpu_pool.gpu.name)
        weights = (problem.demand[level] * self.solution.shares[level, j])[mine]
        ours = float((cost[j] * weights).sum() / weights.sum())
        totals = (cost[others] * weights).sum(axis=1) / weights.sum()
        best = int(np.argmin(totals))
        cheapest = int(others[best])
        return msg(
            "plan.because-cheapest" if ours <= totals[best] else self._why_dearer(cheapest),
            gpu=gpu_pool.gpu.name,
            ours=significant(ours),
            theirs=significant(float(totals[best])),
            other=self.formulation.gpu_pools[int(problem.pool_of[cheapest])].gpu.name,
            currency=self.currency,
        )

    def _why_dearer(self, cheaper: int) -> str:
        """Return the id of the reason not to use cheaper replicas: all owned GPUs in use, a quota, or machines come whole."""
        problem, level = self.formulation.problem, self.busiest
        p, uses = int(problem.pool_of[cheaper]), int(problem.uses[cheaper])
        if self.formulation.gpu_pools[p].owned and self._gpus(level, {p}) + uses > problem.pools[p].options[0].limit:
            return "plan.because-used-up"
        for quota in problem.quotas:
            if p in quota.pools and self._gpus(level, quota.pools) + uses > quota.limit:
                return "plan.because-quota"
        kinds = self.solution.gpus_by_kind(problem, level)
        return "plan.because-whole" if len(kinds) > 1 else "plan.because-whole-alone"

    def _gpus(self, level: int, pools: frozenset[int] | set[int] | None = None) -> int:
        return self.solution.gpus_at(self.formulation.problem, level, pools)

    def bill(self) -> tuple[BillRow, ...]:
        """Return the plan's bill: machines with their cost by offer, highest cost first."""
        problem = self.formulation.problem
        by_option: dict[tuple[int, int], list[int]] = {}
        for (level, p, w), n in self.solution.machines.items():
            by_option.setdefault((p, w), [0] * problem.levels)[level] = n
        rows = []
        for (p, w), counts in by_option.items():
            gpu_pool, option = self.formulation.gpu_pools[p], problem.pools[p].options[w]
            spent = option.price * (max(counts) if option.committed else float(np.dot(counts, problem.hours)))
            spent += self.starts.costs.get((p, w), 0.0)
            rows.append(
                BillRow(
                    **self._offer(gpu_pool, w),
                    gpu=gpu_pool.gpu.id,
                    gpu_name=gpu_pool.gpu.name,
                    gpus_per_machine=gpu_pool.pool.size,
                    machines=max(counts),
                    machines_by_level=tuple(counts),
                    price=money(option.billed, self.currency),
                    cost_per_hour=money(spent, self.currency),
                    cost_per_month=money(spent * MONTH_HOURS, self.currency),
                    source=self._source(gpu_pool, w),
                )
            )
        return tuple(sorted(rows, key=lambda row: -row.cost_per_hour.amount))

    def levels(self) -> tuple[LevelRow, ...]:
        """Return the levels of load (hours of similar traffic) with their GPUs and cost per hour."""
        problem, rows = self.formulation.problem, []
        for level in range(problem.levels):
            rates = {
                one.name: float(problem.demand[level, self.formulation.buckets_of(m)].sum())
                for m, one in enumerate(self.formulation.models)
            }
            cost = money(self._cost_at(level), self.currency)
            rows.append(LevelRow(float(problem.hours[level]), rates, self._gpus(level), cost))
        return tuple(rows)

    def _cost_at(self, level: int) -> float:
        """Return the cost per hour of the plan's machines at a level of load."""
        pools = self.formulation.problem.pools
        return sum(pools[p].options[w].price * n for (at, p, w), n in self.solution.machines.items() if at == level)

    def timeline(self) -> tuple[HourPoint, ...]:
        """Return the load level, GPUs and cost of every hour of the load curve (requests per second by hour)."""
        formulation, rows = self.formulation, []
        names = {one.gpu.id: one.gpu.name for one in formulation.gpu_pools}
        hours = len(formulation.hour_level)
        rates = sum((np.resize(one.traffic.hourly, hours) for one in formulation.models), np.zeros(hours))
        for hour, level in enumerate(formulation.hour_level.tolist()):
            gpus = {names[gpu]: n for gpu, n in self.solution.gpus_by_kind(formulation.problem, level).items()}
            rows.append(HourPoint(hour, float(rates[hour]), level, gpus, money(self._cost_at(level), self.currency)))
        return tuple(rows)

    def owned(self) -> tuple[OwnedRow, ...]:
        """Return a row per kind of owned GPU: what those in use serve and save, and why the others are idle."""
        return owned_rows(self.formulation, self.solution, self.busiest, self.currency)

    def jobs(self) -> tuple[JobRow, ...]:
        """Return the plan's training and batch jobs with where they run, for how long, and their cost."""
        rows = []
        problem = self.formulation.problem
        for job, places in zip(problem.jobs, self.solution.jobs, strict=False):
            for p, share in places:
                gpu_pool = self.formulation.gpu_pools[p]
                prices = [option.price for option in gpu_pool.pool.options]
                w = prices.index(min(prices))
                cost = prices[w] * float(job.hours[p]) * share
                rows.append(
                    JobRow(
                        name=job.name,
                        gpu=gpu_pool.gpu.name,
                        gpus=gpu_pool.gpus_per_job,
                        **self._offer(gpu_pool, w),
                        share=share,
                        hours=float(job.wall[p]) * share,
                        deadline_hours=job.window,
                        cost=money(cost, self.currency),
                        cost_per_hour=money(cost / problem.horizon, self.currency),
                        request=dict(job.requests[p]),
                    )
                )
        return tuple(rows)


def owned_rows(formulation: Formulation, solution: Solution, level: int, currency: str) -> tuple[OwnedRow, ...]:
    """Return a row per kind of owned GPU: their roles at a load level, what they save, and why some are idle."""
    problem, columns, counts, rows = formulation.problem, formulation.columns, solution.counts[level], []
    for p, gpu_pool in enumerate(formulation.gpu_pools):
        if not gpu_pool.owned:
            continue
        mine = [int(j) for j in np.flatnonzero(problem.pool_of == p) if counts[j] > 0]
        names = [formulation.models[columns[j].model].name for j in mine]
        roles = [
            msg(ROLE_MESSAGES[columns[j].replica.role], model=name, n=int(counts[j]), tp=columns[j].replica.tp)
            for j, name in zip(mine, names, strict=True)
        ]
        working = [job.name for k, job in enumerate(problem.jobs) for at, share in solution.jobs[k] if at == p and share > 0]
        roles += [msg("plan.role-job", name=name) for name in working]
        serving = sum(int(counts[j] * problem.uses[j]) for j in mine)
        used = max(serving, gpu_pool.gpus_per_job if working else 0)
        count = int(problem.pools[p].options[0].limit)
        if roles and not problem.spare:
            roles += _value(formulation, solution, p, currency)
        reasons = tuple(_idle_reasons(formulation, solution, p, level, currency)) if used < count else ()
        rows.append(OwnedRow(gpu_pool.gpu.id, gpu_pool.gpu.name, count, used, tuple(roles), reasons))
    return tuple(rows)


def _value(formulation: Formulation, solution: Solution, p: int, currency: str) -> Iterator[Message]:
    """Yield what the GPUs of a pool save: the additional cost of the plan without them."""
    more = saving(formulation.problem, solution, p)
    if more is None:
        yield msg("plan.owned-needed")
    elif more > MIN_CHANGE * solution.cost:
        yield msg("plan.owned-saves", more=significant(more), currency=currency)


def _idle_reasons(formulation: Formulation, solution: Solution, p: int, level: int, currency: str) -> Iterator[Message]:
    """Yield why unused GPUs of pool `p` serve no model: those that cannot, and the cost of using one replica more."""
    gpu_pool = formulation.gpu_pools[p]
    serving = int((solution.counts[level] * formulation.problem.uses)[formulation.problem.pool_of == p].sum())
    idle = int(formulation.problem.pools[p].options[0].limit) - serving
    able = False
    for m, one in enumerate(formulation.models):
        if not one.runs_on(gpu_pool.gpu) and one.engine is not None:
            yield msg("plan.idle-engine", engine=one.engine.name, model=one.name)
        elif (reason := _unable(one, formulation.replicas[m][p], idle)) is not None:
            yield reason
        else:
            able = True
    if able and not formulation.problem.spare:
        yield _unneeded(formulation, solution, p, level, currency)


def _unneeded(formulation: Formulation, solution: Solution, p: int, level: int, currency: str) -> Message:
    """Return what one replica more on GPUs of pool `p`, which could serve some model, would change in the plan's cost."""
    added = added_replica(formulation.problem, solution, p, level)
    if added is None:
        return msg("plan.idle-unneeded")
    column = formulation.columns[added.column]
    values = {"model": formulation.models[column.model].name, "n": column.replica.tp}
    if added.cost <= MIN_CHANGE * solution.cost:
        return msg("plan.idle-equal", share=f"{MIN_CHANGE:.1%}", **values)
    return msg("plan.idle-costs", more=significant(added.cost), currency=currency, **values)


def _unable(model: ServedModel, replicas: Sequence[ReplicaCapacity], idle: int) -> Message | None:
    """Return why `idle` unused GPUs cannot serve a model: too little memory, too slow, or too few; None if they can."""
    able = [one for one in replicas if one.rates.any()]
    if not able:
        if all(one.short == "memory" for one in replicas):
            return msg("plan.idle-memory", model=model.name)
        late = [one for one in replicas if one.short not in ("", "memory")] or list(replicas)
        near = min(late, key=lambda one: one.off)
        limit = getattr(model.objectives, f"{near.short}_max", None) if near.short else None
        if not limit:
            return msg("plan.idle-slow", model=model.name)
        values = {"goal": msg(f"plan.goal-{near.short}"), "limit": format_seconds(limit), "over": f"{near.off:.0%}"}
        return msg("plan.idle-late", model=model.name, **values)
    if (tp := min(one.tp for one in able)) > idle:
        return msg("plan.idle-few", model=model.name, tp=tp)
    return None
