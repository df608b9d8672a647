"""What a recommendation shows of a candidate: the few that are shown, as rich objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.catalog.currency import round_significant
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.capacity_bound import waits
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group, Groups
from whichgpu.decide.configurations.ranges import TimeRange, time_range
from whichgpu.decide.market import Market
from whichgpu.decide.work import Work
from whichgpu.estimate.fit import Verdict
from whichgpu.price.asof import STALE_DAYS
from whichgpu.price.run import committed_years
from whichgpu.price.terms import MONTH_HOURS, YEAR_HOURS
from whichgpu.workload.workload import Parallel, Workload


@dataclass(frozen=True, slots=True)
class Cost:
    """Money with the range its time gives it."""

    amount: Decimal
    low: Decimal
    high: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run it: GPUs, machine, terms, layout, and what it takes. `run_time` is the whole run's, seconds.

    Under a rate of requests `throughput`, `ttft` and `tpot` are those of that load, `capacity` is what it could bear; `time` is
    between tokens with `batch` sequences in hand. Answers of one token have no `tpot`.
    """

    gpu: str
    gpu_name: str
    gpus: int | float  # of all copies; less than one of a slice
    copies: int
    machines: int
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
    capacity: Figure | None  # requests a second of all copies
    simulated: int | None  # requests whose waits were simulated; None where formulas say them
    memory: Figure
    usable: int
    fits: Verdict
    bound: str
    run_time: Figure
    reruns: float
    cost: Cost
    cost_lines: Mapping[str, Money]
    cost_per_hour: Money
    cost_per_month: Money
    cost_per_million_tokens: Cost | None
    cost_per_thousand_samples: Cost | None
    cost_per_epoch: Cost | None
    break_even_hours: float | None
    round_trip: float | None
    price: Money  # of one machine, an hour
    purchase: Money | None  # of all its GPUs, where they are bought
    price_observed_at: str
    price_age_days: int
    price_stale: bool
    includes: str
    tier: str
    because: tuple[Message, ...]
    source: str


@dataclass(frozen=True, slots=True)
class TermLine:
    """What the answer's machine costs on one term: an hour, and the hours that are bound."""

    term: str
    payment: str | None
    price: Money
    bound_hours: float


def term_lines(one: Candidate, found: Market) -> tuple[TermLine, ...]:
    """Every term the machine is offered on where the answer has it, cheapest hour first."""
    table = found.table.taken(found.rows)
    mine = (
        table.named("provider", (one.provider,)) & table.named("instance", (one.instance,)) & table.named("region", (one.region,))
    )
    lines = [
        TermLine(
            table.word("term", row),
            table.word("payment", row) or None,
            money(float(found.price[row]), one.price.currency),
            committed_years(table.word("term", row)) * YEAR_HOURS,
        )
        for row in mine.nonzero()[0].tolist()
    ]
    return tuple(sorted(lines, key=lambda line: line.price.amount))


def build_candidate(
    place: int, told: Candidates, found: Market, groups: Groups, asked: WorkloadRequest, work: Work, currency: str,
    because: tuple[Message, ...] = (),
) -> Candidate:  # fmt: skip
    """The candidate at a place."""
    group, way = groups.groups[int(told.group[place])], told.ways[int(told.group[place])]
    assert way is not None
    offer = int(told.offer[place])
    row = int(found.rows[offer])
    table, copies = found.table, int(told.copies[place])
    sure = time_range(asked, group, way)
    spoken = asked.workload.serving and way.kind == "generate"
    served, (first, each) = way.served, waits(asked.workload, way)
    seen = min(int(table.days[1][row]), found.day.toordinal())
    age = found.day.toordinal() - seen
    even = float(told.course.break_even[place])
    trip = float(found.round_trip[offer])
    return Candidate(
        gpu=group.gpu.id, gpu_name=group.gpu.name, gpus=_whole(float(told.gpus[place])), copies=copies,
        machines=group.machines * copies,
        instance=table.word("instance", row), provider=table.word("provider", row), region=table.word("region", row),
        term=table.word("term", row), payment=table.word("payment", row) or None, precision=way.precision, parallel=way.parallel,
        batch=way.batch, micro_batch=way.micro_batch, accumulation=way.accumulation, checkpointing=way.checkpointing,
        time=sure.seconds(way.seconds), throughput=_throughput(asked.workload, way, copies, sure, spoken),
        ttft=_waited(way, sure, first, 0) if way.ttft is not None else None,
        tpot=_waited(way, sure, each, 1) if spoken and asked.workload.seq_out != 1 else None,
        capacity=_capacity(way, copies, sure),
        simulated=served.requests if served else None,
        memory=Figure(float(way.need), way.need * 0.95, way.need * 1.05, "byte", "modelled"), usable=way.usable, fits=way.fits,
        bound=way.bound, run_time=_run_time(told, place, sure, work), reruns=round(float(told.course.reruns[place]), 3),
        **_money(told, place, sure, work, currency),
        break_even_hours=round(even, 1) if even == even else None,
        round_trip=trip if trip == trip else None, price=money(float(found.price[offer]), currency),
        purchase=None, price_observed_at=date.fromordinal(seen).isoformat(), price_age_days=age, price_stale=age > STALE_DAYS,
        includes=table.word("includes", row), tier=sure.tier, because=because, source=table.word("source", row),
    )  # fmt: skip


def _whole(count: float) -> int | float:
    """A number of GPUs: whole, or the share of one.

    >>> _whole(8.0), _whole(0.125)
    (8, 0.125)
    """
    return int(count) if count == int(count) else round(count, 4)


def _waited(way: Configuration, sure: TimeRange, seconds: float, which: int) -> Figure:
    """What users wait, with its range: under a load, slower steps find more at work and are slower still; none beats physics."""
    plain = sure.seconds(seconds)
    if way.served is None:
        return plain
    least = way.floor / way.seconds * seconds if way.seconds else 0.0
    low = min(seconds, max(way.served.fast[which], least, way.lightest))
    return replace(plain, low=low, high=max(seconds, way.served.slow[which]))


def _capacity(way: Configuration, copies: int, sure: TimeRange) -> Figure | None:
    """Requests a second that all copies bear with their objectives kept."""
    each = way.bears or way.capacity
    return None if each is None else sure.rate(each * copies, "requests/s")


def _throughput(workload: Workload, way: Configuration, copies: int, sure: TimeRange, spoken: bool) -> Figure:
    """Work a second of all copies: of a service under a rate what that load asks for, as `estimate` tells it; else all they can.

    Less than is asked for is answered where they are so slow as to bear less.
    """
    if not spoken or workload.rate is None or way.capacity is None:
        return sure.rate(way.rate * copies, way.unit)
    tokens = float(workload.seq_out or 1)
    bears = _capacity(way, copies, sure)
    least = min(workload.rate, bears.low if bears else workload.rate)
    asked = workload.rate * tokens
    return Figure(asked, least * tokens, asked, way.unit, sure.basis, sure.sources)


def _run_time(told: Candidates, place: int, sure: TimeRange, work: Work) -> Figure:
    seconds = float(told.course.hours[place]) * 3600.0
    if work.hours is not None:
        return Figure.exact(seconds, "s", "modelled")
    low, high = told.stretched(place, (sure.low, sure.high)).hours.tolist()
    return Figure(seconds, low * 3600.0, high * 3600.0, "s", sure.basis, sure.sources)


def _money(told: Candidates, place: int, sure: TimeRange, work: Work, currency: str) -> dict[str, Any]:
    """Every way the money is told."""
    run = told.course
    whole = float(run.cost[place])
    steady = work.hours is not None  # a service costs the same however fast its GPUs are
    low, high = 1.0, 1.0
    if not steady and whole > 0:  # as it would be billed at either end
        low, high = (told.stretched(place, (sure.low, sure.high)).cost / whole).tolist()
    lines = {name: float(getattr(run, name)[place]) for name in ("machine", "host", "disk", "egress")}
    unit = float(told.per_unit[place]) if steady else whole / (work.amount or 1.0)

    def cost(value: float) -> Cost:
        return Cost(_decimal(value), _decimal(value * low), _decimal(value * high), currency)

    tokens = work.unit == "tokens"
    return {
        "cost": cost(whole),
        "cost_lines": {name: money(value, currency) for name, value in lines.items() if value or name == "machine"},
        "cost_per_hour": money(float(told.per_hour[place]), currency),
        "cost_per_month": money(float(told.per_hour[place]) * MONTH_HOURS, currency),
        "cost_per_million_tokens": cost(unit * 1e6) if tokens else None,
        "cost_per_thousand_samples": None if tokens else cost(unit * 1e3),
        "cost_per_epoch": cost(unit * work.per_epoch) if work.per_epoch else None,
    }


def money(value: float, currency: str) -> Money:
    """A computed amount, to six digits."""
    return Money(_decimal(value), currency)


def _decimal(value: float) -> Decimal:
    return round_significant(Decimal(repr(value)))


def group_at(place: int, told: Candidates, groups: Groups) -> tuple[Group, Configuration]:
    """The group and way of a place."""
    way = told.ways[int(told.group[place])]
    assert way is not None
    return groups.groups[int(told.group[place])], way
