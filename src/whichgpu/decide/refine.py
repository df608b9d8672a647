"""Refiners: exact evaluation of the groups of GPUs that lead the ranking, one refiner for each kind of workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator

import numpy as np
from msgspec.structs import replace

from whichgpu.base.lru import LruCache
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import MAX_REPLICAS, Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.evaluate import Cached, group_key, request_key
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.relax import groups_nearest
from whichgpu.estimate.fit import fit, required_memory, verdict, with_training_defaults
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.offline import offline_batch, replica_seconds, single_replica
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Ints
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.workload import Workload

MAX_TRAINING_GROUPS = 24  # Groups refined in training at most: enough for all listed rows (assumed).
MAX_GROUPS = 40  # Groups refined at most for inference; further groups of a service are not displayed (assumed).
MAX_ADDED = 4  # At most as many replicas are added to a group whose fleet misses its objectives in a long simulation.
AHEAD = 32  # This many leading groups get bounds by formulas at once, since they would be refined next.

# Bounded, simulated and completed results of groups of GPUs: a question is often repeated with another ranking or provider.
_SERVED = LruCache[Cached](1024)

Leaders = Callable[[Candidates, Ints], Iterable[int]]  # Type of a function that selects which candidates of a ranking to refine.
Passes = Iterator[tuple[list[GroupResult], Leaders]]


def refiner_for(screened: EvaluatedQuestion) -> Refiner:
    """Return the refiner (exact evaluation of leading candidates) for a question's kind of workload."""
    request, workload = screened.request, screened.request.workload
    bounded = any(isinstance(one, Configuration) and one.rate_bound is not None for one in screened.results)
    if workload.rate is not None and bounded:
        return ServingRefiner(screened)
    if chooses_batch(workload, request.shape, request.stated) and workload.generating and request.shape.is_generative:
        return OfflineRefiner(screened)
    if workload.training and request.shape.is_transformer:
        return TrainingRefiner(screened)
    return Refiner(screened)


class Refiner:
    """Refiner for workloads whose screened results are exact already: it changes nothing."""

    def __init__(self, screened: EvaluatedQuestion) -> None:
        self.screened, self.request, self.groups = screened, screened.request, screened.groups.groups
        self.done: dict[int, GroupResult] = {}

    def passes(self, listed: Leaders, displayed: Leaders) -> Passes:
        """Yield, for each pass, the results of all groups of GPUs to start from, and the function that picks rows to refine."""
        yield list(self.screened.results), listed

    def nearest(self, candidates: Candidates) -> Iterable[int]:
        """Return the indices of groups to evaluate exactly if no candidate meets the limits."""
        return ()

    def refine(self, leading_groups: Iterable[int], order: Ints) -> dict[int, GroupResult]:
        """Return exact results by index of the group of GPUs, none once all are refined; `order` has the groups of all rows."""
        return {}

    def comparable(self, candidates: Candidates, order: Ints) -> Ints:
        """Return those candidates of a ranking whose results are exact enough to be displayed side by side."""
        return order

    def completed(self, groups: Iterable[int]) -> dict[int, GroupResult]:
        """Return results with what only displayed rows need, by index of the group of GPUs."""
        return {}

    def _screened(self, groups: Iterable[int]) -> dict[int, Configuration]:
        """Return the approximate (screened) configurations of those groups of GPUs that are not evaluated exactly yet."""
        results = self.screened.results
        return {at: one for at in groups if at not in self.done and isinstance(one := results[at], Configuration)}


class TrainingRefiner(Refiner):
    """Refiner for training: computes memory and step time exactly, which the screen only interpolates."""

    def nearest(self, candidates: Candidates) -> Iterable[int]:
        """Return the groups of GPUs that need the smallest increase of budget or deadline, which the error proposes."""
        return groups_nearest(candidates, self.screened.selection.constraints)

    def refine(self, leading_groups: Iterable[int], order: Ints) -> dict[int, GroupResult]:
        """Return the exactly evaluated training step of each leading group of GPUs, by group index."""
        if len(self.done) >= MAX_TRAINING_GROUPS:
            return {}
        refined = {at: exact_training(self.request, self.groups[at], one) for at, one in self._screened(leading_groups).items()}
        self.done |= refined
        return refined


class OfflineRefiner(Refiner):
    """Refiner for offline inference: finds the best concurrency exactly, as `estimate` does; the screen tries a grid."""

    def __init__(self, screened: EvaluatedQuestion) -> None:
        super().__init__(screened)
        self._replicas: dict[Hashable, GroupResult] = {}  # one replica's, by GPU, precision and layout

    def refine(self, leading_groups: Iterable[int], order: Ints) -> dict[int, GroupResult]:
        """Return each leading group of GPUs at the concurrency with the highest throughput that fits, by group index."""
        left = list(self._screened(leading_groups).items())[: MAX_GROUPS - len(self.done)]
        refined = {at: self._offline(self.groups[at], one) for at, one in left}
        self.done |= refined
        return refined

    def _offline(self, group: Group, one: Configuration) -> GroupResult:
        key = group.kind, one.precision, replace(one.parallel, dp=1)
        if key not in self._replicas:
            self._replicas[key] = _offline_replica(self.request, group, one)
        replica, dp = self._replicas[key], one.parallel.dp
        if isinstance(replica, Infeasibility):
            return replica
        batch = replica.batch * dp
        return replace(replica, batch=batch, rate=batch / replica.seconds, parallel=one.parallel, curve=one.curve)


class ServingRefiner(Refiner):
    """Refiner for services: simulates replicas, whose request rate the screen only bounds by queueing formulas.

    The first pass starts from upper bounds. Every refinement lowers a bound, first by formulas about the group's own steps and
    then by simulation, so no group that was not refined could lead. The second pass starts from simulated rates, and from safe
    rates of other groups, and simulates all other displayed rows (the fastest, the Pareto front), so that rows are comparable.
    The last pass simulates the leader's fleet with as many requests as that of a plan.
    """

    def __init__(self, screened: EvaluatedQuestion) -> None:
        from whichgpu.decide.configurations.simulate import Simulator  # Only services need this import.

        super().__init__(screened)
        self._simulator = Simulator(self.request, screened.risk)
        self._key = request_key(self.request), screened.risk
        self._bounded: set[int] = set()
        self._proven: set[int] | None = None  # groups whose fleet was simulated with many more requests; None before that
        self._added: Counter[int] = Counter()  # replicas added to groups whose fleet missed its objectives then
        self._ahead = AHEAD

    def passes(self, listed: Leaders, displayed: Leaders) -> Passes:
        """Yield results at upper bounds with `listed`, then results at simulated or else safe rates with `displayed`."""
        yield [_at_rate_bound(one) for one in self.screened.results], listed
        self._ahead = 0
        yield [self.done.get(at, one) for at, one in enumerate(self.screened.results)], displayed
        self._proven = set()
        yield [self.done.get(at, one) for at, one in enumerate(self.screened.results)], lambda _, order: order[:1].tolist()

    def refine(self, leading_groups: Iterable[int], order: Ints) -> dict[int, GroupResult]:
        """Return tighter rate bounds for leading groups of GPUs without any; once all have them, return simulated results."""
        if self._proven is not None:
            return self._prove(at for at in leading_groups if at not in self._screened([at]))
        left = self._screened(leading_groups)
        if any(at not in self._bounded for at in left):
            first = order[np.sort(np.unique(order, return_index=True)[1])[: self._ahead]].tolist()
            new = {at: one for at, one in (left | self._screened(first)).items() if at not in self._bounded}
            self._bounded |= new.keys()
            return self._cached(self._simulator.bounded, new)
        left = dict(list(left.items())[: MAX_GROUPS - len(self.done)])
        simulated = self._cached(self._simulator.simulated, left, self._simulator.prepare)
        self.done |= simulated
        return simulated

    def _prove(self, groups: Iterable[int]) -> dict[int, GroupResult]:
        """Return groups with one replica more whose fleet misses its objectives if it is simulated as that of a plan."""
        assert self._proven is not None
        refined: dict[int, GroupResult] = {}
        for at in groups:
            one = self.done.get(at)
            if at in self._proven or not isinstance(one, Configuration):
                continue
            proven = self._cached(self._proven_fleet, {at: one})[at] if self._added[at] < MAX_ADDED else one
            if proven is one:
                self._proven.add(at)
            else:
                self._added[at] += 1
                refined[at] = proven
        self.done |= refined
        return refined

    def _proven_fleet(self, group: Group, one: Configuration) -> GroupResult:
        """Return a simulated configuration if its fleet keeps its objectives as a plan's must; else one with a replica more.

        Fleets without objectives, with pipelines or parts of a GPU, or too large to be simulated are returned unchanged.
        """
        workload, replicas = self.request.workload, self._simulator.replicas_of(one)
        limited = workload.ttft_max is not None or workload.tpot_max is not None
        able = one.simulation is not None and limited and one.parallel.pp == 1 and group.share == 1.0
        if self.screened.keeps_objectives is None or not able or replicas > MAX_REPLICAS:
            return one
        limits, copies = self._simulator.limits_of(group, one), replicas * one.parallel.dp
        keeps = self.screened.keeps_objectives(self.request, group, one, limits, copies, self.screened.risk)
        return one if keeps else self._simulator.with_one_more(group, one)

    def completed(self, groups: Iterable[int]) -> dict[int, GroupResult]:
        """Return simulated results with the highest request rate that each group sustains, by index of the group of GPUs."""
        simulated = {at: one for at in groups if isinstance(one := self.done.get(at), Configuration)}
        return self._cached(self._simulator.completed, simulated, self._simulator.prepare)

    def _cached(
        self, evaluate: Callable[[Group, Configuration], GroupResult], configurations: dict[int, Configuration],
        prepare: Callable[[Iterable[tuple[Group, Configuration]]], None] = lambda _: None,
    ) -> dict[int, GroupResult]:  # fmt: skip
        """Return the evaluated configuration of each group of GPUs; those not cached are prepared together."""
        keys = {at: (evaluate.__name__, self._key, group_key(self.groups[at]), one) for at, one in configurations.items()}
        cached = {at: _SERVED.peek(key) for at, key in keys.items()}  # All are read first, since storing one may evict others.
        prepare((self.groups[at], configurations[at]) for at, entry in cached.items() if entry is None)
        results: dict[int, GroupResult] = {}
        for at, entry in cached.items():
            entry = entry or ((evaluate(self.groups[at], configurations[at]),), (self.request, self.groups[at]))
            _SERVED.put(keys[at], entry)
            # A result that equals its question is that object itself, also if it was cached for an equal one.
            results[at] = configurations[at] if entry[0][0] == configurations[at] else entry[0][0]
        return results

    def comparable(self, candidates: Candidates, order: Ints) -> Ints:
        """Return the candidates of a ranking whose groups of GPUs were simulated, so that their rates are comparable."""
        done = np.array([at in self.done for at in range(len(self.groups))], dtype=bool)
        simulated: Ints = order[done[candidates.group[order]]]
        return simulated


def _at_rate_bound(one: GroupResult) -> GroupResult:
    if not isinstance(one, Configuration) or one.rate_bound is None:
        return one
    return replace(one, capacity=max(each.rate_bound or 0.0 for each in one.layouts))


def _offline_replica(request: WorkloadRequest, group: Group, one: Configuration) -> GroupResult:
    """Return the group's configuration with batch, time and memory of one replica at its best concurrency."""
    gpu, shape = group.gpu, request.shape
    workload = single_replica(workload_of(with_precision(request.workload, one.precision, request.stated), group, one))

    def memory_of(workload: Workload) -> MemoryEstimate:
        return estimate_memory(workload, shape, gpu)

    seconds_of = replica_seconds(workload, shape, gpu, lambda: group.fabric, request.calibration)
    batch = offline_batch(workload, shape, gpu, memory_of, seconds_of)
    workload = replace(workload, batch=batch)
    need, usable = required_memory(memory_of(workload), workload), usable_bytes(gpu, workload)
    fits = verdict(need, usable)
    if fits == "no":
        return Infeasibility("memory", need.value / usable - 1.0)
    seconds, bound, floor = step_time(request, group, workload)
    return replace(
        one, batch=batch, seconds=seconds, bound=bound, floor=floor, need=int(need.value), usable=usable, fits=fits
    )  # fmt: skip


def exact_training(request: WorkloadRequest, group: Group, one: Configuration) -> GroupResult:
    """Return a configuration with exact memory and step time, its micro-batch and checkpointing chosen as `fit` does.

    A pipeline with a given batch keeps the micro-batch that fills its stages best.
    """
    gpu, shape = group.gpu, request.shape
    workload = workload_of(request.workload, group, one)
    if "batch" not in request.stated or one.parallel.pp == 1:
        workload = with_training_defaults(workload, shape, gpu, request.stated, lambda it: estimate_memory(it, shape, gpu))
    need = required_memory(estimate_memory(workload, shape, gpu), workload)
    fitted = fit(need, workload, gpu)
    if fitted.fits == "no":
        return Infeasibility("memory", need.value / fitted.usable - 1.0)
    seconds, bound, floor = step_time(request, group, workload)
    done, _ = work_per_step(workload, shape)
    return replace(
        one, seconds=seconds, rate=done / seconds, need=int(need.value), fits=fitted.fits, bound=bound, floor=floor,
        checkpointing=workload.checkpointing, micro_batch=workload.local_batch, accumulation=workload.accumulation,
    )  # fmt: skip


def workload_of(workload: Workload, group: Group, one: Configuration) -> Workload:
    """Return the workload with the GPUs, parallel layout, batch and precision of a configuration on a group of GPUs."""
    return replace(
        workload, gpus=group.gpus, nodes=group.machines, precision=one.precision, parallel=one.parallel, batch=one.batch,
        micro_batch=one.micro_batch, accumulation=one.accumulation, checkpointing=one.checkpointing,
    )  # fmt: skip


def step_time(request: WorkloadRequest, group: Group, workload: Workload) -> tuple[float, str, float]:
    """Return the seconds of a step on a group, its bottleneck, and the fewest seconds possible at the GPU's peaks."""
    if workload.gpus == 1:
        grid = evaluate_grid(workload, request.shape, [group.gpu], calibration=request.calibration)
        return float(grid.seconds.wall[0, 0]), grid.bound(0, 0), float(grid.floor[0, 0])
    step = evaluate_group(workload, request.shape, Devices.of([group.gpu], [group.fabric], request.calibration))
    seconds, floor = float(step.breakdown.wall[0, 0]), float(step.floor[0, 0])
    if float(step.breakdown.communication[0, 0]) > 0.4 * seconds:
        return seconds, "interconnect", floor
    return seconds, "compute" if float(step.flop_seconds[0, 0]) >= float(step.byte_seconds[0, 0]) else "bandwidth", floor
