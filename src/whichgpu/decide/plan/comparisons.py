"""Comparisons of a plan: each kind of GPU alone, buying instead of renting, and the points of its cost curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.units import parse_rate, parse_seconds
from whichgpu.decide.plan.plan_answer import AloneRow, OwnRow, money
from whichgpu.decide.plan.question import PlanQuestion, RequestedModel
from whichgpu.decide.plan.search import SolvedPlan
from whichgpu.decide.plan.solver.build import only_gpu
from whichgpu.decide.plan.solver.problem import Problem
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.price.own import OwnershipCosts, compare_with_rent, host_price
from whichgpu.price.terms import YEAR_HOURS

MAX_KINDS = 6  # The cost alone is computed for at most this many kinds of GPU.
ALONE_SECONDS, ALONE_GAP = 3.0, 0.02  # Solver seconds and relative gap for a plan with one kind of GPU.
# Shares of the purchase price, assumed as in `buy`: lost at first use, left after three years, least ever left.
FIRST_USE_LOSS, LEFT_AFTER_3_YEARS, MIN_LEFT = 0.2, 0.3, 0.1
OBJECTIVES = {"tpot": "tpot_max", "ttft": "ttft_max", "latency": "latency_max"}
CURVE_FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)  # Points of the cost curve, as multiples of an objective.
POINT_SECONDS = 10.0  # Solver seconds per point; the gap is reached long before, so runs do not differ.


def alone_rows(
    problem: Problem, names: Mapping[str, str], currency: str, first: Sequence[str], max_kinds: int = MAX_KINDS
) -> tuple[AloneRow, ...]:
    """Return the cost of serving all traffic with one kind of GPU, for kinds in `first` and then those that look cheapest."""
    demand = problem.demand.max(axis=0)
    demanded = demand > 0
    cost = problem.cost_per_request()
    guesses = {}
    for gpu in names:
        mine = [j for j, p in enumerate(problem.pool_of.tolist()) if problem.pools[p].gpu == gpu]
        if mine:
            guesses[gpu] = float((cost[mine].min(axis=0)[demanded] * demand[demanded]).sum())
    order = [*first, *(gpu for gpu in sorted(guesses, key=lambda name: guesses[name]) if gpu not in first)]
    rows = []
    for gpu in order[:max_kinds]:
        able = np.isfinite(guesses.get(gpu, np.inf))
        solution = solve(only_gpu(problem, gpu), ALONE_SECONDS, ALONE_GAP) if able else None
        price, gpus = (money(solution.bill, currency), solution.max_gpus(problem)) if solution else (None, None)
        rows.append(AloneRow(gpu, names[gpu], price, gpus))
    return tuple(rows)


def own_rows(plan: SolvedPlan) -> tuple[OwnRow, ...]:
    """Return buying against renting for each kind of GPU the plan rents, over the planning horizon, at the plan's utilisation."""
    formulation, market = plan.trial.formulation, plan.inputs.market
    problem, currency = formulation.problem, plan.inputs.constraints.currency
    counts: dict[str, dict[int, float]] = {}  # GPUs by kind and level of load.
    spent: dict[str, float] = {}  # Money per average hour, by kind.
    for (level, p, w), n in plan.trial.solution.machines.items():
        gpu_pool = formulation.gpu_pools[p]
        if gpu_pool.owned:
            continue
        id, price = gpu_pool.gpu.id, problem.pools[p].options[w].price
        at_level = counts.setdefault(id, {})
        at_level[level] = at_level.get(level, 0.0) + n * gpu_pool.pool.size
        spent[id] = spent.get(id, 0.0) + price * n * float(problem.hours[level])
    rows = []
    for id, at_level in counts.items():
        gpu, peak_gpus = plan.inputs.catalog.gpu_by_id[id], max(at_level.values())
        if gpu.launch_price is None or gpu.launch_price.currency != "USD":
            continue
        worked = sum(at_level.get(level, 0.0) * float(problem.hours[level]) for level in range(problem.levels))
        use, years = worked / peak_gpus, min(5.0, max(plan.question.horizon / YEAR_HOURS, 1.0 / 12.0))
        price = float(gpu.launch_price.amount)
        left = max(MIN_LEFT, 1.0 - FIRST_USE_LOSS - (1.0 - FIRST_USE_LOSS - LEFT_AFTER_3_YEARS) * years / 3.0)
        own = OwnershipCosts(price, float(gpu.tdp_watts or 0), host_price(price), years=years, residual=left, use=use)
        rent = spent[id] / market.rate / worked
        even = compare_with_rent(own, rent)
        bought, rented, owned = (money(value * market.rate, currency) for value in (price * peak_gpus, rent, own.hour))
        even_use, months = even.break_even_use, even.break_even_months
        pays = even_use is not None and use >= even_use
        rows.append(OwnRow(id, gpu.name, int(peak_gpus), bought, rented, owned, use, even_use, months, pays))
    return tuple(rows)


def curve_points(plan: SolvedPlan) -> tuple[str, tuple[float, ...]]:
    """Return what the plan's cost curve varies (rate or an objective) and its values; no values if there is no curve."""
    if plan.question.sweep is not None:
        return parse_sweep(plan.question.sweep)
    for name, field in OBJECTIVES.items():
        limits = [limit for one in plan.inputs.models if (limit := getattr(one.objectives, field))]
        if limits and plan.question.curve:
            return name, tuple(round(limits[0] * factor, 6) for factor in CURVE_FACTORS)
    return "", ()


def question_at(question: PlanQuestion, name: str, value: float, headroom: float) -> PlanQuestion:
    """Return the question of one point of a cost curve: `name` (rate or an objective) set to `value`, simulation turned off."""
    models = tuple(_model_at(one, name, value) for one in question.models)
    plain = {"simulate": False, "curve": False, "tolerance": 0.0, "time_limit": POINT_SECONDS}
    return replace(question, models=models, headroom=headroom, **plain)


def _model_at(model: RequestedModel, name: str, value: float) -> RequestedModel:
    if name == "rate":
        return replace(model, fields={**model.fields, "rate": f"{value:.9g}/s"})
    if name == "latency":
        return replace(model, latency_max=value) if model.latency_max is not None else model
    return replace(model, fields={**model.fields, OBJECTIVES[name]: f"{value * 1000:.9g}ms"})


def parse_sweep(text: str) -> tuple[str, tuple[float, ...]]:
    """Return the variable and the values of a cost curve, parsed from text, in seconds or requests per second.

    >>> parse_sweep("rate=1/s,2/s"), parse_sweep("tpot=25ms")
    (('rate', (1.0, 2.0)), ('tpot', (0.025,)))
    """
    name, _, rest = text.partition("=")
    name = name.strip().lower()
    if name in ("rate", *OBJECTIVES) and rest.strip():
        values = tuple((parse_rate if name == "rate" else parse_seconds)(part) for part in rest.split(","))
        if min(values) > 0:
            return name, values
    raise UsageError("bad-sweep", msg("error.bad-sweep", text=text[:80]), msg("hint.sweep"))
