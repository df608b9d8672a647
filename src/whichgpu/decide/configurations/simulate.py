"""A server's iterations simulated for the few groups that may be the answer: what rate a copy bears, and what users wait.

Queueing formulas say at the least and at the most how many copies a rate takes; in between, simulation settles it. Requests are
drawn from a fixed seed, so the same question always gets the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import numpy as np

from whichgpu.base.errors import NoAnswer
from whichgpu.base.lru import LruCache
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import (
    Configuration,
    GroupResult,
    Infeasibility,
    ReplicaSimulation,
    WorkloadRequest,
)
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.growth import most_borne
from whichgpu.decide.configurations.ranges import time_range
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.curve import OBJECTIVE_MARGIN, Objectives
from whichgpu.estimate.serving.equal_requests import simulate_equal_requests
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits, batch_limits, scheduler_limits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import MeanLengths, ServiceTimes
from whichgpu.estimate.serving.step_tables import StepQueries, StepTables, TableSizes
from whichgpu.estimate.serving.summary import summarise
from whichgpu.estimate.serving.tpot_tail import scaled_waits, tpot_tail
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.workload import Parallel, Workload

# Drawn for one try, with a seed whose draw is like many: in windows of every length as many come as Poisson says (a test holds
# it to that). Against 20,000 requests on 230 servers its 95th percentiles were 0.95 to 1.02 for nine in ten of them.
REQUESTS, TYPICAL = 400, 498
WIDEST = 512  # sequences at once a table is made for; more than that no objective is kept with
FINE = 64  # rows: between these, products grow in a line, save for the leap after each
# Of what saturates it by formula, since flooded servers answered 0.82 of that or more: above, it may go well for long, but what
# once piles up is never worked off.
BUSIEST = 0.82
LEEWAY = 1.03  # times both, where steps are read off few points: what is hoped for is no less than what will be found
CAREFUL = 0.95  # times both, where nothing is simulated (set after rates told without it were refused when asked for)
FARTHEST = 2.0  # times the copies the formulas ask for, where even these fail
# What a request says of its load and the run: no step is longer by it, so servers are shared by requests that differ in these.
UNTIMED: dict[str, Any] = {
    "model": "", "gpu": None, "rate": None, "seq_in": None, "seq_out": None, "ttft_max": None, "tpot_max": None, "percentile": 95,
    "samples": None,
}  # fmt: skip
# Seconds of steps, with the GPU and the corrections whose identities are parts of the key.
Timed = tuple[Floats, Floats, Gpu, Calibration]
_TIMED = LruCache[Timed](256)


class Simulator:
    """Simulates copies for one question; groups whose copies are alike share them, and what was tried is not tried again."""

    def __init__(self, asked: WorkloadRequest) -> None:
        self._asked = asked
        self._copies: dict[Hashable, _Copy | None] = {}  # None where there is no room for a cache
        self._servers: dict[Hashable, tuple[Server, ServiceTimes]] = {}
        self._tried: dict[Hashable, ReplicaSimulation | None] = {}

    def bounded(self, group: Group, way: Configuration) -> GroupResult:
        """The way with as few copies as formulas about the steps it was chosen by allow: no simulation will do with fewer."""
        if (copy := self._copy(group, way)) is None:
            return Infeasibility("memory", 0.0)
        if way.parallel.pp > 1:
            return replace(way, capacity=way.rate_bound)
        copies = self._least(way, _hoped(copy, way), LEEWAY)
        return Infeasibility("latency", 0.0) if copies is None else replace(way, capacity=_shared(self._rate / copies))

    def simulated(self, group: Group, way: Configuration) -> GroupResult:
        """The way with the fewest copies that keep the objectives."""
        self.prepare([(group, way)])
        if (key := _key(group, way)) not in self._servers:
            return Infeasibility("memory", 0.0)
        server, pace = self._servers[key]

        def tried(copies: int) -> ReplicaSimulation | None:
            rate = self._rate / copies / way.parallel.dp
            if (key, rate) not in self._tried:
                self._tried[key, rate] = _tried(self._asked.workload, server, pace, rate)
            return self._tried[key, rate]

        least = self._least(way, pace)
        copies = None if least is None else _fewest(least, self._range(way)[1], lambda count: tried(count) is not None)
        if copies is None:
            return Infeasibility("latency", 0.0)
        served = tried(copies)
        assert served is not None
        sure = time_range(self._asked, group, way)
        told = served.ttft, served.tpot
        fast, slow = (
            scaled_waits(pace, served.rate, self._asked.workload.percentile, told, factor, REQUESTS)
            for factor in (sure.low, sure.high)
        )
        borne = self._borne(way, server, pace, copies)
        return replace(
            way, capacity=_shared(self._rate / copies), simulation=replace(served, fast=fast, slow=slow), max_rate=borne
        )

    def _borne(self, way: Configuration, server: Server, pace: ServiceTimes, copies: int) -> float:
        """Requests a second that a copy bears: by formula, which knows nothing of first tokens; these are simulated."""
        workload, lanes = self._asked.workload, copies * way.parallel.dp

        def may_hold(rate: float) -> bool:
            return _may_hold(workload, pace, rate / lanes, CAREFUL)

        def holds(rate: float) -> bool:
            return workload.ttft_max is None or _tried(workload, server, pace, rate / lanes) is not None

        return most_borne(self._rate, may_hold, holds) / copies

    def prepare(self, candidates: Iterable[tuple[Group, Configuration]]) -> None:
        """Make the servers of candidates that will be asked for; those alike but for the GPU are worked out in one go."""
        alike: dict[Hashable, dict[Hashable, _Copy]] = defaultdict(dict)
        for group, way in candidates:
            key = _key(group, way)
            if key not in self._servers and (copy := self._copy(group, way)) is not None:
                alike[replace(copy.workload, model=""), copy.lane.max_batched_tokens][key] = copy
        for copies in alike.values():
            made = _servers(self._asked, list(copies.values()))
            self._servers |= {key: (one, _pace(self._asked.workload, one)) for key, one in zip(copies, made, strict=True)}

    @property
    def _rate(self) -> float:
        assert self._asked.workload.rate is not None
        return self._asked.workload.rate

    def _copy(self, group: Group, way: Configuration) -> _Copy | None:
        key = _key(group, way)
        if key not in self._copies:
            self._copies[key] = _copy(self._asked, group, way)
        return self._copies[key]

    def _range(self, way: Configuration) -> tuple[int, int]:
        """Copies at the least and at the most that are thought of."""
        fewest, sure = (
            max(way.min_replicas, ceil(self._rate / each - 1e-9)) for each in (way.rate_bound or inf, way.capacity or inf)
        )
        return fewest, ceil(sure * FARTHEST + 0.5)

    def _least(self, way: Configuration, pace: ServiceTimes, leeway: float = 1.0) -> int | None:
        """Copies that may hold by formula."""
        workload, lanes = self._asked.workload, way.parallel.dp
        return _fewest(*self._range(way), lambda count: _may_hold(workload, pace, self._rate / count / lanes, leeway))


def _shared(rate: float) -> float:
    """What a copy stands that gets just so much."""
    return rate * (1 + 1e-9)


def _fewest(fewest: int, most: int, holds: Callable[[int], bool]) -> int | None:
    """The least number of copies that holds: sought in longer and longer strides from the fewest, then between the last two.

    >>> _fewest(2, 26, lambda count: count >= 4), _fewest(3, 7, lambda count: count >= 7), _fewest(1, 4, lambda count: False)
    (4, 7, None)
    """
    failed, found, stride = fewest - 1, fewest, 1
    while not holds(found):
        if found >= most:
            return None
        failed, found, stride = found, min(found + stride, most), stride * 2
    while found - failed > 1:
        middle = (failed + found) // 2
        failed, found = (failed, middle) if holds(middle) else (middle, found)
    return found


def _load(workload: Workload, rate: float) -> Load:
    prompts, outputs = Lengths(float(workload.seq_in or 1), 0.0), Lengths(float(workload.seq_out or 1), 0.0)
    return Load(rate=rate, prompts=prompts, outputs=outputs, requests=REQUESTS, burstiness=1.0, seed=TYPICAL, trace=None)


def _means(workload: Workload) -> MeanLengths:
    return MeanLengths(float(workload.seq_in or 1), float(workload.seq_out or 1))


def _pace(workload: Workload, server: Server) -> ServiceTimes:
    means = _means(workload)
    return ServiceTimes.of(server, means.prompt, means.output)


def _hoped(copy: _Copy, way: Configuration) -> ServiceTimes:
    """The pace of the steps a way was chosen by, at the best: prompts are read in the shade of others' steps."""
    means = _means(copy.workload)
    places = np.array([batch / way.parallel.dp for batch, _, _ in way.curve])
    seconds = np.array([one for _, one, _ in way.curve])
    steps = seconds - way.prefill * places / means.output
    shade = steps * ceil(means.prompt / copy.lane.max_batched_tokens)
    return ServiceTimes(means, copy.lane, way.parallel.pp, places, steps, np.maximum(0.0, way.prefill - shade))


def _may_hold(workload: Workload, pace: ServiceTimes, rate: float, leeway: float) -> bool:
    """Whether a simulation is worth the while: the queue comes to rest, and by formula the objective is kept."""
    most = inf if workload.tpot_max is None else leeway * OBJECTIVE_MARGIN * workload.tpot_max
    return rate <= leeway * BUSIEST * pace.saturation and tpot_tail(pace, rate, workload.percentile) < most


def _tried(workload: Workload, server: Server, pace: ServiceTimes, rate: float) -> ReplicaSimulation | None:
    """What users of one copy wait under a load; None where the objectives fail or the queue grows.

    Between tokens it is the longer of what a simulation and formulas say: where many are at work, few hundred requests are few
    sequences one after the other; where few are, formulas know less of it.
    """
    load = _load(workload, rate)
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile).with_margin
    lengths = round(load.prompts.mean), round(load.outputs.mean)
    outcome = (
        simulate_equal_requests(load.times().tolist(), *lengths, server.steps, server.batch_limits)
        if server.stages == 1
        else None
    )
    outcome = outcome or server.run(load.arrivals())
    if outcome.refused:
        return None
    told = summarise(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,), bands=False)
    if told.growing or (goals.any and not goals.hold(told)):
        return None
    return ReplicaSimulation(
        load.rate, told.ttft.at[0], max(told.tpot.at[0], tpot_tail(pace, load.rate, goals.percentile)), told.requests
    )


def _key(group: Group, way: Configuration) -> Hashable:
    """What copies that behave alike have in common."""
    return group.kind, way.precision, way.parallel.tp, way.parallel.pp, group.machines > 1


@dataclass(frozen=True, slots=True)
class _Copy:
    """One copy of the model on its GPUs, not yet timed."""

    workload: Workload
    group: Group
    limits: SchedulerLimits
    lane: SchedulerLimits


def _copy(asked: WorkloadRequest, group: Group, way: Configuration) -> _Copy | None:
    """None where there is no room for a cache."""
    shape = as_transformer(asked.shape)
    tp, pp = way.parallel.tp, way.parallel.pp
    base = with_precision(asked.workload, way.precision)
    one = replace(base, gpus=tp * pp, nodes=min(pp, group.machines), parallel=Parallel(tp=tp, pp=pp), batch=None)
    try:
        limits = scheduler_limits(one, shape, group.gpu, None, _context(one))
    except NoAnswer:
        return None
    lane = batch_limits(limits, pp)
    most = min(lane.max_sequences, max(1, lane.cache_tokens // lane.block_tokens), WIDEST)
    return _Copy(one, group, limits, replace(lane, max_sequences=most))


def _context(workload: Workload) -> int:
    return (workload.seq_in or 1) + (workload.seq_out or 0)


def _steps(asked: WorkloadRequest, workload: Workload, groups: Sequence[Group]) -> EngineSteps:
    """Of one layout on each of these groups' GPUs."""
    gpus = [group.gpu for group in groups]
    devices = Devices.of(gpus, [group.fabric for group in groups], asked.calibration)
    return EngineSteps(workload, as_transformer(asked.shape), gpus[0], None, devices)


def _servers(asked: WorkloadRequest, copies: Sequence[_Copy]) -> Iterator[Server]:
    """Copies of one layout as the simulator wants them: their steps are timed on all GPUs at once, or were a moment ago."""
    workload, lane, shape = replace(copies[0].workload, **UNTIMED), copies[0].lane, as_transformer(asked.shape)
    pp, context = workload.parallel.pp, 1 << (_context(copies[0].workload) - 1).bit_length()
    wanted = StepQueries(TableSizes(WIDEST, max(lane.max_batched_tokens, 2), context), pp, FINE)
    keys = [
        (workload, shape, id(copy.group.gpu), copy.group.fabric, id(asked.calibration), lane.max_batched_tokens, context)
        for copy in copies
    ]
    known = [_TIMED.peek(key) for key in keys]  # taken out at once: what is put in may push them out
    new = [copy.group for copy, one in zip(copies, known, strict=True) if one is None]
    timed: Iterator[tuple[Floats, Floats]] = iter(())
    if new:
        steps = _steps(asked, workload, new)
        timed = zip(steps.decode_on_each(*wanted.decode), steps.mixed_on_each(*wanted.mixed), strict=True)
    for copy, key, one in zip(copies, keys, known, strict=True):
        told = one or (*next(timed), copy.group.gpu, asked.calibration)
        _TIMED.put(key, told)
        yield Server(StepTables.from_values(wanted.table_values(*told[:2])), copy.limits, copy.lane, 1, pp)
