"""Why this one: sentences built from the numbers that decided, for every candidate shown and for any GPU asked after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory, format_seconds, significant, with_unit
from whichgpu.catalog.offer import ANY_REGION
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Groups
from whichgpu.price.run import HOUR
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

MOST_PARTS = 16  # a GPU is ever cut into
MORE = 1.02  # times the use: what is billed beyond is told


def gpu_count_label(gpus: int | float) -> str:
    """A number of GPUs before their name.

    >>> gpu_count_label(8), gpu_count_label(0.125), gpu_count_label(0.3333)
    ('8x', '1/8', '1/3')
    """
    return f"{gpus}x" if isinstance(gpus, int) else str(Fraction(gpus).limit_denominator(MOST_PARTS))


@dataclass(frozen=True, slots=True)
class Billed:
    """Hours of a machine that are paid for, and those that are used, where they differ."""

    paid: float
    used: float
    by_the_hour: bool


def billed_of(place: int, told: Candidates) -> Billed | None:
    """What is billed beyond the use; None where that is next to nothing, or where hours are bound anyway."""
    paid, used = float(told.course.billed[place]), float(told.course.hours[place])
    if paid <= used * MORE or told.terms.years[place] > 0:
        return None
    return Billed(paid, used, bool(told.terms.granularity[place] >= HOUR))


def because(
    one: Candidate, other: Candidate | None, workload: Workload, serving: bool, listed: str | None, billed: Billed | None = None
) -> tuple[Message, ...]:
    """What decided for a candidate: its bound, its room, its objectives, its price, and how it stands to the next best.

    `listed` is the day a card's list price is of; None where the user gave a price.
    """
    said = [
        _speed(one, workload, serving),
        msg("because.memory", need=format_memory(int(one.memory.value)), usable=format_memory(one.usable)),
    ]
    if one.capacity and workload.rate is not None:
        asked = significant(workload.rate)
        simulated = "because.rate-simulated-one" if asked == "1" else "because.rate-simulated"
        id = simulated if one.simulated else "because.rate"
        said.append(msg(id, n=one.copies * one.parallel.dp, capacity=significant(one.capacity.value), rate=asked))
    if one.tpot and workload.tpot_max is not None:
        said.append(msg("because.tpot", have=format_seconds(one.tpot.value), most=format_seconds(workload.tpot_max)))
    if one.ttft and workload.ttft_max is not None:
        said.append(msg("because.ttft", have=format_seconds(one.ttft.value), most=format_seconds(workload.ttft_max)))
    said.append(_price(one, listed))
    if billed is not None:
        id = "because.billed" if billed.by_the_hour else "because.billed-least"
        said.append(msg(id, billed=significant(billed.paid), hours=significant(billed.used)))
    if one.reruns >= 0.01:
        said.append(msg("because.reruns", reruns=significant(one.reruns)))
    if one.break_even_hours is not None:
        said.append(msg("because.break-even", term=msg(f"term.{one.term}"), hours=significant(one.break_even_hours)))
        used = one.run_time.value / 3600.0
        if float(one.cost.amount) > float(one.cost_per_hour.amount) * used * MORE:
            paid = f"{significant(float(one.cost.amount))} {one.cost.currency}"
            said.append(msg("because.bound", cost=paid, months=significant(used / MONTH_HOURS)))
    if other is not None:
        said.append(_against(one, other, serving))
    return tuple(said)


def _speed(one: Candidate, workload: Workload, serving: bool) -> Message:
    """What it does a second: of a service with a rate, what that load asks of it; else all it can."""
    bound = msg(f"bound.{one.bound}")
    if serving and one.tpot and workload.rate is not None:
        return msg("because.speed-served", rate=significant(workload.rate * float(workload.seq_out or 1)), bound=bound)
    return msg("because.speed", rate=with_unit(one.throughput.value, one.throughput.unit), bound=bound)


def _price(one: Candidate, listed: str | None) -> Message:
    """What its hour costs, from whom, and since when that is known."""
    hour = f"{significant(float(one.cost_per_hour.amount))} {one.cost_per_hour.currency}"
    if one.purchase is not None:
        paid = f"{significant(float(one.purchase.amount))} {one.purchase.currency}"
        return msg("because.price-list" if listed else "because.price-given", price=paid, hour=hour, day=listed or "")
    if one.term == "owned":
        return msg("because.price-owned", hour=hour)
    values = {"price": hour, "provider": one.provider, "region": one.region, "day": one.price_observed_at}
    id = "because.price-anywhere" if one.region in ("", ANY_REGION) else "because.price-term"
    return msg(id, term=msg(f"term.{one.term}"), **values)


def _against(one: Candidate, other: Candidate, serving: bool) -> Message:
    """How it stands to another, in cost and, where there is a run, in time."""
    cost = float(other.cost.amount) / max(float(one.cost.amount), 1e-12)
    time = other.run_time.value / max(one.run_time.value, 1e-12)
    name = {"gpu": other.gpu_name, "gpus": gpu_count_label(other.gpus)}
    if serving:
        return msg("because.against-service", cost=significant(cost), **name)
    return msg("because.against", cost=significant(cost), time=significant(time), **name)


def why_not(
    gpu: str, name: str, told: Candidates, groups: Groups, outcomes: Sequence[GroupResult], best: Candidate,
    one: Candidate | None,
    serving: bool,
) -> tuple[Message, ...]:  # fmt: skip
    """Why a GPU is not the answer: how its best candidate compares, or what removed it."""
    if one is not None:
        return (_why_worse(one, best, serving),)
    reasons: Counter[str] = Counter()
    for place, outcome in enumerate(outcomes):
        if groups.groups[place].gpu.id != gpu:
            continue
        if isinstance(outcome, Infeasibility):
            reasons[outcome.reason] += 1
            continue
        mine = told.group == place
        for reason, lost in told.missed.items():
            reasons[reason] += int((mine & lost).any())
    if not reasons:
        return (msg("why-not.no-offer", gpu=name),)
    many = 2  # its candidates, whose verb is theirs
    why = tuple(msg(f"rejected.{reason}", n=many) for reason, n in reasons.most_common() if n)
    return (msg("why-not.removed", gpu=name, why=why),)


def _why_worse(one: Candidate, best: Candidate, serving: bool) -> Message:
    if one.gpu == best.gpu and one.gpus == best.gpus:
        return msg("why-not.is-answer", gpu=one.gpu_name)
    cost = float(one.cost.amount) / max(float(best.cost.amount), 1e-12)
    time = one.run_time.value / max(best.run_time.value, 1e-12)
    values = {
        "gpu": one.gpu_name,
        "gpus": gpu_count_label(one.gpus),
        "cost": significant(cost),
        "bound": msg(f"bound.{one.bound}"),
    }
    return msg("why-not.worse-service", **values) if serving else msg("why-not.worse", time=significant(time), **values)
