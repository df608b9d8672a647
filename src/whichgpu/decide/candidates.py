"""Every offer joined with the best configuration of its GPUs, as arrays: hours, cost, and the limits each candidate misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from whichgpu.base.lru import LruCache
from whichgpu.catalog.live.overlay import NAME as OWN_PRICES
from whichgpu.decide.configurations.capacity_bound import expected_latency
from whichgpu.decide.configurations.configuration import MAX_REPLICAS, Configuration, GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.constraints import QUALITY_RANK, TIME_WEIGHT, Constraints, Rank
from whichgpu.decide.framework_support import CUDA
from whichgpu.decide.market import Market, age_factor, outdated_offers
from whichgpu.decide.own_offers import OWNED
from whichgpu.decide.work import Work
from whichgpu.price.own import rated_watts
from whichgpu.price.run import OfferTerms, RunCost, RunSettings, run_cost
from whichgpu.price.table import Floats, Ints
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

Bools = NDArray[np.bool_]
# A run's spot price older than 180 days leads only if no fresher candidate is within this factor of it (assumed); that of a
# service never leads a fresher one.
OUTDATED_LEAD = 1.25
# The factor by which one with room may cost more than a commitment to machines whose memory is tight (assumed).
FIRMER_LEAD = 1.25
SERVER_SEGMENT = "datacenter"
# Engines that run as well on GPUs without CUDA. Others need builds of FlashAttention, bitsandbytes or Triton, which ROCm has late
# and for few desktop cards.
PORTABLE_ENGINES = ("llama.cpp", "mlx")


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
    outdated: Bools  # whether the price of a service, or the spot price of a run, was last seen over half a year ago
    below_quality: Bools  # whether GPUs of the user's own hold the model only in a precision that costs too much quality
    outdated_lead: float  # factor by which an outdated candidate must be better than fresher ones to come before them
    watts: Floats  # power of the GPUs at their limit and of their machines; infinite if unknown
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
        return ~np.logical_or.reduce(limits) if limits else np.ones(len(self.group), dtype=bool)

    def scores(self, rows: Ints, rank: Rank, slow: RunCost | None = None) -> Floats:
        """Return the score by `rank` of the candidates in `rows`: less is better; it rises with cost and time."""
        run, pace = (slow, slow.hours) if slow else (self.run_cost, self.pace)

        def logarithm(values: Floats, floor: float = 1e-12) -> Floats:
            logarithms: Floats = np.log(np.maximum(values[rows], floor))
            return logarithms

        if rank == "time":
            return logarithm(pace)
        aged = np.log(self.age_factor[rows])
        if rank == "value":
            return logarithm(self.per_unit, 1e-30) + aged
        cost = logarithm(run.cost) + aged
        return cost if rank == "cost" else cost + TIME_WEIGHT * logarithm(pace)

    def order(self, rank: Rank, market: Market, waived: Collection[str] = (), cautious: bool = False) -> Ints:
        """Return indices of passing candidates, best first; ties go to lower cost, less time, shorter round trip, newer price.

        By time, candidates within about 0.1%, which no estimate can tell apart, go by the memory of their GPUs first. Limits in
        `waived` are not applied. If `cautious`, those that may miss a limit come last, and runs are compared with slow steps.
        """
        passing = np.flatnonzero(self.passing(waived))
        score = np.round(self.scores(passing, rank, self.slow if cautious else None), 3 if rank == "time" else 9)
        passing, score = passing[finite := np.isfinite(score)], score[finite]
        offer = self.offer[passing]
        rows = market.rows[offer]
        observed = -market.table.days[1][rows].astype(float)
        trip = np.nan_to_num(market.round_trip[offer], nan=1e9)
        cost, hours = np.round(self.run_cost.cost[passing], 6), np.round(self.pace[passing], 6)
        ties = (cost, hours) if rank != "time" else (-market.memory[offer], hours, cost)
        instance = market.table.column("instance")[rows]
        order = passing[np.lexsort((instance, observed, trip, *reversed(ties), score))]
        order = _last(order, self.below_quality[order])
        if rank != "time":  # GPUs that the user owns come first, at the cost of their power; a cost that the user states decides.
            order = _last(order, ~_powered(market)[self.offer[order]])
        if cautious and self.risky is not None:
            order = _last(order, self.risky[order])
        always = np.isinf(self.outdated_lead)
        order = _last(order, self.outdated[order] & always)
        order = self._firmer_first(_last(order, self.poorly_supported[order]))
        if always or rank == "time":
            return order
        by_candidate = np.full(len(self.group), np.inf)
        by_candidate[passing] = score
        return self._fresher_first(order, by_candidate)

    def _firmer_first(self, order: Ints) -> Ints:
        """Return an order in which a commitment to tight memory leads only if no other, as safe and supported, is near it."""
        if not len(order) or not self.tight_commitment(order[:1])[0]:
            return order
        cost = self.run_cost.cost[order]
        near = (
            ~self.tight_commitment(order)
            & (cost <= cost[0] * FIRMER_LEAD)
            & ~self.poorly_supported[order]
            & ~self.outdated[order]
        )
        if self.risky is not None:
            near &= self.risky[order] <= self.risky[order[0]]
        firmer = np.flatnonzero(near)[:1]
        return np.concatenate((order[firmer], np.delete(order, firmer)))

    def _fresher_first(self, order: Ints, scores: Floats) -> Ints:
        """Return an order in which an outdated candidate leads only if no fresher one, as safe and supported, is near it."""
        outdated = self.outdated[order]
        if not len(order) or not outdated[0]:
            return order
        near = ~outdated & ~self.poorly_supported[order] & (scores[order] <= scores[order[0]] + np.log(self.outdated_lead))
        if self.risky is not None:
            near &= self.risky[order] <= self.risky[order[0]]
        fresher = np.flatnonzero(near)[:1]
        return np.concatenate((order[fresher], np.delete(order, fresher)))

    def tight_commitment(self, rows: Ints) -> Bools:
        """Return a mask of the candidates in `rows` that are committed to for a year or more although their memory is tight."""
        tight = np.array([one is not None and one.fits == "tight" for one in self.configurations] or [False])
        mask: Bools = tight[self.group[rows]] & (self.terms.years[rows] > 0)
        return mask

    def configuration_at(self, at: int) -> Configuration:
        """Return the layout, batch and precision (configuration) of the candidate at an index of the arrays."""
        one = self.configurations[int(self.group[at])]
        assert one is not None
        return one


class JoinedOffers(msgspec.Struct, frozen=True):
    """What the candidates of feasible groups of GPUs have whatever the results of the groups, in arrays with one entry each."""

    group: Ints
    offer: Ints
    machines: Floats  # machines of one replica
    gpus: Floats  # GPUs of one replica
    watts: Floats  # power of one replica
    terms: OfferTerms
    missed: dict[str, Bools]
    age_factor: Floats
    poorly_supported: Bools
    outdated: Bools
    below_quality: Bools


class CandidateJoin:
    """Joins the offers with the results of their groups of GPUs; what no result changes is computed once."""

    def __init__(
        self, workload: Workload, work: Work, constraints: Constraints, market: Market, groups: Groups, terms: OfferTerms
    ) -> None:
        self.workload, self.work, self.constraints, self.market = workload, work, constraints, market
        self.groups, self.terms = groups, terms
        self._offers = LruCache[JoinedOffers](8)  # by the feasible groups of GPUs
        self._configurations: tuple[Configuration | None, ...] = (None,) * len(groups.groups)
        self._values = np.ones((3, len(groups.groups)))  # of these configurations

    def candidates(self, results: Sequence[GroupResult]) -> Candidates:
        """Return all candidates: each offer with the best configuration of the GPUs it offers, and the cost of the run on it."""
        workload, work, constraints, market, groups = self.workload, self.work, self.constraints, self.market, self.groups
        configurations = tuple(one if isinstance(one, Configuration) else None for one in results)
        offers = self._feasible_offers(configurations)
        group, offer = offers.group, offers.offer
        rate, replicas, answer_seconds = self._group_values(configurations)[:, group]
        machines, gpus = offers.machines * replicas, offers.gpus * replicas
        serving = work.hours is not None
        in_service = (work.hours or 0.0) * constraints.worked_share
        hours = np.full(len(group), in_service) if serving else (work.amount or 0.0) / rate / 3600.0
        terms = replace(offers.terms, machines=machines)
        run = run_cost(hours, terms, constraints.run_settings, interruptible=not serving)
        per_hour = (terms.price + terms.host) * machines
        done = rate
        if serving and workload.rate is not None:  # A service delivers the throughput of its load, not the maximum.
            done = np.full(len(group), workload.rate * (float(workload.seq_out or 1) if work.unit == "tokens" else 1.0))
        spent = _spent(constraints, groups, group, run, per_hour, gpus)
        watts = offers.watts * replicas
        missed = _missed(constraints, market, run, spent, gpus, offer, serving, terms.years) | offers.missed
        if constraints.max_watts is not None and (above := watts > constraints.max_watts * (1 + 1e-9)).any():
            missed["power"] = above
        if (many := replicas > MAX_REPLICAS).any():
            missed["copies"] = many
        if (above := machines > market.max_machines[offer]).any():
            missed["quota"] = above
        return Candidates(
            configurations=configurations, group=group, offer=offer, copies=replicas, gpus=gpus, work_hours=hours, run_cost=run,
            pace=answer_seconds if serving else run.hours, per_hour=per_hour, per_unit=per_hour / (done * 3600.0), missed=missed,
            rejected=_rejected(market, groups, results, missed),
            considered=len(groups.group_of) + groups.left + sum(market.rejected.values()), terms=terms,
            run_settings=constraints.run_settings, age_factor=offers.age_factor, poorly_supported=offers.poorly_supported,
            outdated=offers.outdated, outdated_lead=np.inf if workload.rate is not None else OUTDATED_LEAD,
            below_quality=offers.below_quality, watts=watts, spent=spent,
        )  # fmt: skip

    def _group_values(self, configurations: tuple[Configuration | None, ...]) -> Floats:
        """Return rate, replicas and seconds per answer of each group of GPUs, [3, groups]; 1 if it has no configuration."""
        values = self._values.copy()
        for at, (one, before) in enumerate(zip(configurations, self._configurations, strict=True)):
            if one is not before:
                seconds = _answer_seconds(self.workload, one) if one and self.work.hours is not None else 1.0
                values[:, at] = (one.rate, _replicas(self.workload, one), seconds) if one else 1.0
        self._configurations, self._values = configurations, values
        return values

    def _feasible_offers(self, configurations: Sequence[Configuration | None]) -> JoinedOffers:
        feasible = np.array([one is not None for one in configurations], dtype=bool)
        return self._offers.get(feasible.tobytes(), lambda: self._joined_offers(feasible))

    def _joined_offers(self, feasible: Bools) -> JoinedOffers:
        """Return the pairs of an offer and a feasible group of GPUs, their prices, and the limits that they miss for certain."""
        workload, constraints, market, groups = self.workload, self.constraints, self.market, self.groups
        pairs = feasible[groups.group_of] if len(feasible) else np.zeros(0, dtype=bool)
        group, offer = groups.group_of[pairs], groups.offer_of[pairs]
        machines = np.array([one.machines for one in groups.groups] or [1], dtype=float)[group]
        below, powered = _below_quality(constraints, groups, group), _powered(market)[offer]
        watts = [rated_watts(one.gpu.tdp_watts, one.size, one.machines) * constraints.pue for one in groups.groups]
        missed = {
            "spot-service": (market.terms[offer] == "spot") & (workload.serving and "spot" not in constraints.terms),
            "seller": unreliable_offers(constraints, market, groups, group, offer),
            "quality": below & ~powered,
        }
        return JoinedOffers(
            group=group, offer=offer, machines=machines,
            gpus=np.array([one.size for one in groups.groups] or [1], dtype=float)[group],
            watts=np.array(watts or [0.0])[group], terms=self.terms.at(offer, machines),
            missed={name: lost for name, lost in missed.items() if lost.any()},
            age_factor=age_factor(workload.rate is not None, market, offer),
            poorly_supported=_poorly_supported(workload, groups, group),
            outdated=outdated_offers(workload.rate is not None, market, offer), below_quality=below & powered,
        )  # fmt: skip


def _rejected(market: Market, groups: Groups, results: Sequence[GroupResult], missed: Mapping[str, Bools]) -> Counter[str]:
    """Return how many offers each reason removes: those of the market, then groups without a configuration, then limits."""
    rejected = market.rejected.copy()
    if groups.left:
        rejected["gpus-in-all"] += groups.left
    for one, count in zip(results, np.bincount(groups.group_of, minlength=len(results)).tolist(), strict=True):
        if isinstance(one, Infeasibility):
            rejected[one.reason] += count
    for name, lost in missed.items():
        if count := int(np.count_nonzero(lost)):
            rejected[name] += count
    return rejected


def _powered(market: Market) -> Bools:
    """Return a mask of the offers that are the user's GPUs at the cost of their power; not those at a cost the user states."""
    table = market.table
    powered: Bools = (table.matches("provider", (OWNED,)) & ~table.matches("source", (OWN_PRICES,)))[market.rows]
    return powered


def _last(order: Ints, moved: Bools) -> Ints:
    """Return an order with the marked candidates after all others, otherwise unchanged."""
    return np.concatenate((order[~moved], order[moved])) if moved.any() else order


def _replicas(workload: Workload, one: Configuration) -> float:
    """Return the number of replicas needed to sustain the workload's request rate; 1 without a rate."""
    if workload.rate is None or not one.capacity:
        return 1.0
    return float(max(one.min_replicas, ceil(workload.rate / one.capacity)))


def _answer_seconds(workload: Workload, one: Configuration) -> float:
    """Return the seconds from an inference request to the end of its answer; of one forward pass if no tokens are generated."""
    if one.kind != "generate":
        return one.seconds
    ttft, tpot = expected_latency(workload, one)
    return ttft + float(max(1, workload.seq_out or 1) - 1) * tpot


def _spent(constraints: Constraints, groups: Groups, group: Ints, run: RunCost, per_hour: Floats, gpus: Floats) -> Floats:
    """Return the amount that is compared with the budget: cost per hour or month, of the run, or of the cards to buy."""
    if constraints.budget_per is not None:
        return per_hour * (MONTH_HOURS * constraints.worked_share if constraints.budget_per == "month" else 1.0)
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
