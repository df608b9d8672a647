"""Requests come, copies of the engine answer them: the event loop.

Everything is decided by the arrivals and their lengths; chance is in these alone, so the same load gives the same outcome.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Literal

import numpy as np

from whichgpu.estimate.serving.scheduler import Hashes, RequestLog, Scheduler
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.step_tables import StepTables

Array = np.ndarray
RoutingPolicy = Literal["least", "round-robin", "random"]
Arrival = tuple[float, int, int, Hashes]  # seconds, prompt and answer in tokens, blocks of the prompt
Progress = Callable[[int], None]
PROGRESS_INTERVAL = 1000  # requests between two words of progress


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """What became of every request; seconds from the first arrival's clock, tokens. Refused ones finished at -1."""

    arrived: Array
    first: Array
    finished: Array
    prompts: Array
    outputs: Array
    refused: int
    preempted: int
    recomputed: int  # tokens read again
    read: int  # prompt tokens computed, recomputed ones too
    cached: int  # prompt tokens found in the cache
    busy: float  # share of the time that copies were at work
    peak_cache: float  # share of the cache in use at the fullest moment
    batch_seconds: Array  # by sequences at work in one copy
    batch_steps: Array

    @property
    def answered(self) -> Array:
        """Which requests were answered."""
        return self.finished >= 0

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last answer."""
        return float(self.finished.max() - self.arrived[0]) if len(self.arrived) else 0.0


def simulate(
    arrivals: Iterable[Arrival],
    steps: StepTables,
    limits: SchedulerLimits,
    copies: int = 1,
    stages: int = 1,
    routing: RoutingPolicy = "least",
    concurrency: int | None = None,
    hash_tokens: int = 0,
    progress: Progress | None = None,
) -> SimulationOutcome:
    """Serve the arrivals, in order of time, with so many copies; each has as many batches in flight as its pipeline has stages.

    With `concurrency` their times are not heeded: so many clients ask, each anew when it is answered.
    """
    loop = _Loop(steps, limits, copies, stages, routing, hash_tokens)
    if concurrency is None:
        loop.serve(iter(arrivals), progress)
    else:
        loop.serve_clients(iter(arrivals), concurrency, progress)
    return loop.outcome()


class _Loop:
    def __init__(
        self, steps: StepTables, limits: SchedulerLimits, copies: int, stages: int, routing: RoutingPolicy, hash_tokens: int
    ) -> None:
        self.ledger, self.limits, self.routing, self.copies, self.stages = RequestLog(), limits, routing, copies, stages
        pipelines = [[0.0] * stages if stages > 1 else None for _ in range(copies)]
        self.replicas = [Scheduler(steps, limits, self.ledger, hash_tokens, line) for line in pipelines for _ in range(stages)]
        self.events: list[tuple[float, int]] = []
        self.turn = self.refused = 0
        self.chance = Random(copies)  # the same draws every time
        self.now = 0.0

    def serve(self, arrivals: Iterator[Arrival], progress: Progress | None) -> None:
        """Each at its time."""
        for count, (time, prompt, output, hashes) in enumerate(arrivals):
            self._until(time)
            self._arrive(time, prompt, output, hashes)
            if progress and count % PROGRESS_INTERVAL == 0:
                progress(count)
        self._until(inf)

    def serve_clients(self, arrivals: Iterator[Arrival], clients: int, progress: Progress | None) -> None:
        """Each when a client is free."""
        waiting = clients
        for count, (_, prompt, output, hashes) in enumerate(arrivals, start=1):
            while not waiting and self.events:
                waiting += self._next()
            if self._arrive(self.now, prompt, output, hashes):
                waiting -= 1
            if progress and count % PROGRESS_INTERVAL == 0:
                progress(count)
        self._until(inf)

    def _until(self, time: float) -> None:
        events = self.events
        while events and events[0][0] <= time:
            self._next()

    def _next(self) -> int:
        """The next end of something; how many were answered by it."""
        end, place = heappop(self.events)
        replica = self.replicas[place]
        if end != replica.end:
            return 0  # shortened since
        self.now = end
        done = replica.complete()
        replica.plan(end)
        if replica.end < inf:
            heappush(self.events, (replica.end, place))
        return len(done)

    def _arrive(self, time: float, prompt: int, output: int, hashes: Hashes) -> bool:
        number = self.ledger.add(time, prompt, output, hashes)
        limits = self.limits
        size = limits.block_tokens
        if -(-(prompt + output) // size) * size > limits.cache_tokens:
            self.refused += 1
            self.ledger.hashes.pop(number, None)
            return False
        place = self._choose()
        replica = self.replicas[place]
        if replica.accept(number, time):
            heappush(self.events, (replica.end, place))
        return True

    def _choose(self) -> int:
        """A copy by the way of routing, and of its lanes the one with the least to do."""
        if len(self.replicas) == 1:
            return 0
        self.turn += 1
        if self.routing == "least":
            return self._least(0, len(self.replicas), self.turn)
        copy = self.turn % self.copies if self.routing == "round-robin" else self.chance.randrange(self.copies)
        return copy if self.stages == 1 else self._least(copy * self.stages, self.stages, self.turn)

    def _least(self, first: int, count: int, turn: int) -> int:
        """Who has the least to do of so many; of equals, each in turn."""
        replicas, start = self.replicas, turn % count
        best, least = first + start, replicas[first + start].load
        for step in range(1, count):
            place = first + (start + step) % count
            if replicas[place].load < least:
                best, least = place, replicas[place].load
        return best

    def outcome(self) -> SimulationOutcome:
        ledger, replicas = self.ledger, self.replicas
        span = max(ledger.finished, default=0.0) - (ledger.arrived[0] if ledger.arrived else 0.0)
        return SimulationOutcome(
            arrived=column_array(ledger.arrived), first=column_array(ledger.first), finished=column_array(ledger.finished),
            prompts=column_array(ledger.prompts), outputs=column_array(ledger.outputs), refused=self.refused,
            preempted=sum(one.preempted for one in replicas), recomputed=sum(one.recomputed for one in replicas),
            read=sum(one.read for one in replicas), cached=sum(one.hits for one in replicas),
            busy=sum(one.busy for one in replicas) / (len(replicas) * span) if span > 0 else 0.0,
            peak_cache=max(one.peak / one.blocks for one in replicas),
            batch_seconds=np.sum([one.batch_seconds for one in replicas], axis=0),
            batch_steps=np.sum([one.batch_steps for one in replicas], axis=0),
        )  # fmt: skip


def column_array(values: array[float] | array[int]) -> Array:
    """An array of a ledger's column."""
    return np.frombuffer(values, dtype=np.float64 if values.typecode == "d" else np.int64).copy() if len(values) else np.zeros(0)
