"""What a screen read off lines, counted and timed exactly: done for the candidate that comes first, until it stays first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from whichgpu.decide.candidates import Candidates
from whichgpu.decide.groups import Group, Groups
from whichgpu.decide.relax import leaning
from whichgpu.decide.way import Asked, Outcome, Refusal, Way
from whichgpu.decide.wishes import Wishes
from whichgpu.estimate.fit import fit, needed
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import memory
from whichgpu.estimate.time.answer import work
from whichgpu.estimate.time.grid import evaluate
from whichgpu.price.table import Ints
from whichgpu.workload.shapes import Transformer

MOST = 6  # groups settled before the screen's word is taken
MOST_SERVED = 40  # groups simulated; what is left then is not shown

Join = Callable[[list[Outcome]], tuple[Candidates, Ints]]
Places = Callable[[Candidates, Ints], Iterable[int]]


def settled(
    asked: Asked, groups: Groups, outcomes: list[Outcome], join: Join, wishes: Wishes, listed: Places, shown: Places
) -> tuple[Candidates, Ints, list[Outcome]]:
    """Candidates joined with offers and put in order, the first of them settled; where there is none, those that come nearest.

    Training is screened on lines, serving by formulas; all else is exact as it is.
    """
    if asked.workload.rate is not None and any(isinstance(one, Way) and one.most is not None for one in outcomes):
        return _served(asked, groups, outcomes, join, listed, shown)
    told, order = join(outcomes)
    if not (asked.workload.training and isinstance(asked.shape, Transformer)):
        return told, order, outcomes
    done: set[int] = set()
    while len(done) < MOST and (wanted := ({int(told.group[order[0]])} if len(order) else leaning(told, wishes)) - done):
        for place in wanted:
            way = outcomes[place]
            assert isinstance(way, Way)
            outcomes = [*outcomes[:place], exactly(asked, groups.groups[place], way), *outcomes[place + 1 :]]
        done |= wanted
        told, order = join(outcomes)
    return told, order, outcomes


def _served(
    asked: Asked, groups: Groups, outcomes: list[Outcome], join: Join, listed: Places, shown: Places
) -> tuple[Candidates, Ints, list[Outcome]]:
    """Every group at the most the formulas hope for; those listed are simulated until all that are listed are.

    What is simulated never does better than was hoped, so no group left aside could have won. Then the rest stand at what the
    formulas are sure of, and those of them that would be shown all the same (the fastest, the front) are simulated too: every
    row shown is worked out in one and the same way.
    """
    from whichgpu.decide.simulating import Simulator  # loaded where something is served

    done: dict[int, Outcome] = {}
    simulator = Simulator(asked)

    def simulate(standing: list[Outcome], wanted: Callable[[Candidates, Ints], Iterable[int]]) -> tuple[Candidates, Ints]:
        while True:
            told, order = join(standing)
            places = [int(told.group[place]) for place in wanted(told, order)] if len(order) else []
            left = [one for one in dict.fromkeys(places) if one not in done][: MOST_SERVED - len(done)]
            if not left:
                return told, order
            found = {place: way for place in left if isinstance(way := outcomes[place], Way)}
            simulator.prepare((groups.groups[place], way) for place, way in found.items())
            for place, way in found.items():
                standing[place] = done[place] = simulator.bears(groups.groups[place], way)

    simulate([_hoped(one) for one in outcomes], listed)
    standing = [done.get(place, one) for place, one in enumerate(outcomes)]
    told, order = simulate(standing, shown)
    known = np.array([place in done for place in range(len(standing))], dtype=bool)
    return told, order[known[told.group[order]]], standing


def _hoped(one: Outcome) -> Outcome:
    return replace(one, capacity=one.most) if isinstance(one, Way) and one.most is not None else one


def exactly(asked: Asked, group: Group, way: Way) -> Outcome:
    """The same way, its memory counted and its step timed."""
    one = replace(
        asked.workload, gpus=group.gpus, nodes=group.machines, precision=way.precision, parallel=way.parallel, batch=way.batch,
        micro_batch=way.micro_batch, accumulation=way.accumulation, checkpointing=way.checkpointing,
    )  # fmt: skip
    need = needed(memory(one, asked.shape, group.gpu), one)
    verdict = fit(need, one, group.gpu)
    if verdict.fits == "no":
        return Refusal("memory", need.value / verdict.usable - 1.0)
    if group.gpus == 1:
        grid = evaluate(one, asked.shape, [group.gpu], calibration=asked.calibration)
        seconds, bound, floor = float(grid.seconds.wall[0, 0]), grid.bound(0, 0), float(grid.floor[0, 0])
    else:
        told = evaluate_group(one, asked.shape, Devices.of([group.gpu], [group.fabric], asked.calibration))
        seconds, floor = float(told.told.wall[0, 0]), float(told.floor[0, 0])
        flops, moved = float(told.flop_seconds[0, 0]), float(told.byte_seconds[0, 0])
        waits = float(told.told.communication[0, 0]) > 0.4 * seconds
        bound = "interconnect" if waits else "compute" if flops >= moved else "bandwidth"
    done, _ = work(one, asked.shape)
    return replace(way, seconds=seconds, rate=done / seconds, need=int(need.value), fits=verdict.fits, bound=bound, floor=floor)
