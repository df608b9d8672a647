"""Decisions under uncertainty: how likely a candidate keeps its limits, what it is expected to cost, and which one is safest."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.decide.candidates import Bools, Candidates
from whichgpu.decide.configurations.capacity_bound import expected_latency
from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.decide.configurations.ranges import TimeRange, time_range
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.decide.constraints import Constraints
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.price.run import run_cost
from whichgpu.price.table import Floats
from whichgpu.workload.workload import Workload

MEASURED_TIERS = ("here", "measured", "kin")
MAX_GROUPS = 64  # Groups of GPUs searched for a measured alternative.


class Chances(msgspec.Struct, frozen=True):
    """Probabilities that one candidate keeps its objectives (latencies or deadline) and its budget, None without a limit.

    `expected_cost` is the mean cost over the range of the step time: of the run, or of as many replicas as the load then needs.
    """

    keeps_objective: float | None
    keeps_budget: float | None
    expected_cost: float


def chances(at: int, candidates: Candidates, question: EvaluatedQuestion, one: Configuration, evidence: TimeRange) -> Chances:
    """Return the probabilities and the expected cost of the candidate at an index of the arrays."""
    constraints, workload = question.selection.constraints, question.request.workload
    if question.work.hours is not None:
        return _service_chances(at, candidates, constraints, workload, one, evidence)
    runs = candidates.stretched(at, evidence.factor.factors().tolist())
    expected = float(np.mean(runs.cost))
    deadline = constraints.deadline
    return Chances(
        keeps_objective=None if deadline is None else float(np.mean(runs.hours * 3600.0 <= deadline)),
        keeps_budget=_share_within(constraints, runs.cost, float(candidates.spent[at])),
        expected_cost=expected if np.isfinite(expected) else float(candidates.run_cost.cost[at]),
    )


def _service_chances(
    at: int, candidates: Candidates, constraints: Constraints, workload: Workload, one: Configuration, evidence: TimeRange
) -> Chances:
    """Return a service's chances: its machines are paid for however slow they are, but slow steps need more replicas."""
    cost, copies = float(candidates.run_cost.cost[at]), float(candidates.copies[at])
    factor = 1.0
    if workload.rate is not None and one.max_rate:
        needed = np.ceil(workload.rate / one.max_rate * evidence.factor.factors() - 1e-9)
        factor = float(np.mean(np.maximum(1.0, needed / copies)))
    budget = None if constraints.budget is None else 1.0
    return Chances(service_probability(workload, one, evidence), budget, cost * factor)


def service_probability(workload: Workload, one: Configuration, evidence: TimeRange) -> float | None:
    """Return the probability that a configuration keeps the latency objectives of a service; None if it has none."""
    if one.simulation is not None:
        return one.simulation.keeps
    limits = workload.ttft_max, workload.tpot_max
    slack = [limit / seconds for limit, seconds in zip(limits, expected_latency(workload, one), strict=True) if limit and seconds]
    if workload.rate is not None and one.capacity:
        slack.append(max(1.0, (one.max_rate or one.capacity) / one.capacity))
    return evidence.factor.probability_below(min(slack)) if slack else None


def _share_within(constraints: Constraints, costs: Floats, spent: float) -> float | None:
    """Return the share of equally likely costs of a run within the budget; a budget per hour or for cards is kept for sure."""
    if constraints.budget is None:
        return None
    amount = float(constraints.budget.amount) * (1 + 1e-9)
    of_run = constraints.budget_per is None and not constraints.cards
    return float(np.mean(costs <= amount)) if of_run else float(spent <= amount)


def with_slow_steps(candidates: Candidates, question: EvaluatedQuestion) -> Candidates:
    """Return the candidates with what decides at low risk: cost and time of runs with slow steps, and who may miss a limit."""
    factors = np.ones(len(candidates.configurations))
    risky = np.zeros(len(candidates.configurations), dtype=bool)
    serving = question.work.hours is not None
    for place, one in enumerate(candidates.configurations):
        if one is None or (serving and one.simulation is None and question.request.workload.rate is not None):
            continue  # A service that is not simulated yet may turn out safe.
        if serving and one.simulation is not None:
            risky[place] = one.simulation.keeps < SAFE_PROBABILITY - 1e-6
            continue
        evidence = time_range(question.request, question.groups.groups[place], one)
        if serving:
            keeps = service_probability(question.request.workload, one, evidence)
            risky[place] = keeps is not None and keeps < SAFE_PROBABILITY
        else:
            factors[place] = evidence.factor.quantile(SAFE_PROBABILITY)
    by_candidate = risky[candidates.group]
    if serving:
        return replace(candidates, risky=by_candidate)
    terms, settings = candidates.terms, candidates.run_settings
    slow = run_cost(candidates.work_hours * factors[candidates.group], terms, settings, interruptible=True)
    return replace(candidates, slow=slow, risky=by_candidate | _misses(question.selection.constraints, slow.cost, slow.hours))


def _misses(constraints: Constraints, cost: Floats, hours: Floats) -> Bools:
    missed = np.zeros(len(cost), dtype=bool)
    if constraints.budget is not None and constraints.budget_per is None and not constraints.cards:
        missed |= cost > float(constraints.budget.amount) * (1 + 1e-9)
    if constraints.deadline is not None:
        missed |= hours * 3600.0 > constraints.deadline
    return missed
