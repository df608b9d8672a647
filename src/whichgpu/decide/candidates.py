"""Every offer with the best configuration of its GPUs: hours, money, and the limits it misses. Arrays throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from whichgpu.decide.configurations.capacity_bound import expected_latency
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.constraints import TIME_WEIGHT, Constraints, Rank
from whichgpu.decide.market import Market
from whichgpu.decide.work import Work
from whichgpu.price.run import OfferTerms, RunCost, RunSettings, run_cost
from whichgpu.price.table import Floats, Ints
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

Bools = NDArray[np.bool_]
MAX_REPLICAS = 64.0  # A larger service needs a plan, not a recommendation.


@dataclass(frozen=True, slots=True)
class Candidates:
    """One entry per offer and group that can do the work; `missed` says which limits each entry misses."""

    configurations: tuple[Configuration | None, ...]  # by group
    group: Ints
    offer: Ints
    copies: Floats  # replicas of the group
    gpus: Floats  # of all replicas
    work_hours: Floats  # without starts, checkpoints and reruns
    run_cost: RunCost
    pace: Floats  # hours of a run; seconds of an answer of a service
    per_hour: Floats  # money
    per_unit: Floats  # money of a token or sample, without starts and the like
    missed: dict[str, Bools]
    rejected: Counter[str]
    considered: int
    terms: OfferTerms
    run_settings: RunSettings
    spent: Floats  # what a budget limits: money of the run, an hour or a month; the price of all cards if they are bought

    def stretched(self, at: int, factors: Sequence[float]) -> RunCost:
        """Return the run of one candidate, as billed, if its work takes these times as long."""
        rows = np.full(len(factors), at)
        work = self.work_hours[rows] * np.array(factors)
        return run_cost(work, self.terms.at(rows, self.terms.machines[rows]), self.run_settings, interruptible=True)

    @property
    def passing(self) -> Bools:
        """The candidates that miss no limit."""
        return ~np.any(list(self.missed.values()), axis=0) if self.missed else np.ones(len(self.group), dtype=bool)

    def score(self, rank: Rank) -> Floats:
        """Return scores, smaller is better; monotone in cost and time, so that nothing dominated ever comes first."""
        with np.errstate(divide="ignore"):
            cost, hours = np.log(np.maximum(self.run_cost.cost, 1e-12)), np.log(np.maximum(self.pace, 1e-12))
        scores = {
            "cost": cost,
            "time": hours,
            "value": np.log(np.maximum(self.per_unit, 1e-30)),
            "balanced": cost + TIME_WEIGHT * hours,
        }
        return np.where(self.passing, scores[rank], np.inf)

    def order(self, rank: Rank, market: Market) -> Ints:
        """Return the candidates that pass, best first; ties go to the cheaper, the faster, the nearer, the latest observed."""
        observed = -market.table.days[1][market.rows][self.offer].astype(float)
        trip = np.nan_to_num(market.round_trip[self.offer], nan=1e9)
        score = np.round(self.score(rank), 9)
        cost, hours = np.round(self.run_cost.cost, 6), np.round(self.pace, 6)
        ties = (cost, hours) if rank != "time" else (hours, cost)
        instance = market.table.column("instance")[market.rows][self.offer]
        order = np.lexsort((instance, observed, trip, ties[1], ties[0], score))
        return order[np.isfinite(score[order])]

    def configuration_at(self, at: int) -> Configuration:
        """Return the configuration of a candidate."""
        one = self.configurations[int(self.group[at])]
        assert one is not None
        return one


def join_candidates(
    workload: Workload, work: Work, constraints: Constraints, market: Market, groups: Groups, results: Sequence[GroupResult],
    offer_terms: OfferTerms,
) -> Candidates:  # fmt: skip
    """Join offers with the results of their groups, and compute the cost of the run on each."""
    rejected = market.rejected.copy()
    if groups.left:
        rejected["gpus-in-all"] += groups.left
    for at, one in enumerate(results):
        if isinstance(one, Infeasibility):
            rejected[one.reason] += int((groups.group_of == at).sum())
    configurations = tuple(one if isinstance(one, Configuration) else None for one in results)
    feasible = np.array([one is not None for one in configurations], dtype=bool)
    pairs = feasible[groups.group_of] if len(feasible) else np.zeros(0, dtype=bool)
    group, offer = groups.group_of[pairs], groups.offer_of[pairs]
    by_group = partial(_by_group, configurations, group)
    rate = by_group(lambda one: one.rate)
    replicas = by_group(partial(_replicas, workload))
    machines = np.array([one.machines for one in groups.groups] or [1], dtype=float)[group] * replicas
    gpus = np.array([one.size for one in groups.groups] or [1], dtype=float)[group] * replicas
    serving = work.hours is not None
    hours = np.full(len(group), work.hours) if work.hours is not None else (work.amount or 0.0) / rate / 3600.0
    terms = offer_terms.at(offer, machines)
    run = run_cost(hours, terms, constraints.run_settings, interruptible=not serving)
    per_hour = (terms.price + terms.host) * machines
    done = rate
    if serving and workload.rate is not None:  # A service does what is asked of it, not all it could.
        done = np.full(len(group), workload.rate * (float(workload.seq_out or 1) if work.unit == "tokens" else 1.0))
    spent = _spent(constraints, groups, group, run, per_hour, gpus)
    missed = _missed(constraints, market, run, spent, gpus, offer, serving, terms.years)
    if workload.serving and "spot" not in constraints.terms and (spot := market.terms[offer] == "spot").any():
        missed["spot-service"] = spot
    if (many := replicas > MAX_REPLICAS).any():
        missed["copies"] = many
    for name, lost in missed.items():
        if count := int(lost.sum()):
            rejected[name] += count
    return Candidates(
        configurations=configurations, group=group, offer=offer, copies=replicas, gpus=gpus, work_hours=hours, run_cost=run,
        pace=by_group(partial(_answer_seconds, workload)) if serving else run.hours, per_hour=per_hour,
        per_unit=per_hour / (done * 3600.0), missed=missed, rejected=rejected,
        considered=len(groups.group_of) + groups.left + sum(market.rejected.values()), terms=terms,
        run_settings=constraints.run_settings, spent=spent,
    )  # fmt: skip


def _by_group(configurations: Sequence[Configuration | None], group: Ints, value_of: Callable[[Configuration], float]) -> Floats:
    """A value of each candidate's configuration."""
    values: Floats = np.array([value_of(one) if one else 1.0 for one in configurations] or [1.0], dtype=float)[group]
    return values


def _replicas(workload: Workload, one: Configuration) -> float:
    """Replicas that a request rate needs; one without a rate."""
    if workload.rate is None or not one.capacity:
        return 1.0
    return float(max(one.min_replicas, np.ceil(workload.rate / one.capacity)))


def _answer_seconds(workload: Workload, one: Configuration) -> float:
    """Seconds from a request to the end of its answer; those of one forward pass if no tokens are generated."""
    if one.kind != "generate":
        return one.seconds
    ttft, tpot = expected_latency(workload, one)
    return ttft + float(max(1, workload.seq_out or 1) - 1) * tpot


def _spent(constraints: Constraints, groups: Groups, group: Ints, run: RunCost, per_hour: Floats, gpus: Floats) -> Floats:
    """What a budget limits."""
    if constraints.budget_per is not None:
        return per_hour * (MONTH_HOURS if constraints.budget_per == "month" else 1.0)
    if not constraints.cards:
        return run.cost
    return np.array([constraints.cards.get(one.gpu.id, np.inf) for one in groups.groups] or [np.inf])[group] * gpus


def _missed(
    constraints: Constraints, market: Market, run: RunCost, spent: Floats, gpus: Floats, offer: Ints, serving: bool, years: Floats
) -> dict[str, Bools]:
    """The limits each candidate misses."""
    missed: dict[str, Bools] = {"never-done": ~np.isfinite(run.hours)}
    enough_hours = np.where(np.isfinite(run.break_even), run.break_even, years * 8760.0)
    missed["commitment"] = (years > 0) & ~(run.hours >= enough_hours)
    if constraints.gpus is not None:
        missed["gpus-in-all"] = (gpus < constraints.gpus[0]) | (gpus > constraints.gpus[1])
    if constraints.budget is not None:
        missed["budget"] = spent > float(constraints.budget.amount) * (1 + 1e-9)
    if constraints.deadline is not None and not serving:
        missed["deadline"] = run.hours * 3600.0 > constraints.deadline
    if constraints.owned:
        missed["owned-count"] = _more_than_owned(constraints, market, offer, gpus)
    return {name: lost for name, lost in missed.items() if lost.any() or name in ("budget", "deadline")}


def _more_than_owned(constraints: Constraints, market: Market, offer: Ints, gpus: Floats) -> Bools:
    """Candidates on owned machines with more GPUs than the user has."""
    owned: Counter[str] = Counter()
    for one in constraints.owned:
        owned[one.gpu] += one.gpus
    limits = {market.table.place(gpu): float(count) for gpu, count in owned.items()}
    codes = market.table.column("gpu")[market.rows][offer].tolist()
    over: Bools = (market.terms[offer] == "owned") & (gpus > np.array([limits.get(code, 0.0) for code in codes]))
    return over


def pareto(candidates: Candidates, order: Ints) -> list[int]:
    """Return those of an order that nothing beats in both cost and time, cheapest first, up to the fastest.

    Each group of GPUs appears once: a term that costs more only to be interrupted less is no alternative.
    """
    cost, hours = candidates.run_cost.cost, candidates.pace
    best, front = np.inf, []
    for at in order[np.lexsort((hours[order], cost[order]))].tolist():
        if hours[at] < best * (1 - 1e-9):
            best = float(hours[at])
            front.append(at)
    first: dict[tuple[int, float], int] = {}
    for at in front:
        first.setdefault((int(candidates.group[at]), float(candidates.copies[at])), at)
    return [at for at in front if at in first.values() or at == front[-1]]
