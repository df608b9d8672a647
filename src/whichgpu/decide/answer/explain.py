"""Reasons for choosing a candidate and for not choosing a GPU, stated with the numbers that decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import exp
from typing import TYPE_CHECKING, Any

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory, format_seconds, significant, with_unit
from whichgpu.catalog.offer import ANY_REGION
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.decide.market import FRESH_DAYS, OLD_DAYS
from whichgpu.price.run import HOUR
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    import numpy as np

COMPARED = "because.against"  # Beginning of the ids of reasons that compare a candidate with another.
KEPT_LESS = 0.05  # A faster candidate may be this much less likely to keep its limits (assumed).
COMMITTED_TERMS = ("reserved-1y", "reserved-3y", "committed-1y", "committed-3y")
MAX_SLICES = 16  # A fraction of a GPU is displayed with a denominator of at most this (1/16).
NOTABLE = 1.02  # Billed hours are mentioned if they exceed the hours used by this factor (assumed).
LITTLE_MORE, MUCH_FASTER = 1.1, 1.5  # A candidate of up to this cost that is as many times as fast is named (assumed).
MIN_RERUNS = 0.01  # Fewer expected interruptions per run than this are not mentioned (assumed).


def gpu_count_label(gpus: int | float) -> str:
    """Return a number or fraction of GPUs as text to put before the GPU's name.

    >>> gpu_count_label(8), gpu_count_label(0.125), gpu_count_label(0.3333)
    ('8x', '1/8', '1/3')
    """
    return f"{gpus}x" if isinstance(gpus, int) else str(Fraction(gpus).limit_denominator(MAX_SLICES))


def billed_reason(at: int, candidates: Candidates) -> Message | None:
    """Return a message if over 2% more hours are billed than used, by rounding up or a minimum; None if not, or if committed."""
    paid, used = float(candidates.run_cost.billed[at]), float(candidates.run_cost.hours[at])
    if paid <= used * NOTABLE or candidates.terms.years[at] > 0:
        return None
    id = "because.billed" if candidates.terms.granularity[at] >= HOUR else "because.billed-least"
    return msg(id, billed=significant(paid), hours=significant(used))


def reasons(
    one: Candidate, other: Candidate | None, workload: Workload, serving: bool, memory: Message, billed: Message | None,
    checkpoint_every: float,
) -> tuple[Message, ...]:  # fmt: skip
    """Return the reasons for a candidate: bottleneck, memory, objectives, price, and the comparison with the next best.

    `memory` and `billed` are from `memory_reason` and `billed_reason`; without an `other` nothing is compared. A run on spot
    machines writes a checkpoint each `checkpoint_every` seconds.
    """
    messages = [_speed(one, workload, serving), memory]
    if one.capacity and workload.rate is not None:
        rate = significant(workload.rate)
        simulated = "because.rate-simulated-one" if rate == "1" else "because.rate-simulated"
        id = simulated if one.simulated else "because.rate"
        messages.append(msg(id, n=one.copies * one.parallel.dp, capacity=significant(one.capacity.value), rate=rate))
    if one.max_sequences is not None:
        id = "because.limited-step" if one.max_batched_tokens else "because.limited-sequences"
        messages.append(msg(id, n=one.max_sequences, tokens=f"{one.max_batched_tokens or 0:,}"))
    if one.tpot and workload.tpot_max is not None:
        messages.append(msg("because.tpot", have=format_seconds(one.tpot.value), most=format_seconds(workload.tpot_max)))
    if one.ttft and workload.ttft_max is not None:
        messages.append(msg("because.ttft", have=format_seconds(one.ttft.value), most=format_seconds(workload.ttft_max)))
    axes = tuple(msg(f"axis.{axis}") for axis in one.new_on)
    messages.append(msg("because.tier-new" if axes else "because.tier", tier=msg(f"tier.{one.tier}"), axes=axes))
    if one.keeps_objective is not None or one.keeps_budget is not None:
        messages.append(msg("because.keeps", share=f"{one.keeps_limits:.0%}"))
        if one.expected_cost.amount > one.cost.amount * Decimal(NOTABLE):
            expected = significant(float(one.expected_cost.amount))
            messages.append(msg("because.expected-cost", cost=expected, currency=one.cost.currency))
    messages.append(_price(one))
    if billed is not None:
        messages.append(billed)
    if one.reruns >= 1.0:
        messages.append(msg("because.reruns", reruns=significant(one.reruns, 2), every=format_seconds(checkpoint_every)))
    elif one.reruns >= MIN_RERUNS:  # Interruptions arrive at random, so at least one comes with this probability.
        messages.append(msg("because.rerun-chance", chance=f"{1.0 - exp(-one.reruns):.0%}"))
    if one.break_even_hours is not None:
        messages.append(msg("because.break-even", term=msg(f"term.{one.term}"), hours=significant(one.break_even_hours)))
        used = one.run_time.value / 3600.0
        if float(one.cost.amount) > float(one.cost_per_hour.amount) * used * NOTABLE:
            paid = f"{significant(float(one.cost.amount))} {one.cost.currency}"
            messages.append(msg("because.bound", cost=paid, months=significant(used / MONTH_HOURS)))
    if other is not None:
        cost, time = _ratios(other, one)
        name = {"gpu": other.gpu_name, "gpus": gpu_count_label(other.gpus)}
        against = msg("because.against-service", cost=cost, **name) if serving else None
        messages.append(against or msg("because.against", cost=cost, time=time, **name))
    return tuple(messages)


def memory_reason(one: Candidate, workload: Workload, sequences: int | None, needed: float) -> Message:
    """Return a message with the bytes that each GPU needs; those of a service count its `sequences` that run at once."""
    values = {"need": format_memory(int(needed)), "usable": format_memory(one.usable)}
    if sequences is not None:
        return msg("because.memory-served", n=sequences, **values)
    return msg("because.memory-training" if _with_master_weights(one, workload) else "because.memory", **values)


def _with_master_weights(one: Candidate, workload: Workload) -> bool:
    """Return whether all weights are trained in mixed precision, which keeps them in fp32 as well."""
    adam = workload.optimizer is None or "adam" in workload.optimizer
    return workload.training and adam and not workload.lora_rank and one.precision.startswith("amp-")


def _speed(one: Candidate, workload: Workload, serving: bool) -> Message:
    """Return a message with the throughput per second: the request rate of a service if one is given, else the maximum."""
    bound = msg(f"bound.{one.bound}")
    if serving and one.tpot and workload.rate is not None:
        return msg("because.speed-served", rate=significant(workload.rate * float(workload.seq_out or 1)), bound=bound)
    return msg("because.speed", rate=with_unit(one.throughput.value, one.throughput.unit), bound=bound)


def _price(one: Candidate) -> Message:
    """Return a message with the price per hour, its provider, and the day it was observed."""
    hour = f"{significant(float(one.cost_per_hour.amount))} {one.cost_per_hour.currency}"
    if one.purchase is not None:
        paid = f"{significant(float(one.purchase.amount))} {one.purchase.currency}"
        return msg(f"because.price-{one.purchase_basis}", price=paid, hour=hour, day=one.purchase_day or "")
    if one.term == "owned":
        return msg("because.price-owned", hour=hour)
    values = {"price": hour, "provider": one.provider, "region": one.region, "day": one.price_observed_at}
    id = "because.price-anywhere" if one.region in ("", ANY_REGION) else "because.price-term"
    return msg(id, term=msg(f"term.{one.term}"), **values)


def cheaper_reason(best: Candidate, cheaper: Candidate, tie: str) -> Message | None:
    """Return why a candidate that costs less is not the answer: a tie (`tie` says why), old price, tight memory, or its limits.

    None if it does not cost less, or if the order by something other than cost explains it.
    """
    if cheaper.cost.amount >= best.cost.amount:
        return None
    share = 1.0 - float(cheaper.cost.amount) / max(float(best.cost.amount), 1e-12)
    values = {
        "gpus": gpu_count_label(cheaper.gpus), "gpu": cheaper.gpu_name, "provider": cheaper.provider,
        "share": f"{share:.0%}" if share >= 0.01 else f"{share:.1%}",
    }  # fmt: skip
    if tie:
        return msg(f"because.tie-{tie}", **values)
    if cheaper.fits == "tight" and cheaper.term in COMMITTED_TERMS:
        return msg("because.tight-cheaper", term=msg(f"term.{cheaper.term}"), **values)
    if age_class(cheaper) > age_class(best):
        return msg("because.stale-cheaper", n=cheaper.price_age_days, day=cheaper.price_observed_at, **values)
    if cheaper.term == "spot" != best.term and age_class(cheaper):  # Old prices of other terms are not held against a run.
        return msg("because.stale-spot", n=cheaper.price_age_days, day=cheaper.price_observed_at, **values)
    if cheaper.keeps_limits < min(SAFE_PROBABILITY, best.keeps_limits):
        return msg("because.risky-cheaper", likely=f"{cheaper.keeps_limits:.0%}", **values)
    return None


def faster_reason(best: Candidate, rows: Sequence[Candidate], rate: float | None) -> Message | None:
    """Return a message on the row that is much faster than the answer for little more money; None if there is none.

    Speed is that of one user's tokens, or of the whole run; a service with a request `rate` is judged by its capacity.
    """
    limit = float(best.cost.amount) * LITTLE_MORE
    near = [one for one in rows if best.cost.amount <= one.cost.amount and float(one.cost.amount) <= limit]
    near = [one for one in near if age_class(one) <= age_class(best) and one.keeps_limits >= best.keeps_limits - KEPT_LESS]
    speeds = {at: speed for at, one in enumerate(near) if (speed := _speed_ratio(one, best, rate)) >= MUCH_FASTER}
    if not speeds or not best.cost.amount:
        return None
    at = max(speeds, key=lambda at: speeds[at] * float(best.cost.amount) / float(near[at].cost.amount))
    one, more = near[at], float(near[at].cost.amount / best.cost.amount) - 1.0
    id = f"{COMPARED}-faster" if rate is None else f"{COMPARED}-roomier"
    values = {"gpus": gpu_count_label(one.gpus), "gpu": one.gpu_name, "speed": significant(speeds[at], 2)}
    return msg(id, more=f"{more:.0%}" if more >= 0.01 else f"{more:.1%}", **values)


def _speed_ratio(one: Candidate, base: Candidate, rate: float | None) -> float:
    """Return how many times as fast as `base` a candidate is, or how many times as roomy if a service has a request rate."""
    if rate is not None and one.capacity and base.capacity:
        return one.capacity.value / base.capacity.value
    if one.tpot and base.tpot:
        return base.tpot.value / one.tpot.value if rate is None else 1.0
    return base.run_time.value / max(one.run_time.value, 1e-12)


def age_class(one: Candidate) -> int:
    """Return 0 for a fresh price, 1 for one older than 45 days, 2 for one older than 180."""
    return (one.price_age_days > FRESH_DAYS) + (one.price_age_days > OLD_DAYS)


def _ratios(one: Candidate, base: Candidate) -> tuple[str, str]:
    """Return cost and run time of candidate `one` as multiples of those of candidate `base`, formatted as text."""
    cost = float(one.cost.amount) / max(float(base.cost.amount), 1e-12)
    return significant(cost), significant(one.run_time.value / max(base.run_time.value, 1e-12))


def why_not(
    gpu: str, name: str, candidates: Candidates, groups: Groups, results: Sequence[GroupResult], best: Candidate,
    one: Candidate | None, serving: bool,
) -> tuple[Message, ...]:  # fmt: skip
    """Return why a GPU is not the answer: its best candidate `one` against `best`, or the limits that removed all it has."""
    if one is not None:
        return (_why_worse(one, best, serving),)
    reasons: Counter[str] = Counter()
    for at, result in enumerate(results):
        if groups.groups[at].gpu.id != gpu:
            continue
        if isinstance(result, Infeasibility):
            reasons[result.reason] += 1
            continue
        for reason, lost in candidates.missed.items():
            reasons[reason] += int(((candidates.group == at) & lost).any())
    if not reasons:
        return (msg("why-not.no-offer", gpu=name),)
    plural = 2  # This selects the plural verb of the message, to agree with "its candidates".
    why = tuple(msg(f"rejected.{reason}", n=plural) for reason, n in reasons.most_common() if n)
    return (msg("why-not.removed", gpu=name, why=why),)


def _why_worse(one: Candidate, best: Candidate, serving: bool) -> Message:
    if one.gpu == best.gpu and one.gpus == best.gpus:
        return msg("why-not.is-answer", gpu=one.gpu_name)
    cost, time = _ratios(one, best)
    values = {"gpu": one.gpu_name, "gpus": gpu_count_label(one.gpus), "cost": cost, "bound": msg(f"bound.{one.bound}")}
    return msg("why-not.worse-service", **values) if serving else msg("why-not.worse", time=time, **values)


def order_rules(candidates: Candidates, order: np.ndarray) -> tuple[Message, ...]:
    """Return a note if GPUs that software supports badly come after the others, whatever the order is by."""
    poor = candidates.poorly_supported[order]
    return (msg("assumed.support-last"),) if poor.any() and not poor[0] else ()


def offer_of(one: Candidate) -> tuple[Any, ...]:
    """Return what distinguishes a candidate from others: its GPUs, precision, machine, place and term."""
    return one.gpu, one.gpus, one.precision, one.provider, one.instance, one.region, one.term
