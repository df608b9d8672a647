"""Search for the cheapest fleet whose simulated objectives hold: solve, simulate, add headroom for models that miss them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from whichgpu.decide.plan.inputs import (
    HEADROOMS,
    PlanInputs,
    PlanSources,
    StageProgress,
    problem_limits,
    read_inputs,
    silent,
    supply_of,
)
from whichgpu.decide.plan.question import PlanQuestion
from whichgpu.decide.plan.refusal import Refusal, refusal
from whichgpu.decide.plan.simulate import SimulatedModel, simulate_plan
from whichgpu.decide.plan.solver.build import Formulation, build, with_headrooms
from whichgpu.decide.plan.solver.problem import Solution
from whichgpu.decide.plan.solver.solve import fewest_kinds, solve
from whichgpu.decide.plan.supply import Supply

GAP = 0.01  # The solver stops at this distance from the proven bound, as a share of the cost.


class PlanTrial(msgspec.Struct, frozen=True):
    """One solved fleet at one choice of headrooms (spare capacity per model), with its simulation."""

    formulation: Formulation
    solution: Solution
    optimum: float  # cost per hour before the number of kinds of machines was reduced
    simulated: tuple[SimulatedModel, ...]
    headrooms: Mapping[str, float]  # share of replicas' time kept free, by model

    @property
    def holds(self) -> bool:
        """Return whether all simulated latency objectives of this fleet hold."""
        return all(one.holds for one in self.simulated)

    @property
    def headroom(self) -> float:
        """Return the largest headroom (share of replica time kept free) of any model in this trial."""
        return max(self.headrooms.values(), default=0.0)


class SolvedPlan(msgspec.Struct, frozen=True):
    """The best fleet found, the inputs it was computed from, and how many simulated fleets missed which objective."""

    question: PlanQuestion
    inputs: PlanInputs
    supply: Supply
    trial: PlanTrial
    missed: Mapping[str, int] = msgspec.field(default_factory=dict)


def search_plan(
    question: PlanQuestion, sources: PlanSources, progress: StageProgress = silent, gap: float = GAP
) -> SolvedPlan | Refusal:
    """Return the cheapest fleet found, with more headroom while its simulation misses objectives; or why there is none."""
    inputs = read_inputs(question, sources, progress)
    supply = supply_of(question, inputs)
    limits = problem_limits(question, inputs, supply.pools)
    formulation = build(inputs.models, supply.pools, question.levels, limits, lambda share: progress("estimates", share))
    headrooms = {one.name: formulation.problem.headroom for one in inputs.models}
    trials: list[PlanTrial] = []
    for place in range(len(HEADROOMS)):
        with_room = with_headrooms(formulation, headrooms)
        progress("solving", place / len(HEADROOMS))
        solution = solve(with_room.problem, question.time_limit, gap)
        if solution is None:
            if trials:
                break
            return refusal(with_room, inputs.constraints.currency)
        simple = fewest_kinds(with_room.problem, solution, question.tolerance)
        progress("simulating", 0.0)
        # If more headroom leaves the fleet unchanged, the simulation is not repeated.
        same = trials and _same_fleet(simple, trials[-1].solution)
        simulated = trials[-1].simulated if same else _simulated(with_room, simple, question, progress)
        trials.append(PlanTrial(with_room, simple, solution.cost, simulated, dict(headrooms)))
        late = [one.model for one in simulated if not one.holds]
        if not late or question.headroom is not None:
            break
        for name in late:  # Only models that miss their objectives get more headroom.
            headrooms[name] = next((more for more in HEADROOMS if more > headrooms[name]), headrooms[name])
    progress("telling", 0.0)
    missed = Counter(one.worst or "throughput" for trial in trials for one in trial.simulated if not one.holds)
    return SolvedPlan(question, inputs, supply, _best_trial(trials), missed)


def _same_fleet(one: Solution, other: Solution) -> bool:
    return one.machines == other.machines and np.array_equal(one.counts, other.counts) and np.allclose(one.shares, other.shares)


def _best_trial(trials: Sequence[PlanTrial]) -> PlanTrial:
    """Return the last fleet tried if its objectives hold; else the one that meets them for most requests, cheapest on a tie."""
    if trials[-1].holds:
        return trials[-1]
    return max(trials, key=lambda one: (round(min(each.met or 0.0 for each in one.simulated), 3), -one.optimum))


def _simulated(
    formulation: Formulation, solution: Solution, question: PlanQuestion, progress: StageProgress
) -> tuple[SimulatedModel, ...]:
    if not question.simulate:
        return ()
    return simulate_plan(formulation, solution, question.seed, lambda share: progress("simulating", share))
