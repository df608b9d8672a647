"""How a plan's objectives fare if steps are slower or faster than estimated: simulated at the ends of their 90% range."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.decide.plan.plan_answer import CheckRow
from whichgpu.decide.plan.search import SolvedPlan
from whichgpu.decide.plan.simulate import SimulatedModel, replica_range, simulate_model

FAST, MEDIAN, SLOW = 0.05, 0.5, 0.95  # Quantiles of the step time: the ends of its 90% range, and the estimate.
BISECTIONS = 3  # The probability is found to within about 6%.
LATENCIES = ("ttft", "tpot", "latency")


def checks(plan: SolvedPlan) -> tuple[CheckRow, ...]:
    """Return each model's simulated latency percentiles in seconds with their 90% range, and how likely its objectives hold.

    The range is of the load: with slow steps more sequences run and queues grow, so latencies rise by more than the steps.
    """
    formulation = plan.trial.formulation
    return tuple(_check(plan, place, one) for place, one in enumerate(plan.trial.simulated[: len(formulation.models)]))


def _check(plan: SolvedPlan, place: int, one: SimulatedModel) -> CheckRow:
    formulation, solution = plan.trial.formulation, plan.trial.solution
    model = formulation.models[place]
    counts = solution.counts[formulation.busiest(place)]
    column = next(column for j, column in enumerate(formulation.columns) if counts[j] > 0 and column.model == place)
    evidence = replica_range(model.request, formulation.gpu_pools[column.pool_index], column.replica)

    def at(quantile: float) -> SimulatedModel:
        return simulate_model(formulation, solution, place, plan.question.seed, quantile)

    fast, slow = at(FAST), at(SLOW)
    figures: dict[str, Any] = {}
    for name in LATENCIES:
        values = [getattr(each, name) for each in (one, fast, slow)]
        ends = [value for value in values if isfinite(value)] or [0.0]
        middle = values[0] if isfinite(values[0]) else inf
        figures[name] = Figure(middle, min(*ends, middle), max(*ends, middle), "s", evidence.basis, evidence.sources)
    limits = {name: getattr(model.objectives, f"{name}_max") for name in figures}
    unsure = tuple(name for name, each in figures.items() if limits[name] and each.value <= limits[name] < each.high)
    simulated = {name: getattr(one, name) for name in ("model", "percentile", "met", "holds", "requests", "foresight")}
    proven = MEDIAN if one.holds else FAST
    if plan.inputs.constraints.risk == "low" and one.holds and one.holds_slow:
        proven = SAFE_PROBABILITY
    keeps = None if one.met is None else _probability(lambda quantile: at(quantile).holds, proven, fast.holds, slow.holds)
    return CheckRow(**simulated, **figures, unsure=unsure, keeps_objective=keeps)


def _probability(holds: Callable[[float], bool], proven: float, holds_fast: bool, holds_slow: bool) -> float:
    """Return the probability that the objectives hold: the slowest quantile of the step time at which they do in simulation.

    `proven` is a quantile at which they do.
    """
    if holds_slow:
        return SLOW
    if not holds_fast:
        return FAST
    low, high = proven, MEDIAN if proven < MEDIAN else SLOW
    for _ in range(BISECTIONS if high - low > SLOW - SAFE_PROBABILITY else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return round(low, 2)
