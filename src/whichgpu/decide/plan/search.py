"""Search for the cheapest fleet whose simulated objectives hold: solve, simulate, enlarge margins of models that miss them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import zip_longest
from time import process_time

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.decide.plan.inputs import (
    PlanInputs,
    PlanSources,
    StageProgress,
    problem_limits,
    read_inputs,
    silent,
    supply_of,
)
from whichgpu.decide.plan.margins import LARGE_STEPS, SMALL_HEADROOMS, Margins, late_rates, planned_objectives, with_margins
from whichgpu.decide.plan.one_length.simulated_capacity import SimulatedColumns, has_one_length
from whichgpu.decide.plan.question import PlanQuestion
from whichgpu.decide.plan.refusal import Refusal, refusal
from whichgpu.decide.plan.simulate import SimulatedModel, simulate_plan
from whichgpu.decide.plan.solver.build import Formulation, ServedModel, build
from whichgpu.decide.plan.solver.growth import utilisation
from whichgpu.decide.plan.solver.problem import Solution
from whichgpu.decide.plan.solver.solve import fewest_kinds, solve
from whichgpu.decide.plan.solver.starts import starts_of
from whichgpu.decide.plan.supply import Supply

GAP = 0.01  # The solver stops at this distance from the proven bound, as a share of the cost.
MAX_SOLVED, MAX_SIMULATED = 60, 20  # Most fleets solved, and most simulated, for one question.
MAX_SMALL_STEPS = 4  # After this many simulated fleets, none of which holds, larger steps are tried.
PATIENCE = 2.0  # After this multiple of the solver's time limit, in processor seconds, no further fleet is solved.


class PlanTrial(msgspec.Struct, frozen=True):
    """One solved fleet at one choice of margins per model, with its simulation."""

    formulation: Formulation
    solution: Solution
    optimum: float  # cost per hour before the number of kinds of machines was reduced
    simulated: tuple[SimulatedModel, ...]
    margins: Mapping[str, Margins]  # by model
    by_simulation: bool = False  # Capacities of replicas are simulated ones; its headroom is what the fleet has free of these.

    @property
    def holds(self) -> bool:
        """Return whether all simulated latency objectives of this fleet hold, at low risk with slow steps as well."""
        return all(one.holds and one.holds_slow for one in self.simulated)

    @property
    def holds_as_estimated(self) -> bool:
        """Return whether all simulated latency objectives of this fleet hold at the estimated step times."""
        return all(one.holds for one in self.simulated)

    @property
    def headroom(self) -> float:
        """Return the largest headroom (share of replica time kept free) of any model in this trial."""
        return max(self.headrooms.values(), default=0.0)

    @property
    def headrooms(self) -> dict[str, float]:
        """Return the share of replicas' time kept free, by model."""
        return {name: one.headroom for name, one in self.margins.items()}


class SolvedPlan(msgspec.Struct, frozen=True):
    """The best fleet found, the inputs it was computed from, and how many simulated fleets missed which objective."""

    question: PlanQuestion
    inputs: PlanInputs
    supply: Supply
    trial: PlanTrial
    missed: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def bill(self) -> float:
        """Return the cost of an average hour, with the hours in which machines start."""
        trial, startup = self.trial, self.inputs.constraints.run_settings.startup
        return trial.solution.bill + starts_of(trial.formulation, trial.solution, startup).cost


class _Candidate(msgspec.Struct, frozen=True):
    """A choice of margins, with its solved fleet if it was solved; `cost` is a lower bound until then."""

    cost: float
    margins: Mapping[str, Margins]
    formulation: Formulation | None = None
    solution: Solution | None = None


class _MarginSearch:
    """Search over margins for the cheapest fleet whose simulated objectives hold: cheapest candidates are simulated first.

    Larger margins never make a fleet cheaper, so the search ends when every candidate left costs at least the best that holds.
    """

    def __init__(
        self, question: PlanQuestion, inputs: PlanInputs, supply: Supply, gap: float, progress: StageProgress, fixed: bool
    ) -> None:
        self.question, self.inputs, self.supply, self.gap, self.progress = question, inputs, supply, gap, progress
        self.fixed = fixed  # The user states the headroom, so no other margins are tried.
        self.limits = problem_limits(question, inputs, supply.pools)
        self.formulations: dict[tuple[float, ...], Formulation] = {}
        self.trials: list[PlanTrial] = []
        self.queue: list[tuple[float, int, _Candidate]] = []
        self.seen: set[tuple[Margins, ...]] = set()
        self.solved, self.start = 0, process_time()

    def run(self) -> Refusal | None:
        """Fill `trials`; return why there is no fleet if there is none at all."""
        simulates = self.question.simulate and not self.fixed
        if simulates and self.inputs.models and all(has_one_length(one) for one in self.inputs.models):
            self._by_simulated_capacities()
            if self._holding():
                return None
        first = self._solve(_Candidate(0.0, {one.name: Margins(self.limits["headroom"]) for one in self.inputs.models}))
        assert first.formulation is not None
        if first.solution is None:
            return refusal(first.formulation, self.inputs.constraints.currency)
        self._try(first)
        while self.queue and not self.fixed and len(self.trials) < MAX_SIMULATED and self._may_solve():
            _, _, candidate = heappop(self.queue)
            if candidate.cost >= self._least_cost() * (1.0 - self.gap):
                break
            if candidate.solution is None:
                candidate = self._solve(candidate)
                if candidate.solution is None:
                    continue
                if self.queue and candidate.cost > self.queue[0][0] * (1.0 + self.gap):
                    self._push(candidate)
                    continue
            self._try(candidate)
            if len(self.trials) == MAX_SMALL_STEPS and not self._holding():
                self._large_steps()
                if not self._holding():
                    break
        if not self.fixed and self.question.simulate and all(_bounds_waits(one) for one in self.inputs.models):
            self._less_headroom()
        return None

    def _by_simulated_capacities(self) -> None:
        """Try the cheapest fleets by capacities as `recommend` simulates them, until one keeps its objectives."""
        margins = {one.name: Margins(0.0) for one in self.inputs.models}
        columns = SimulatedColumns(self._formulation(margins), self.inputs.risk)
        while len(self.trials) < MAX_SIMULATED and self._may_solve():
            candidate = self._solved(_Candidate(0.0, margins, columns.formulation))
            if candidate.solution is None:
                return
            if columns.simulate(candidate.solution):
                continue
            candidate = replace(candidate, formulation=columns.estimated())
            candidate = replace(candidate, margins=self._free_shares(candidate))
            trial = replace(self._simulate(candidate), by_simulation=True)
            self.trials.append(trial)
            if trial.holds:
                return
            columns.reduce(trial.solution)

    def _free_shares(self, candidate: _Candidate) -> dict[str, Margins]:
        """Return each model's headroom in a solved fleet: the least share of time that any of its replicas is free."""
        formulation, solution = candidate.formulation, candidate.solution
        assert formulation is not None
        assert solution is not None
        busiest = [0.0] * len(formulation.models)
        for level in range(formulation.problem.levels):
            for column, busy in zip(formulation.columns, utilisation(formulation.problem, solution, level), strict=True):
                busiest[column.model] = max(busiest[column.model], float(busy))
        return {one.name: Margins(max(0.0, 1.0 - busy)) for one, busy in zip(formulation.models, busiest, strict=True)}

    def _less_headroom(self) -> None:
        """Try fleets with less headroom than the default if that is cheaper, until one misses its objectives in simulation.

        The formulas of capacity are cautious, so a fleet may keep its objectives with less.
        """
        for headroom in SMALL_HEADROOMS:
            if not self._holding() or not self._may_solve():
                return
            candidate = self._solve(_Candidate(0.0, {one.name: Margins(headroom) for one in self.inputs.models}))
            if candidate.solution is None or candidate.solution.cost >= self._least_cost() * (1.0 - self.gap):
                continue
            trial = self._simulate(candidate)
            if not trial.holds:
                return
            self.trials.append(trial)

    def _may_solve(self) -> bool:
        return self.solved < MAX_SOLVED and process_time() - self.start < PATIENCE * self.question.time_limit

    def _holding(self) -> list[PlanTrial]:
        return [one for one in self.trials if one.holds]

    def _least_cost(self) -> float:
        """Return the cost of the cheapest fleet so far whose objectives hold; infinite if there is none."""
        return min((one.optimum for one in self._holding()), default=np.inf)

    def _try(self, candidate: _Candidate) -> None:
        """Simulate a solved fleet and, if it misses objectives, add candidates with larger margins."""
        trial = self._simulate(candidate)
        self.trials.append(trial)
        if not trial.holds:
            self._enlarge(candidate, trial)

    def _large_steps(self) -> None:
        """Try ever larger margins of the models that miss their objectives, until a fleet holds."""
        last = max(self.trials, key=lambda one: min(each.met or 0.0 for each in one.simulated))
        failing = {one.model for one in last.simulated if not (one.holds and one.holds_slow)}
        for headroom, late_share, factor in LARGE_STEPS:
            for step in ((headroom, late_share, factor), (headroom, 1.0, 1.0)):  # The first may have no plan.
                margins = {name: one.at_least(*step) if name in failing else one for name, one in last.margins.items()}
                candidate = self._solve(_Candidate(0.0, margins))
                if candidate.solution is not None:
                    self._try(candidate)
                    break
            if candidate.solution is None or self.trials[-1].holds or not self._may_solve():
                break

    def _push(self, candidate: _Candidate) -> None:
        heappush(self.queue, (candidate.cost, len(self.seen) + self.solved, candidate))

    def _formulation(self, margins: Mapping[str, Margins]) -> Formulation:
        """Return the problem at these margins; capacities are computed once for each choice of limits of the objectives."""
        key = tuple(margins[one.name].limit_factor for one in self.inputs.models)
        if key not in self.formulations:
            planned = [planned_objectives(one, margins[one.name]) for one in self.inputs.models]
            built = build(
                planned, self.supply.pools, self.question.levels, self.limits, lambda share: self.progress("estimates", share)
            )
            self.formulations[key] = replace(built, models=self.inputs.models)
        return with_margins(self.formulations[key], margins)

    def _solve(self, candidate: _Candidate) -> _Candidate:
        return self._solved(replace(candidate, formulation=self._formulation(candidate.margins)))

    def _solved(self, candidate: _Candidate) -> _Candidate:
        """Return a candidate with the fleet of its problem; without one if there is none."""
        formulation = candidate.formulation
        assert formulation is not None
        self.progress("solving", self.solved / MAX_SOLVED)
        self.solved += 1
        solution = self._within_budget(formulation, solve(formulation.problem, self.question.time_limit, self.gap))
        cost = candidate.cost if solution is None else max(candidate.cost, solution.cost)
        return replace(candidate, cost=cost, solution=solution)

    def _within_budget(self, formulation: Formulation, solution: Solution | None) -> Solution | None:
        """Return a plan whose machines' starts, which the program does not count, are within the budget too; None if none is."""
        budget, startup = formulation.problem.budget, self.inputs.constraints.run_settings.startup
        if solution is None or budget is None:
            return solution
        starts = starts_of(formulation, solution, startup).cost
        if solution.bill + starts <= budget:
            return solution
        less = solve(replace(formulation.problem, budget=budget - starts), self.question.time_limit, self.gap)
        if less is None or less.bill + starts_of(formulation, less, startup).cost > budget:
            return None
        return less

    def _simulate(self, candidate: _Candidate) -> PlanTrial:
        formulation, solution = candidate.formulation, candidate.solution
        assert formulation is not None
        assert solution is not None
        simple = fewest_kinds(formulation.problem, solution, self.question.tolerance)
        self.progress("simulating", 0.0)
        # If other margins leave the fleet unchanged, the simulation is not repeated.
        same = next((one for one in self.trials if _same_fleet(one, formulation, simple)), None)
        simulated = same.simulated if same else self._simulated(formulation, simple)
        return PlanTrial(formulation, simple, solution.cost, simulated, dict(candidate.margins))

    def _simulated(self, formulation: Formulation, solution: Solution) -> tuple[SimulatedModel, ...]:
        if not self.question.simulate:
            return ()
        progress, risk = lambda share: self.progress("simulating", share), self.inputs.risk
        return simulate_plan(formulation, solution, self.question.seed, progress, risk)

    def _enlarge(self, candidate: _Candidate, trial: PlanTrial) -> None:
        """Add candidates with one larger margin of those models that miss their objectives."""
        failing = [m for m, one in enumerate(trial.simulated) if not (one.holds and one.holds_slow)]
        names = [self.inputs.models[m].name for m in failing]
        late = any(late_rates(trial.formulation, trial.solution, m).any() for m in failing)
        for changes in zip_longest(*(candidate.margins[name].larger(late) for name in names)):
            changed = {name: change for name, change in zip(names, changes, strict=True) if change is not None}
            margins = {**candidate.margins, **changed}
            if (key := tuple(margins.values())) not in self.seen:
                self.seen.add(key)
                self._push(_Candidate(candidate.cost, margins))


def _bounds_waits(model: ServedModel) -> bool:
    """Return whether a model's objectives limit how long requests wait, so that its simulation shows a queue that grows."""
    return model.objectives.ttft_max is not None or model.objectives.latency_max is not None


def search_plan(
    question: PlanQuestion, sources: PlanSources, progress: StageProgress = silent, gap: float = GAP
) -> SolvedPlan | Refusal:
    """Return the cheapest fleet found, with larger margins while its simulation misses objectives; or why there is none."""
    inputs = read_inputs(question, sources, progress)
    supply = supply_of(question, inputs)
    return supply if isinstance(supply, Refusal) else search_fleets(question, inputs, supply, progress, gap)


def search_fleets(
    question: PlanQuestion, inputs: PlanInputs, supply: Supply, progress: StageProgress = silent, gap: float = GAP
) -> SolvedPlan | Refusal:
    """Return the cheapest fleet found among these machines, as `search_plan` does; or why there is none."""
    search = _MarginSearch(question, inputs, supply, gap, progress, question.headroom is not None)
    refused = search.run()
    if refused is not None:
        return refused
    progress("telling", 0.0)
    missed = Counter(one.worst or "throughput" for trial in search.trials for one in trial.simulated if not one.holds)
    return SolvedPlan(question, inputs, supply, _best_trial(search.trials), missed)


def _same_fleet(trial: PlanTrial, formulation: Formulation, solution: Solution) -> bool:
    other = trial.solution
    return (
        len(formulation.columns) == len(trial.formulation.columns)
        and solution.machines == other.machines
        and np.array_equal(solution.counts, other.counts)
        and np.allclose(solution.shares, other.shares)
    )


def _best_trial(trials: Sequence[PlanTrial]) -> PlanTrial:
    """Return the cheapest fleet whose objectives hold; else the one that meets them for most requests, cheapest on a tie."""
    for holding in ([one for one in trials if one.holds], [one for one in trials if one.holds_as_estimated]):
        if holding:
            return min(holding, key=lambda one: one.solution.cost)
    return max(trials, key=lambda one: (round(min(each.met or 0.0 for each in one.simulated), 3), -one.optimum))
