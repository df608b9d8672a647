"""A candidate as displayed: a configuration on an offer, with times, memory and cost as figures with ranges."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.catalog.currency import round_significant
from whichgpu.catalog.offer import STALE_DAYS
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.capacity_bound import expected_latency
from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.ranges import TimeRange, time_range
from whichgpu.decide.market import Market
from whichgpu.decide.question import ANY_MODEL, EvaluatedQuestion
from whichgpu.decide.refine import workload_of
from whichgpu.decide.risk import chances
from whichgpu.decide.work import Work
from whichgpu.estimate.fit import Verdict, required_memory
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.price.run import committed_years
from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS
from whichgpu.workload.workload import Parallel, Workload


class Cost(msgspec.Struct, frozen=True):
    """An amount of money with the 90% range that follows from the range of the estimated time."""

    amount: Decimal
    low: Decimal
    high: Decimal
    currency: str


class Candidate(msgspec.Struct, frozen=True):
    """One candidate: GPUs, machine, term and layout, with times, memory and money. `run_time` is the seconds of the whole run.

    At a request rate, `throughput`, `ttft` and `tpot` are those of that load, and `capacity` is the highest rate that keeps the
    objectives; `time` is between tokens with `batch` running sequences. Answers of one token have no `tpot`.
    """

    gpu: str
    gpu_name: str
    gpu_memory: str  # of one GPU, as it is sold: 24 GB
    gpus: int | float  # of all replicas; less than one for a slice
    copies: int
    machines: int
    watts: float | None  # power of the GPUs at their limit and of their machines; None if unknown
    instance: str
    provider: str
    region: str
    term: str
    payment: str | None
    precision: str
    parallel: Parallel
    batch: int
    micro_batch: int | None
    accumulation: int
    checkpointing: str
    time: Figure
    throughput: Figure
    ttft: Figure | None
    tpot: Figure | None
    capacity: Figure | None  # requests a second of all replicas
    simulated: int | None  # requests simulated; None if formulas gave the latencies
    memory: Figure  # peak the framework allocates on each GPU; at a request rate, with one running sequence
    memory_device: Figure  # the same with CUDA context and all that the engine reserves
    needed: Figure  # bytes each GPU must have free
    usable: int
    fits: Verdict
    bound: str
    run_time: Figure
    reruns: float
    cost: Cost
    expected_cost: Money  # mean over the range of the step time; a service adds the replicas it then needs
    keeps_objective: float | None  # probability that latency objectives or the deadline hold; None without any
    keeps_budget: float | None  # probability that the budget holds; None without one
    cost_lines: Mapping[str, Money]
    cost_per_hour: Money
    cost_per_month: Money
    cost_per_million_tokens: Cost | None
    cost_per_thousand_samples: Cost | None
    cost_per_epoch: Cost | None
    break_even_hours: float | None
    round_trip: float | None
    price: Money  # of one machine, per hour
    purchase: Money | None  # of all its GPUs, if they are bought
    purchase_basis: str | None  # used, street, list or given, if they are bought
    purchase_day: str | None  # day of that price
    price_observed_at: str
    price_age_days: int
    price_stale: bool
    includes: str
    tier: str
    new_on: tuple[str, ...]  # axes on which its step was never measured
    because: tuple[Message, ...]
    source: str
    max_sequences: int | None = None  # most running sequences of each replica that keep TPOT; None: the engine's default
    max_batched_tokens: int | None = None  # most tokens of a step of each replica that keep TPOT; None: the engine's default

    @property
    def keeps_limits(self) -> float:
        """Return the probability that objectives and budget hold, as if independent of each other; 1 without any limit."""
        return (1.0 if self.keeps_objective is None else self.keeps_objective) * (
            1.0 if self.keeps_budget is None else self.keeps_budget
        )


class TermLine(msgspec.Struct, frozen=True):
    """One line of the answer's price comparison: its machine on one term (spot, reserved, ...), per hour, and hours committed."""

    term: str
    payment: str | None
    price: Money
    bound_hours: float


def term_lines(one: Candidate, market: Market) -> tuple[TermLine, ...]:
    """Return every term on which the candidate's machine is offered in its region, cheapest price per hour first."""
    table = market.table.select_rows(market.rows)
    names = {"provider": one.provider, "instance": one.instance, "region": one.region}
    same = np.all([table.matches(column, (name,)) for column, name in names.items()], axis=0)
    lines = [
        TermLine(
            table.word("term", row),
            table.word("payment", row) or None,
            money(float(market.price[row]), one.price.currency),
            committed_years(table.word("term", row)) * YEAR_HOURS,
        )
        for row in np.flatnonzero(same).tolist()
    ]
    return tuple(sorted(lines, key=lambda line: line.price.amount))


def build_candidate(at: int, candidates: Candidates, question: EvaluatedQuestion) -> Candidate:
    """Return the displayable candidate at an index of the arrays; reasons and purchase price are added later."""
    request, work, market = question.request, question.work, question.selection.market
    workload, currency = request.workload, question.selection.constraints.currency
    group, one = group_at(at, candidates, question)
    offer = int(candidates.offer[at])
    row = int(market.rows[offer])
    table, copies = market.table, int(candidates.copies[at])
    evidence = time_range(request, group, one)
    odds = chances(at, candidates, question, one, evidence)
    generates = workload.serving and one.kind == "generate"
    ttft, tpot = expected_latency(workload, one)
    today = market.day.toordinal()
    observed = min(int(table.days[1][row]), today)
    break_even = float(candidates.run_cost.break_even[at])
    trip = float(market.round_trip[offer])
    return Candidate(
        gpu=group.gpu.id, gpu_name=group.gpu.name, gpu_memory=group.gpu.memory_label,
        gpus=_whole(float(candidates.gpus[at])), copies=copies, machines=group.machines * copies,
        watts=watts if isfinite(watts := float(candidates.watts[at])) else None,
        instance=table.word("instance", row), provider=table.word("provider", row), region=table.word("region", row),
        term=table.word("term", row), payment=table.word("payment", row) or None, precision=one.precision, parallel=one.parallel,
        batch=one.batch, micro_batch=one.micro_batch, accumulation=one.accumulation, checkpointing=one.checkpointing,
        time=evidence.seconds(one.seconds), throughput=_throughput(workload, one, copies, evidence, generates),
        ttft=_latency(one, evidence, ttft, 0) if one.ttft is not None else None,
        tpot=_latency(one, evidence, tpot, 1) if generates and workload.seq_out != 1 else None,
        capacity=_capacity(one, copies, evidence),
        simulated=one.simulation.requests if one.simulation else None,
        **_memory(question, group, one), usable=one.usable, fits=one.fits,
        bound=one.bound, run_time=_run_time(candidates, at, evidence, work),
        reruns=round(float(candidates.run_cost.reruns[at]), 3), **_costs(candidates, at, evidence, question),
        expected_cost=money(odds.expected_cost, currency), keeps_objective=_rounded(odds.keeps_objective),
        keeps_budget=_rounded(odds.keeps_budget),
        break_even_hours=round(break_even, 1) if break_even == break_even else None,
        round_trip=trip if trip == trip else None, price=money(float(market.price[offer]), currency),
        purchase=None, purchase_basis=None, purchase_day=None,
        price_observed_at=date.fromordinal(observed).isoformat(), price_age_days=today - observed,
        price_stale=today - observed > STALE_DAYS, includes=table.word("includes", row), tier=evidence.tier,
        new_on=evidence.new_on, because=(), source=table.word("source", row), max_sequences=one.overrides.max_sequences,
        max_batched_tokens=one.overrides.max_batched_tokens,
    )  # fmt: skip


def group_at(at: int, candidates: Candidates, question: EvaluatedQuestion) -> tuple[Group, Configuration]:
    """Return the group of GPUs and the configuration (layout, batch, precision) of the candidate at an index of the arrays."""
    return question.groups.groups[int(candidates.group[at])], candidates.configuration_at(at)


def _memory(question: EvaluatedQuestion, group: Group, one: Configuration) -> dict[str, Any]:
    """Return `memory`, `memory_device` and `needed` of a candidate as `estimate` and `fit` give them for the same request."""
    request = question.request
    if request.shape is ANY_MODEL:
        need = Figure(float(one.need), one.need * 0.95, one.need * 1.05, "byte", "modelled")
        return {"memory": need, "memory_device": need, "needed": need}
    workload = workload_of(with_precision(request.workload, one.precision, request.stated), group, one)
    if workload.rate is not None and "batch" not in request.stated:
        workload = replace(workload, batch=one.parallel.dp, micro_batch=None)
    estimate = estimate_memory(workload, request.shape, group.gpu)
    return {"memory": estimate.allocated, "memory_device": estimate.device, "needed": required_memory(estimate, workload)}


def _whole(count: float) -> int | float:
    """Return a number of GPUs as an int if whole, else as a fraction rounded to four digits.

    >>> _whole(8.0), _whole(0.125)
    (8, 0.125)
    """
    return int(count) if count == int(count) else round(count, 4)


def _latency(one: Configuration, evidence: TimeRange, seconds: float, which: int) -> Figure:
    """Return a latency (`which` 0: TTFT, 1: TPOT) in seconds with its 90% range; at the high end queues are longer, too."""
    plain = evidence.seconds(seconds)
    if one.simulation is None:
        return plain
    floor = one.floor / one.seconds * seconds if one.seconds else 0.0
    low = min(seconds, max(one.simulation.fast[which], floor, one.min_tpot))
    return replace(plain, low=low, high=max(seconds, one.simulation.slow[which]))


def _capacity(one: Configuration, copies: int, evidence: TimeRange) -> Figure | None:
    """Return the request rate per second that all replicas together sustain within their objectives; None if unknown."""
    each = one.max_rate or one.capacity
    return None if each is None else evidence.rate(each * copies, "requests/s")


def _throughput(workload: Workload, one: Configuration, copies: int, evidence: TimeRange, generates: bool) -> Figure:
    """Return the throughput of all replicas per second: the load of a generating service if it has one, else the maximum.

    The low end is below the load if replicas with slower steps could not sustain it.
    """
    if not generates or workload.rate is None or one.capacity is None:
        return evidence.rate(one.rate * copies, one.unit)
    tokens = float(workload.seq_out or 1)
    capacity = _capacity(one, copies, evidence)
    low = min(workload.rate, capacity.low if capacity else workload.rate)
    value = workload.rate * tokens
    return Figure(value, low * tokens, value, one.unit, evidence.basis, evidence.sources)


def _run_time(candidates: Candidates, at: int, evidence: TimeRange, work: Work) -> Figure:
    seconds = float(candidates.run_cost.hours[at]) * 3600.0
    if work.hours is not None:
        return Figure.exact(seconds, "s", "modelled")
    low, high = candidates.stretched(at, (evidence.low, evidence.high)).hours.tolist()
    return Figure(seconds, low * 3600.0, high * 3600.0, "s", evidence.basis, evidence.sources)


def _costs(candidates: Candidates, at: int, evidence: TimeRange, question: EvaluatedQuestion) -> dict[str, Any]:
    """Return the candidate's money fields: cost of the run, its parts, and cost per hour, month, token or sample, and epoch."""
    run, work, constraints = candidates.run_cost, question.work, question.selection.constraints
    currency = constraints.currency
    total = float(run.cost[at])
    service = work.hours is not None  # A service costs the same however fast its GPUs are.
    low, high = 1.0, 1.0
    if not service and total > 0:  # The range of the cost is what would be billed at either end of the time's range.
        low, high = (candidates.stretched(at, (evidence.low, evidence.high)).cost / total).tolist()
    lines = {name: float(getattr(run, name)[at]) for name in ("machine", "host", "disk", "egress")}
    per_hour = float(candidates.per_hour[at])
    unit = float(candidates.per_unit[at]) if service else total / (work.amount or 1.0)

    def cost(value: float) -> Cost:
        return Cost(_decimal(value), _decimal(value * low), _decimal(value * high), currency)

    tokens = work.unit == "tokens"
    return {
        "cost": cost(total),
        "cost_lines": {name: money(value, currency) for name, value in lines.items() if value or name == "machine"},
        "cost_per_hour": money(per_hour, currency),
        "cost_per_month": money(per_hour * MONTH_HOURS * constraints.worked_share, currency),
        "cost_per_million_tokens": cost(unit * 1e6) if tokens else None,
        "cost_per_thousand_samples": None if tokens else cost(unit * 1e3),
        "cost_per_epoch": cost(unit * work.per_epoch) if work.per_epoch else None,
    }


def _rounded(probability: float | None) -> float | None:
    """Return a probability to two digits, at most 0.99: no range says more."""
    return None if probability is None else min(0.99, round(probability, 2))


def money(value: float, currency: str) -> Money:
    """Return an amount rounded to six significant digits, in a currency."""
    return Money(_decimal(value), currency)


def _decimal(value: float) -> Decimal:
    return round_significant(Decimal(repr(value)))
