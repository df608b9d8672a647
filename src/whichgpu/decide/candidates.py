"""Every offer with the best way its GPUs can do the work: hours, money, and whether it keeps to the wishes. Arrays throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whichgpu.decide.configurations.capacity_bound import waits
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.constraints import TIME_WEIGHT, Constraints, Rank
from whichgpu.decide.market import Market, terms_of
from whichgpu.decide.work import Work
from whichgpu.price.run import Course, Habits, Terms, course
from whichgpu.price.table import Floats, Ints
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

Bools = NDArray[np.bool_]
MOST_COPIES = 64.0  # beyond it a service wants a plan, not a recommendation


@dataclass(frozen=True, slots=True)
class Candidates:
    """One entry for each offer and group that can do the work; limits say which wishes each misses."""

    ways: tuple[Configuration | None, ...]  # by group
    group: Ints
    offer: Ints
    copies: Floats  # of the group, side by side
    gpus: Floats  # of all copies
    work_hours: Floats  # without starts, checkpoints and reruns
    course: Course
    pace: Floats  # what faster is told by: hours of a run, seconds an answer takes of a service
    per_hour: Floats
    per_unit: Floats  # money for a token or sample, starts and the like left out
    missed: dict[str, Bools]
    rejected: Counter[str]
    considered: int
    terms: Terms
    habits: Habits
    spent: Floats  # what a budget is held against: of the run, an hour or a month; the price of all cards where they are bought

    def stretched(self, place: int, factors: Sequence[float]) -> Course:
        """What a run on one candidate comes to where its work takes so many times as long: as it would be billed."""
        rows = np.full(len(factors), place)
        work = self.work_hours[rows] * np.array(factors)
        return course(work, self.terms.at(rows, self.terms.machines[rows]), self.habits, interruptible=True)

    @property
    def kept(self) -> Bools:
        """Those that keep to every wish."""
        return ~np.any(list(self.missed.values()), axis=0) if self.missed else np.ones(len(self.group), dtype=bool)

    def score(self, rank: Rank) -> Floats:
        """Smaller is better; monotone in cost and time, so that nothing dominated ever comes first."""
        with np.errstate(divide="ignore"):
            cost, hours = np.log(np.maximum(self.course.cost, 1e-12)), np.log(np.maximum(self.pace, 1e-12))
        scores = {
            "cost": cost,
            "time": hours,
            "value": np.log(np.maximum(self.per_unit, 1e-30)),
            "balanced": cost + TIME_WEIGHT * hours,
        }
        return np.where(self.kept, scores[rank], np.inf)

    def order(self, rank: Rank, found: Market) -> Ints:
        """Places of those kept, best first; ties go to the cheaper, the faster, the nearer and the more lately seen."""
        seen = -found.table.days[1][found.rows][self.offer].astype(float)
        trip = np.nan_to_num(found.round_trip[self.offer], nan=1e9)
        score = np.round(self.score(rank), 9)
        cost, hours = np.round(self.course.cost, 6), np.round(self.pace, 6)
        ties = (cost, hours) if rank != "time" else (hours, cost)
        order = np.lexsort((found.table.column("instance")[found.rows][self.offer], seen, trip, ties[1], ties[0], score))
        return order[np.isfinite(score[order])]


def candidates(
    workload: Workload, work: Work, constraints: Constraints, found: Market, groups: Groups, outcomes: Sequence[GroupResult],
    offered: Terms | None = None,
) -> Candidates:  # fmt: skip
    """Join offers with what their groups can do, and cost the run on each; `offered` are their terms, where already told."""
    rejected = found.rejected.copy()
    if groups.left:
        rejected["gpus-in-all"] += groups.left
    able = np.array([isinstance(one, Configuration) for one in outcomes], dtype=bool)
    for place, one in enumerate(outcomes):
        if isinstance(one, Infeasibility):
            rejected[one.reason] += int((groups.group_of == place).sum())
    keep = able[groups.group_of] if len(able) else np.zeros(0, dtype=bool)
    group, offer = groups.group_of[keep], groups.offer_of[keep]
    ways = tuple(one if isinstance(one, Configuration) else None for one in outcomes)
    rate = np.array([one.rate if one else 1.0 for one in ways] or [1.0])[group]
    copies = _copies(workload, ways)[group]
    machines = np.array([one.machines for one in groups.groups] or [1], dtype=float)[group] * copies
    size = np.array([one.size for one in groups.groups] or [1], dtype=float)[group] * copies
    serving = work.hours is not None
    hours = np.full(len(group), work.hours) if work.hours is not None else (work.amount or 0.0) / rate / 3600.0
    terms = (offered or terms_of(found)).at(offer, machines)
    told = course(hours, terms, constraints.habits, interruptible=not serving)
    per_hour = (terms.price + terms.host) * machines
    done = _served(workload, work, ways)[group] if serving else rate
    spent = _spent(constraints, groups, group, told, per_hour, size)
    missed = _missed(constraints, found, told, spent, size, offer, serving, terms.years)
    if workload.serving and "spot" not in constraints.terms and (spot := found.terms[offer] == "spot").any():
        missed["spot-service"] = spot
    if (many := copies > MOST_COPIES).any():
        missed["copies"] = many
    for name, lost in missed.items():
        if count := int(lost.sum()):
            rejected[name] += count
    return Candidates(
        ways,
        group,
        offer,
        copies,
        size,
        hours,
        told,
        _answered(workload, ways)[group] if serving else told.hours,
        per_hour,
        per_hour / (done * 3600.0),
        missed,
        rejected,
        len(groups.group_of) + groups.left + sum(found.rejected.values()),
        terms,
        constraints.habits,
        spent,
    )


def _copies(workload: Workload, ways: Sequence[Configuration | None]) -> Floats:
    """Copies of a group that a rate of requests needs; one where no rate is asked for."""
    if workload.rate is None:
        return np.ones(max(1, len(ways)))
    told = [max(one.fewest, np.ceil(workload.rate / one.capacity)) if one and one.capacity else 1.0 for one in ways]
    return np.array(told or [1.0])


def _served(workload: Workload, work: Work, ways: Sequence[Configuration | None]) -> Floats:
    """Work a second a service really does: what is asked of it, or all it can where no rate is."""
    each = float(workload.seq_out or 1) if work.unit == "tokens" else 1.0
    if workload.rate is not None:
        return np.full(max(1, len(ways)), workload.rate * each)
    return np.array([one.rate if one else 1.0 for one in ways] or [1.0])


def _answered(workload: Workload, ways: Sequence[Configuration | None]) -> Floats:
    """Seconds from a request to the end of its answer; those of one pass where nothing is spoken."""
    tokens = float(max(1, workload.seq_out or 1) - 1)

    def seconds(one: Configuration) -> float:
        if one.kind != "generate":
            return one.seconds
        first, each = waits(workload, one)
        return first + tokens * each

    return np.array([seconds(one) if one else 1.0 for one in ways] or [1.0])


def _spent(constraints: Constraints, groups: Groups, group: Ints, told: Course, per_hour: Floats, gpus: Floats) -> Floats:
    """What a budget limits."""
    if constraints.budget_per is not None:
        return per_hour * (MONTH_HOURS if constraints.budget_per == "month" else 1.0)
    if not constraints.cards:
        return told.cost
    return np.array([constraints.cards.get(one.gpu.id, np.inf) for one in groups.groups] or [np.inf])[group] * gpus


def _missed(
    constraints: Constraints, found: Market, told: Course, spent: Floats, gpus: Floats, offer: Ints, serving: bool, years: Floats
) -> dict[str, Bools]:
    """Which limits each candidate misses."""
    missed: dict[str, Bools] = {"never-done": ~np.isfinite(told.hours)}
    bound = years > 0
    long_enough = told.hours >= np.where(np.isfinite(told.break_even), told.break_even, years * 8760.0)
    missed["commitment"] = bound & ~long_enough
    if constraints.gpus is not None:
        missed["gpus-in-all"] = (gpus < constraints.gpus[0]) | (gpus > constraints.gpus[1])
    if constraints.budget is not None:
        missed["budget"] = spent > float(constraints.budget.amount) * (1 + 1e-9)
    if constraints.deadline is not None and not serving:
        missed["deadline"] = told.hours * 3600.0 > constraints.deadline
    owned = _owned_limit(constraints, found, offer, gpus)
    if owned is not None:
        missed["owned-count"] = owned
    return {name: lost for name, lost in missed.items() if lost.any() or name in ("budget", "deadline")}


def _owned_limit(constraints: Constraints, found: Market, offer: Ints, gpus: Floats) -> Bools | None:
    """More of one's own GPUs than one has."""
    if not constraints.owned:
        return None
    have: Counter[str] = Counter()
    for one in constraints.owned:
        have[one.gpu] += one.gpus
    limits = {found.table.place(gpu): float(count) for gpu, count in have.items()}
    mine = found.table.column("gpu")[found.rows][offer].tolist()
    own = found.terms[offer] == "owned"
    over: Bools = own & (gpus > np.array([limits.get(code, 0.0) for code in mine]))
    return over


def pareto(told: Candidates, order: Ints) -> list[int]:
    """Of the places given, those that nothing beats in both cost and time, cheapest first, up to the fastest.

    There is one for each group of GPUs: a term that costs more only to be interrupted less is no other way to go.
    """
    cost, hours = told.course.cost, told.pace
    ranked = order[np.lexsort((hours[order], cost[order]))]
    best, front = np.inf, []
    for place in ranked.tolist():
        if hours[place] < best * (1 - 1e-9):
            best = float(hours[place])
            front.append(place)
    once: dict[tuple[int, float], int] = {}
    for place in front:
        once.setdefault((int(told.group[place]), float(told.copies[place])), place)
    return [place for place in front if place in once.values() or place == front[-1]]
