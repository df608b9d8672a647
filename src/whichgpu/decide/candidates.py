"""Every offer joined with the best configuration of its GPUs, as arrays: hours, cost, and the limits each candidate misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichgpu.decide.configurations.capacity_bound import expected_latency
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.constraints import QUALITY_RANK, TIME_WEIGHT, Constraints, Rank
from whichgpu.decide.framework_support import CUDA
from whichgpu.decide.market import Market
from whichgpu.decide.work import Work
from whichgpu.price.run import OfferTerms, RunCost, RunSettings, run_cost
from whichgpu.price.table import Floats, Ints
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

Bools = NDArray[np.bool_]
# A price of a service, and a spot price, counts 25% more in a ranking if it is older than 45 days, and 50% if older than 180
# (assumed): it is to be rented now, and an old price may no longer be offered.
FRESH_DAYS, OLD_DAYS, AGE_WEIGHT = 45, 180, 0.25
SERVER_SEGMENT = "datacenter"
# Engines that run as well on GPUs without CUDA. Others need builds of FlashAttention, bitsandbytes or Triton, which ROCm has late
# and for few desktop cards.
PORTABLE_ENGINES = ("llama.cpp", "mlx")
MAX_REPLICAS = 64.0  # A service that needs more replicas is a case for `plan`, not `recommend`.


class Candidates(msgspec.Struct, frozen=True):
    """Arrays with one entry per offer and group of GPUs that can do the work; `missed` says which limits each entry misses."""

    configurations: tuple[Configuration | None, ...]  # one per group of GPUs
    group: Ints
    offer: Ints
    copies: Floats  # number of replicas, each on one group of GPUs
    gpus: Floats  # number of GPUs of all replicas
    work_hours: Floats  # hours of work, without starts, checkpoints and reruns
    run_cost: RunCost
    pace: Floats  # hours of a run, or seconds per answer of a service
    per_hour: Floats  # cost per hour
    per_unit: Floats  # cost per token or sample, without starts, checkpoints and reruns
    missed: dict[str, Bools]
    rejected: Counter[str]
    considered: int
    terms: OfferTerms
    run_settings: RunSettings
    age_factor: Floats  # factor by which an old price counts more in a ranking
    poorly_supported: Bools  # whether software supports the GPU badly for the task, so that it comes after all others
    outdated: Bools  # whether the price of a service was last seen over half a year ago, so that it comes after fresher ones
    spent: Floats  # amount compared with the budget: cost of the run, per hour or per month, or the price of all cards to buy
    risky: Bools | None = None  # whether a limit is missed with slow steps; None if risk does not decide
    slow: RunCost | None = None  # cost and hours of runs with slow steps, by which they are compared at low risk

    def stretched(self, at: int, factors: Sequence[float]) -> RunCost:
        """Return what one candidate's run costs if its work took longer, one entry for each factor on the hours of work."""
        rows = np.full(len(factors), at)
        work = self.work_hours[rows] * np.array(factors)
        return run_cost(work, self.terms.at(rows, self.terms.machines[rows]), self.run_settings, interruptible=True)

    def passing(self, waived: Collection[str] = ()) -> Bools:
        """Return a mask of the candidates that miss no limit other than the waived ones."""
        limits = [lost for name, lost in self.missed.items() if name not in waived]
        return ~np.any(limits, axis=0) if limits else np.ones(len(self.group), dtype=bool)

    def score(self, rank: Rank, waived: Collection[str] = (), slow: RunCost | None = None) -> Floats:
        """Return a score per candidate by `rank`: less is better, infinite if a limit is missed; it rises with cost and time."""
        run, pace = (slow, slow.hours) if slow else (self.run_cost, self.pace)
        with np.errstate(divide="ignore"):
            cost, hours = np.log(np.maximum(run.cost, 1e-12)), np.log(np.maximum(pace, 1e-12))
        aged = np.log(self.age_factor)
        cost = cost + aged
        scores = {
            "cost": cost,
            "time": hours,
            "value": np.log(np.maximum(self.per_unit, 1e-30)) + aged,
            "balanced": cost + TIME_WEIGHT * hours,
        }
        return np.where(self.passing(waived), scores[rank], np.inf)

    def order(self, rank: Rank, market: Market, waived: Collection[str] = (), cautious: bool = False) -> Ints:
        """Return indices of passing candidates, best first; ties go to lower cost, less time, shorter round trip, newer price.

        By time, candidates within about 0.1%, which no estimate can tell apart, go by the memory of their GPUs first. Limits in
        `waived` are not applied. If `cautious`, those that may miss a limit come last, and runs are compared with slow steps.
        """
        score = np.round(self.score(rank, waived, self.slow if cautious else None), 3 if rank == "time" else 9)
        passing = np.flatnonzero(np.isfinite(score))
        offer, rows = self.offer[passing], market.rows[self.offer[passing]]
        observed = -market.table.days[1][rows].astype(float)
        trip = np.nan_to_num(market.round_trip[offer], nan=1e9)
        cost, hours = np.round(self.run_cost.cost[passing], 6), np.round(self.pace[passing], 6)
        ties = (cost, hours) if rank != "time" else (-market.memory[offer], hours, cost)
        instance = market.table.column("instance")[rows]
        order = passing[np.lexsort((instance, observed, trip, *reversed(ties), score[passing]))]
        if rank != "time":  # GPUs that the user owns come first, at the cost of their power.
            order = order[np.argsort(market.terms[self.offer[order]] != "owned", kind="stable")]
        if cautious and self.risky is not None:
            order = order[np.argsort(self.risky[order], kind="stable")]
        order = order[np.argsort(self.outdated[order], kind="stable")]
        return order[np.argsort(self.poorly_supported[order], kind="stable")]

    def configuration_at(self, at: int) -> Configuration:
        """Return the layout, batch and precision (configuration) of the candidate at an index of the arrays."""
        one = self.configurations[int(self.group[at])]
        assert one is not None
        return one


def join_candidates(
    workload: Workload, work: Work, constraints: Constraints, market: Market, groups: Groups, results: Sequence[GroupResult],
    offer_terms: OfferTerms,
) -> Candidates:  # fmt: skip
    """Return all candidates: each offer with the best configuration of the GPUs it offers, and the cost of the run on it."""
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
    if serving and workload.rate is not None:  # A service delivers the throughput of its load, not the maximum.
        done = np.full(len(group), workload.rate * (float(workload.seq_out or 1) if work.unit == "tokens" else 1.0))
    spent = _spent(constraints, groups, group, run, per_hour, gpus)
    missed = _missed(constraints, market, run, spent, gpus, offer, serving, terms.years)
    if workload.serving and "spot" not in constraints.terms and (spot := market.terms[offer] == "spot").any():
        missed["spot-service"] = spot
    if (unreliable := unreliable_offers(constraints, market, groups, group, offer)).any():
        missed["seller"] = unreliable
    if (above := machines > market.max_machines[offer]).any():
        missed["quota"] = above
    if (lower := _below_quality(constraints, groups, group)).any():
        missed["quality"] = lower
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
        run_settings=constraints.run_settings, age_factor=_age_factor(workload, market, offer),
        poorly_supported=_poorly_supported(workload, groups, group), outdated=_outdated(workload, market, offer), spent=spent,
    )  # fmt: skip


def _by_group(configurations: Sequence[Configuration | None], group: Ints, value_of: Callable[[Configuration], float]) -> Floats:
    """Return, for each candidate, a value computed from the configuration of its group of GPUs; 1 if that group has none."""
    values: Floats = np.array([value_of(one) if one else 1.0 for one in configurations] or [1.0], dtype=float)[group]
    return values


def _replicas(workload: Workload, one: Configuration) -> float:
    """Return the number of replicas needed to sustain the workload's request rate; 1 without a rate."""
    if workload.rate is None or not one.capacity:
        return 1.0
    return float(max(one.min_replicas, np.ceil(workload.rate / one.capacity)))


def _answer_seconds(workload: Workload, one: Configuration) -> float:
    """Return the seconds from an inference request to the end of its answer; of one forward pass if no tokens are generated."""
    if one.kind != "generate":
        return one.seconds
    ttft, tpot = expected_latency(workload, one)
    return ttft + float(max(1, workload.seq_out or 1) - 1) * tpot


def _spent(constraints: Constraints, groups: Groups, group: Ints, run: RunCost, per_hour: Floats, gpus: Floats) -> Floats:
    """Return the amount that is compared with the budget: cost per hour or month, of the run, or of the cards to buy."""
    if constraints.budget_per is not None:
        return per_hour * (MONTH_HOURS if constraints.budget_per == "month" else 1.0)
    if not constraints.cards:
        return run.cost
    return np.array([constraints.cards.get(one.gpu.id, np.inf) for one in groups.groups] or [np.inf])[group] * gpus


def _missed(
    constraints: Constraints, market: Market, run: RunCost, spent: Floats, gpus: Floats, offer: Ints, serving: bool, years: Floats
) -> dict[str, Bools]:
    """Return, by name of each limit, a mask of the candidates that miss it."""
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


def _below_quality(constraints: Constraints, groups: Groups, group: Ints) -> Bools:
    """Return a mask of the candidates whose precision keeps less quality than the user requires."""
    allowed = QUALITY_RANK[constraints.quality]
    lower = np.array([QUALITY_RANK[one.quality] > allowed for one in groups.groups] or [False], dtype=bool)
    below: Bools = lower[group]
    return below


def unreliable_offers(constraints: Constraints, market: Market, groups: Groups, group: Ints, offer: Ints) -> Bools:
    """Return a mask of the candidates from sellers, or on cards for desktops, that a service avoids; owned machines pass."""
    desktop = np.array([one.gpu.segment != SERVER_SEGMENT for one in groups.groups] or [False], dtype=bool)[group]
    avoided = market.table.matches("provider", constraints.avoided_providers)[market.rows][offer]
    unreliable: Bools = (avoided | (desktop & constraints.server_cards)) & (market.terms[offer] != "owned")
    return unreliable


def _poorly_supported(workload: Workload, groups: Groups, group: Ints) -> Bools:
    """Return a mask of the candidates on cards for desktops without CUDA, unless the engine is one made for such GPUs."""
    if workload.engine in PORTABLE_ENGINES:
        return np.zeros(len(group), dtype=bool)
    poor = [one.gpu.segment != SERVER_SEGMENT and CUDA not in one.gpu.supports for one in groups.groups]
    mask: Bools = np.array(poor or [False], dtype=bool)[group]
    return mask


def _outdated(workload: Workload, market: Market, offer: Ints) -> Bools:
    """Return a mask of a service's candidates whose price per hour was last seen over half a year ago; committed prices last."""
    hourly = np.isin(market.terms[offer], ("on-demand", "spot"))
    mask: Bools = hourly & (market.age_days[offer] > OLD_DAYS) & (workload.rate is not None)
    return mask


def _age_factor(workload: Workload, market: Market, offer: Ints) -> Floats:
    """Return the factor by which each candidate's cost counts more in a ranking, by its price's age; for runs, of spot only."""
    terms = market.terms[offer]
    ages = terms != "owned" if workload.rate is not None else terms == "spot"
    age = np.where(ages, market.age_days[offer], 0)
    return 1.0 + AGE_WEIGHT * (age > FRESH_DAYS) + AGE_WEIGHT * (age > OLD_DAYS)


def _more_than_owned(constraints: Constraints, market: Market, offer: Ints, gpus: Floats) -> Bools:
    """Return a mask of the candidates on owned machines that use more GPUs than the user owns."""
    owned: Counter[str] = Counter()
    for one in constraints.owned:
        owned[one.gpu] += one.gpus
    limits = {market.table.place(gpu): float(count) for gpu, count in owned.items()}
    codes = market.table.column("gpu")[market.rows][offer].tolist()
    over: Bools = (market.terms[offer] == "owned") & (gpus > np.array([limits.get(code, 0.0) for code in codes]))
    return over


def pareto(candidates: Candidates, order: Ints) -> list[int]:
    """Return the candidates of `order` that no other beats in both cost and time, from the cheapest to the fastest.

    Each group of GPUs appears once, so that terms of one machine are not listed as alternatives to each other.
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
