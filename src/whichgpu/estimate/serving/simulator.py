"""Event loop of a server: requests arrive, replicas serve them by continuous batching.

Only the arrivals and their lengths are random, so the same load gives the same outcome.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from math import inf
from random import Random
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.serving.early_stop import CHECKED_ARRIVALS, MissLimit
from whichgpu.estimate.serving.scheduler import Hashes, RequestLog, Scheduler
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.step_tables import StepTables

Array = np.ndarray
RoutingPolicy = Literal["least", "round-robin", "random"]
Arrival = tuple[float, int, int, Hashes]  # seconds, input tokens, output tokens, block hashes of the input


class SimulationOutcome(msgspec.Struct, frozen=True):
    """Times of every request in seconds on the arrivals' clock; rejected requests finished at -1."""

    arrived: Array
    first: Array
    finished: Array
    prompts: Array  # input tokens
    outputs: Array  # output tokens
    refused: int
    preempted: int
    recomputed: int  # tokens computed again after a preemption
    read: int  # input tokens computed, recomputed ones too
    cached: int  # input tokens found in the prefix cache
    busy: float  # share of the time that replicas ran steps
    peak_cache: float  # highest share of the KV blocks in use
    batch_seconds: Array  # seconds, indexed by the number of running sequences of a scheduler
    batch_steps: Array
    complete: bool = True  # False if it was ended early because too many requests missed an objective

    @property
    def answered(self) -> Array:
        """Mask of the requests that finished."""
        return self.finished >= 0


def simulate(
    arrivals: Iterable[Arrival],
    steps: StepTables,
    limits: SchedulerLimits,
    replicas: int = 1,
    stages: int = 1,
    routing: RoutingPolicy = "least",
    concurrency: int | None = None,
    hash_tokens: int = 0,
    misses: MissLimit | None = None,
) -> SimulationOutcome:
    """Serve arrivals, in order of time, on `replicas` replicas; each has one batch in flight per pipeline stage.

    With `concurrency` arrival times are ignored: that many clients each send a request when their previous one is answered.
    With `misses` the simulation ends as soon as too many requests have missed an objective.
    """
    loop = _ServerLoop(steps, limits, replicas, stages, routing, hash_tokens)
    complete = True
    if concurrency is None:
        complete = loop.serve(iter(arrivals), misses)
    else:
        loop.serve_clients(iter(arrivals), concurrency)
    log = loop.log
    span = max(log.finished, default=0.0) - (log.arrived[0] if log.arrived else 0.0)
    outcome = simulation_outcome(log, loop.schedulers, len(log.refused), span)
    return outcome if complete else replace(outcome, complete=False)


class _ServerLoop:
    def __init__(
        self, steps: StepTables, limits: SchedulerLimits, replicas: int, stages: int, routing: RoutingPolicy, hash_tokens: int
    ) -> None:
        self.log, self.limits, self.routing, self.replicas, self.stages = RequestLog(), limits, routing, replicas, stages
        pipelines = [[0.0] * stages if stages > 1 else None for _ in range(replicas)]
        self.schedulers = [Scheduler(steps, limits, self.log, hash_tokens, one) for one in pipelines for _ in range(stages)]
        self.events: list[tuple[float, int]] = []  # time at which a scheduler's step ends, and the scheduler's index
        self.routed = 0
        self.random = Random(replicas)  # The fixed seed gives the same draws every time.
        self.now = 0.0

    def serve(self, arrivals: Iterator[Arrival], misses: MissLimit | None = None) -> bool:
        """Start each request at its arrival time; return False if it ended early because too many requests missed a limit."""
        outside = self.limits.request_latency
        for number, (time, prompt, output, hashes) in enumerate(arrivals):
            self._run_until(time)
            if misses and not number % CHECKED_ARRIVALS and misses.exceeded(self.log, time, outside):
                return False
            self._arrive(time, prompt, output, hashes)
        self._run_until(inf)
        return True

    def serve_clients(self, arrivals: Iterator[Arrival], clients: int) -> None:
        """Start each request when a client is free."""
        free = clients
        for _, prompt, output, hashes in arrivals:
            while not free and self.events:
                free += self._next_event()
            if self._arrive(self.now, prompt, output, hashes):
                free -= 1
        self._run_until(inf)

    def _run_until(self, time: float) -> None:
        events = self.events
        while events and events[0][0] <= time:
            self._next_event()

    def _next_event(self) -> int:
        """Advance to the next time at which a step ends; return how many requests finished with that step."""
        end, index = self.events[0]
        scheduler = self.schedulers[index]
        if end != scheduler.end:
            heappop(self.events)
            return 0  # The run of steps was shortened after this event was queued.
        self.now = end
        done = scheduler.complete()
        scheduler.plan(end)
        if scheduler.end < inf:
            heapreplace(self.events, (scheduler.end, index))
        else:
            heappop(self.events)
        return len(done)

    def _arrive(self, time: float, prompt: int, output: int, hashes: Hashes) -> bool:
        """Route a request; return whether it can ever fit into the KV cache."""
        number = self.log.add(time, prompt, output, hashes)
        size = self.limits.block_tokens
        if -(-(prompt + output) // size) * size > self.limits.cache_tokens:
            self.log.refused.append(number)
            self.log.hashes.pop(number, None)
            return False
        index = self._route()
        scheduler = self.schedulers[index]
        if scheduler.accept(number, time):
            heappush(self.events, (scheduler.end, index))
        return True

    def _route(self) -> int:
        """Choose a replica by the routing policy and return its least loaded scheduler."""
        if len(self.schedulers) == 1:
            return 0
        self.routed += 1
        if self.routing == "least":
            return self._least_loaded(0, len(self.schedulers))
        round_robin = self.routing == "round-robin"
        replica = self.routed % self.replicas if round_robin else self.random.randrange(self.replicas)
        return replica if self.stages == 1 else self._least_loaded(replica * self.stages, self.stages)

    def _least_loaded(self, first: int, count: int) -> int:
        """Return the scheduler with the fewest requests among `count` from index `first` on; ties are broken in turn."""
        loads = [one.load for one in self.schedulers[first : first + count]]
        start, smallest = self.routed % count, min(loads)
        in_turn = loads[start:]
        return first + (start + in_turn.index(smallest) if smallest in in_turn else loads.index(smallest))


def simulation_outcome(log: RequestLog, schedulers: Sequence[Scheduler], refused: int, span: float) -> SimulationOutcome:
    """Return the outcome of a request log that these schedulers filled over `span` seconds.

    A request's latency outside the steps delays all its tokens alike, so it is added afterwards.
    """
    first, finished = (
        np.where(times >= 0.0, times + schedulers[0].limits.request_latency, times)
        for times in (column_array(log.first), column_array(log.finished))
    )
    return SimulationOutcome(
        arrived=column_array(log.arrived), first=first, finished=finished,
        prompts=column_array(log.prompts), outputs=column_array(log.outputs), refused=refused,
        preempted=sum(one.preempted for one in schedulers), recomputed=sum(one.recomputed for one in schedulers),
        read=sum(one.read for one in schedulers), cached=sum(one.hits for one in schedulers),
        busy=sum(one.busy for one in schedulers) / (len(schedulers) * span) if span > 0 else 0.0,
        peak_cache=max(one.peak / one.blocks for one in schedulers),
        batch_seconds=sum_ragged([one.batch_seconds for one in schedulers]),
        batch_steps=sum_ragged([one.batch_steps for one in schedulers]),
    )  # fmt: skip


def sum_ragged(rows: list[list[float]] | list[list[int]]) -> Array:
    """Return the elementwise sum of lists of different lengths."""
    total = np.zeros(max(map(len, rows)))
    for row in rows:
        total[: len(row)] += row
    return total


def column_array(values: array[float] | array[int]) -> Array:
    """Return a NumPy copy of a column of the request log."""
    return np.frombuffer(values, dtype=np.float64 if values.typecode == "d" else np.int64).copy() if len(values) else np.zeros(0)
