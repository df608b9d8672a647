"""Messages under the table of a plan."""

from __future__ import annotations

from decimal import Decimal

from whichgpu.base.messages import Message, msg
from whichgpu.base.money import Money
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.candidate import Cost
from whichgpu.decide.interrupted import PoliciesAnswer
from whichgpu.decide.plan.plan_answer import MAX_PROBABILITY, BillRow, CheckRow, JobRow, PlanAnswer, format_range
from whichgpu.decide.roles.roles_answer import DesignsAnswer, RolesAnswer


def plan_lines(answer: PlanAnswer) -> list[Message]:
    """Return the messages under the table of a plan (bill, simulation, jobs and so on), in reading order."""
    currency, hourly = answer.bound.currency, answer.cost_per_hour
    bill = {"hour": _cost(hourly), "low": significant(float(hourly.low)), "high": significant(float(hourly.high))}
    bill |= {"month": _cost(answer.cost_per_month), "whole": _cost(answer.cost), "hours": f"{answer.horizon_hours:,.0f}"}
    bound = {"bound": _exact(answer.bound.amount), "cost": _exact(hourly.amount), "gap": f"{answer.gap:.2%}"}
    search = {"offers": f"{answer.offers:,}", "columns": answer.columns, "program": answer.program}
    bound_id = "plan.bound" if answer.offers else "plan.bound-owned"
    lines = [
        msg("plan.bill", currency=currency, **bill),
        msg(bound_id, free=f"{answer.headroom:.0%}", currency=currency, **bound, **search),
    ]
    if len(answer.levels) > 1:
        for level in answer.levels:
            values = {"share": f"{level.share:.0%}", "rate": significant(sum(level.rates.values())), "n": level.gpus}
            lines.append(msg("plan.level", cost=_cost(level.cost_per_hour), currency=currency, **values))
        lines += [_bill(row, currency) for row in answer.bill]
    lines += [msg("recommend.because", what=one) for one in dict.fromkeys(one for row in answer.groups for one in row.because)]
    alone = tuple(
        msg("plan.alone", gpu=row.gpu_name, n=row.gpus or 0, cost=_exact(row.cost_per_hour.amount), currency=currency)
        if row.cost_per_hour
        else msg("plan.alone-none", gpu=row.gpu_name)
        for row in answer.alone
    )
    lines += [msg("plan.alone-list", what=alone)] if alone else []
    lines += [_job(row, currency, answer.horizon_hours) for row in answer.jobs]
    for row in answer.owned:
        lines.append(msg("plan.owned", gpu=row.gpu_name, used=row.used, n=row.gpus, what=(*row.roles, *row.reasons)))
    lines += [_simulation(check) for check in answer.simulation]
    lines += [_probability(check) for check in answer.simulation if check.keeps_objective is not None]
    lines += [msg("plan.breaks", what=one) for one in answer.breaks_first]
    if answer.curve:
        lines.append(_curve(answer, currency))
    if answer.roles is not None:
        lines += roles_lines(answer.roles)
    for one in answer.designs:
        lines += _designs(one)
    for one in answer.policies:
        lines += _policies(one)
    for own in answer.own:
        even = {} if own.break_even_use is None else {"even": f"{own.break_even_use:.0%}"}
        id = "plan.own-buy" if own.buy else "plan.own-never" if own.break_even_use is None else "plan.own-rent"
        lines.append(msg(id, gpu=own.gpu_name, n=own.gpus, use=f"{own.use:.0%}", hours=f"{answer.horizon_hours:,.0f}", **even))
    lines += [msg("plan.change", gpu=gpu, n=f"{n:+d}") for gpu, n in answer.changes.items()]
    lines += [msg("recommend.lacks", what=one) for one in answer.warnings]
    lines += [msg("recommend.assumed", what=one) for one in answer.assumptions]
    return lines


def _simulation(check: CheckRow) -> Message:
    id = "plan.simulated" if check.holds else "plan.simulated-unshown" if check.unshown else "plan.simulated-fails"
    id = "plan.simulated-free" if check.met is None else id
    values = {"model": check.model, "n": check.requests, "percentile": f"{check.percentile:g}"}
    values |= {name: format_range(getattr(check, name)) for name in ("ttft", "tpot", "latency")}
    shares = {"met": check.met, "low": None if id == "plan.simulated-fails" else check.met_low}
    return msg(id, **values, **{name: f"{share:.1%}" for name, share in shares.items() if share is not None})


def _probability(check: CheckRow) -> Message:
    probability = check.keeps_objective or 0.0
    id = "plan.likely-safe" if probability >= MAX_PROBABILITY else "plan.likely"
    return msg(id, model=check.model, share=f"{probability:.0%}")


def _curve(answer: PlanAnswer, currency: str) -> Message:
    name = answer.curve[0].objective
    points: list[Message] = []
    for one in answer.curve:
        at = Numeral(f"{significant(one.value)}/s") if name == "rate" else format_seconds(one.value)
        cost = one.cost_per_hour
        points.append(msg("plan.curve-point", at=at, cost=_cost(cost)) if cost else msg("plan.curve-none", at=at))
    return msg("plan.curve", goal=msg(f"plan.goal-{name}"), currency=currency, points=tuple(points))


def roles_lines(roles: RolesAnswer) -> list[Message]:
    """Return messages that say which GPUs do prefill, decode or both, and which are left unused."""
    lines = [msg("plan.roles", what=roles.sentence)]
    for group in roles.groups:
        values = {"n": group.gpus, "gpu": group.gpu, "role": msg(f"plan.role-{group.role}"), "model": group.model}
        lines.append(msg("plan.role", tp=group.tensor_parallel, batch=group.max_batch, because=group.because, **values))
    lines += [msg("plan.idle", n=one.gpus, gpu=one.gpu, why=one.reasons) for one in roles.idle]
    return lines + [msg("recommend.lacks", what=one) for one in roles.warnings]


def _designs(comparison: DesignsAnswer) -> list[Message]:
    """Return messages with GPUs, cost and capacity of each fleet design compared, best first."""
    lines = [msg("plan.roles", what=comparison.sentence)]
    for one in comparison.designs:
        gpus = tuple(f"{n}x {gpu}" for gpu, n in one.gpus)
        cost, rate = _cost(one.cost), significant(one.capacity.value)
        lines.append(msg("plan.design", name=one.name, gpus=gpus, cost=cost, currency=one.cost.currency, rate=rate))
    return lines


def _policies(comparison: PoliciesAnswer) -> list[Message]:
    """Return messages on ways to use spot machines: the cost of each, and its share of requests within the objectives."""
    lines = [msg("plan.policies", what=comparison.sentence)]
    for one in comparison.policies:
        values = {"cost": _cost(one.cost), "currency": one.cost.currency, "met": f"{one.met:.1%}"}
        lines.append(msg("plan.policy", name=one.policy, more=one.more, lost=f"{one.lost:.2%}", **values))
    return lines


def _bill(row: BillRow, currency: str) -> Message:
    return msg(
        "plan.bill-row",
        machine=f"{row.provider} {row.instance}".strip(),
        gpus=f"{row.gpus_per_machine}x {row.gpu_name}",
        where=_where(row),
        counts=tuple(map(str, row.machines_by_level)),
        cost=_cost(row.cost_per_hour),
        currency=currency,
    )


def _job(row: JobRow, currency: str, horizon: float) -> Message:
    return msg(
        "plan.job",
        name=row.name,
        share=f"{row.share:.0%}",
        n=row.gpus,
        gpu=row.gpu,
        machine=f"{row.provider} {row.instance}".strip(),
        where=_where(row),
        hours=significant(row.hours),
        deadline=significant(row.deadline_hours),
        cost=_cost(row.cost),
        hourly=significant(float(row.cost.amount) / horizon),
        currency=currency,
    )


def _where(row: BillRow | JobRow) -> tuple[Message | str, ...]:
    """Return where and how the machines of a bill or job are rented: region, term and the day of the price."""
    observed = (msg("plan.price-seen", day=row.price_observed_at),) if row.price_observed_at else ()
    return (*((row.region,) if row.region else ()), msg(f"term.{row.term}"), *observed)


def _cost(cost: Money | Cost) -> str:
    return significant(float(cost.amount))


def _exact(amount: Decimal) -> Numeral:
    """Return an amount of money to the cent; one below 1 has three significant digits."""
    return Numeral(f"{amount:,.2f}") if amount >= 1 else significant(float(amount))
