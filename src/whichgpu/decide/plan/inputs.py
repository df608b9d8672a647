"""What a plan is computed from: models and jobs with their defaults, offers, owned GPUs, and limits as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.money import parse_money
from whichgpu.catalog.currency import DOLLAR, Exchanger
from whichgpu.catalog.find import find_gpu, find_gpus
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.constraints import Constraints, Owned
from whichgpu.decide.market import Market
from whichgpu.decide.plan.question import OwnedGpus, PlanQuestion, parse_owned
from whichgpu.decide.plan.refusal import Refusal, no_answer
from whichgpu.decide.plan.solver.build import PlanLimits, ServedModel
from whichgpu.decide.plan.solver.problem import CurrentFleet, Job
from whichgpu.decide.plan.supply import GpuPool, Supply, owned_pools, rented_pools
from whichgpu.decide.work import work_of
from whichgpu.price.own import HOST_WATTS, POWER_PRICE, Owning
from whichgpu.price.run import Habits
from whichgpu.price.terms import MONTH_HOURS

# Shares of replicas' time kept free, tried in turn until the simulated objectives hold. The last suit fleets of a few lightly
# used machines, where a smaller headroom changes nothing.
HEADROOMS = (0.15, 0.25, 0.35, 0.45, 0.6, 0.75, 0.9)
POWER_USE = 0.9  # assumed share of the hour an owned GPU works
CHANGE_COST = 0.1  # assumed US dollars per hour of adding or removing one GPU: 5% of a GPU hour of two dollars


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job with its deadline in seconds."""

    name: str
    request: WorkloadRequest
    deadline: float


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """A question's models, jobs and offers, looked up and with defaults filled in."""

    models: tuple[ServedModel, ...]
    jobs: tuple[PlannedJob, ...]
    constraints: Constraints
    market: Market
    assumptions: tuple[Message, ...]
    catalog: Catalog

    def in_currency(self, text: str, currency: str = "") -> float:
        """An amount of money as typed, in the plan's currency or another."""
        exchanger = Exchanger(self.constraints.day, self.catalog.exchange)
        return float(exchanger.convert(parse_money(text)[0], currency or self.constraints.currency)[0].amount)


def supply_of(question: PlanQuestion, inputs: PlanInputs) -> Supply:
    """Owned GPUs and, unless only these may be used, machines for rent; an error if there are none."""
    constraints, catalog = inputs.constraints, inputs.catalog
    own = owned_pools([_owned(one, question, inputs) for one in question.owned], catalog)
    if question.only_owned:
        if not own:
            raise UsageError("nothing-owned", msg("error.nothing-owned"), msg("hint.plan"))
        return Supply(own, 0)
    # Old spot prices count if an age was allowed, or if nothing but spot was asked for.
    old_spot = constraints.max_age is not None or set(constraints.terms) == {"spot"}
    spot = "spot" in constraints.terms
    rented = rented_pools(inputs.market, catalog, constraints.span, question.horizon, constraints.habits, spot, old_spot)
    if not (own or rented.pools):
        counts = {name: count for name, count in inputs.market.rejected.items() if count}
        reasons = tuple(msg("rejected.counted", why=msg(f"rejected.{name}", n=n), n=n) for name, n in counts.items())
        raise no_answer(Refusal(reasons, counts))
    return Supply((*own, *rented.pools), rented.offers, rented.old)


def _owned(gpus: OwnedGpus, question: PlanQuestion, inputs: PlanInputs) -> Owned:
    """Owned GPUs with the cost of one GPU's hour of work in the plan's currency."""
    gpu = find_gpu(inputs.catalog, gpus.gpu)
    if gpus.power_cost is not None:
        return Owned(gpu.id, gpus.gpus, inputs.in_currency(gpus.power_cost))
    text = question.filter_texts.get("power_price")
    price = POWER_PRICE if text is None else inputs.in_currency(text, DOLLAR)
    owning = Owning(0.0, float(gpu.tdp_watts or HOST_WATTS), 0.0, power_price=price)
    return Owned(gpu.id, gpus.gpus, owning.power(POWER_USE) * price * inputs.market.rate)


def limits_of(question: PlanQuestion, inputs: PlanInputs) -> PlanLimits:
    """Limits of the question with names looked up and amounts per hour in the plan's currency."""
    quotas = tuple(
        (name, frozenset(gpu.id for gpu in find_gpus(inputs.catalog, name)), most) for name, most in question.quotas.items()
    )
    budget, per = inputs.constraints.budget, inputs.constraints.budget_per
    hours = {"hour": 1.0, "month": float(MONTH_HOURS)}.get(per or "", question.horizon)
    return PlanLimits(
        headroom=question.headroom if question.headroom is not None else HEADROOMS[0],
        slices=question.slices,
        quotas=quotas,
        budget=None if budget is None else float(budget.amount) * (1.0 / hours),
        horizon=question.horizon,
        levels=question.levels,
        current=_current_fleet(question, inputs),
        spot_share=question.spot_share,
    )


def _current_fleet(question: PlanQuestion, inputs: PlanInputs) -> CurrentFleet | None:
    if question.current is None:
        return None
    gpus = {find_gpu(inputs.catalog, one.gpu).id: float(one.gpus) for one in parse_owned(question.current)}
    text = question.change_cost
    return CurrentFleet(gpus, CHANGE_COST * inputs.market.rate if text is None else inputs.in_currency(text))


def program_jobs(jobs: Sequence[PlannedJob], gpu_pools: Sequence[GpuPool], habits: Habits) -> tuple[Job, ...]:
    """Each job's hours on one machine of every pool; of owned GPUs, on as many as make a power of two."""
    return tuple(_program_job(one, gpu_pools, habits) for one in jobs)


def _program_job(one: PlannedJob, gpu_pools: Sequence[GpuPool], habits: Habits) -> Job:
    groups = [Group(each.gpu, each.gpus_per_job, 1, each.fabric) for each in gpu_pools]
    work = work_of(one.request.workload, one.request.shape, None)
    hours, wall = np.full(len(gpu_pools), np.inf), np.full(len(gpu_pools), np.inf)
    for place, (group, best) in enumerate(zip(groups, best_configurations(one.request, groups), strict=True)):
        if isinstance(best, Configuration) and work.amount is not None:
            wall[place] = work.amount / best.rate / 3600.0 + habits.startup / 3600.0
            hours[place] = wall[place] * (group.gpus if gpu_pools[place].owned else 1)  # An owned pool's machine is one GPU.
    return Job(one.name, hours, wall, one.deadline / 3600.0, divisible=one.request.workload.traits.offline)
