"""The simulator takes runs of equal steps together; here is one that takes them one by one, and both must say the same."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import ArrayLike

from tests.serving_cases import DEFAULT_LIMITS
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.simulator import SimulationOutcome, _ServerLoop, simulate
from whichgpu.estimate.serving.step_tables import StepTables, TableSizes

FIXED, TOKEN, SEQUENCE, CONTEXT = 1e-3, 2e-5, 1e-4, 3e-7


class Bilinear:
    """Steps that tables interpolate exactly: linear in tokens, sequences and attended tokens."""

    def decode(self, batch: ArrayLike, context: ArrayLike) -> np.ndarray:
        many, contexts = np.broadcast_arrays(np.asarray(batch, dtype=float), np.asarray(context, dtype=float))
        return FIXED + many * (SEQUENCE + CONTEXT * contexts)

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> np.ndarray:
        read, reach, many, contexts = np.broadcast_arrays(
            *(np.asarray(one, dtype=float) for one in (tokens, context, batch, decode_context))
        )
        return FIXED + read * (TOKEN + CONTEXT * reach) + many * (SEQUENCE + CONTEXT * contexts)


STEPS = Bilinear()


@dataclass
class Sequence:
    """A request in the engine."""

    number: int
    prompt: int
    output: int
    written: int = 0
    read: int = 0  # of the prompt and the output before the preemption
    context: int = 0
    target: int = 0


@dataclass
class Reference:
    """First come, first served; one step at a time; blocks recounted at every query."""

    limits: SchedulerLimits
    waiting: deque[Sequence] = field(default_factory=deque)
    reading: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    preempted: int = 0
    recomputed: int = 0
    read: int = 0
    peak: int = 0

    def blocks(self, one: Sequence, tokens: int) -> int:
        if self.limits.reserve_answers:
            tokens = one.prompt + one.output
        return -(-tokens // self.limits.block_tokens)

    @property
    def used(self) -> int:
        return sum(self.blocks(one, one.target) for one in self.reading) + sum(
            self.blocks(one, one.context) for one in self.running
        )

    @property
    def used_next(self) -> int:
        """With one more token of each."""
        return sum(self.blocks(one, one.target) for one in self.reading) + sum(
            self.blocks(one, one.context + 1) for one in self.running
        )

    def step(self) -> tuple[float, list[tuple[Sequence, int]], bool]:
        """Seconds of the next step, chunks of prompts in it, and whether the others get a token."""
        limits = self.limits
        room = limits.cache_tokens // limits.block_tokens
        while self.running and self.used_next > room:
            self.throw_out()
        budget = limits.max_batched_tokens - (len(self.running) if limits.mixed_steps else 0)
        chunks: list[tuple[Sequence, int]] = []
        full = False
        for one in self.reading:
            size = min(one.target - one.read, budget)
            if size <= 0:
                full = True
                break
            chunks.append((one, size))
            budget -= size
        while not full and self.waiting and budget > 0 and len(self.running) + len(self.reading) < limits.max_sequences:
            one = self.waiting[0]
            one.target, one.read = one.prompt + one.written, 0
            if self.used_next + self.blocks(one, one.target) > room and (self.running or self.reading):
                break
            if one.target > budget and not limits.chunked_prefill and chunks:
                break
            self.reading.append(self.waiting.popleft())
            chunks.append((one, min(one.target, budget)))
            budget -= chunks[-1][1]
        self.peak = max(self.peak, self.used)
        many = len(self.running)
        context = sum(one.context for one in self.running) / many if many else 0.0
        if not chunks:
            return float(STEPS.decode(many, context)), [], True
        tokens = sum(size for _, size in chunks)
        pairs = sum(size * (one.read + size / 2) for one, size in chunks)  # tokens each token sees, in all
        beside = many if limits.mixed_steps else 0
        return float(STEPS.mixed(tokens, pairs / tokens - tokens / 2, beside, context if beside else 0.0)), chunks, beside > 0

    def throw_out(self) -> None:
        self.preempted += 1
        one = self.reading.pop() if self.reading else self.running.pop()
        self.recomputed += one.read if one.context == 0 else one.context
        one.context = 0
        self.waiting.appendleft(one)

    def done(self, chunks: list[tuple[Sequence, int]], stepping: bool) -> tuple[list[Sequence], list[Sequence]]:
        """Who got a first token of a prompt, who finished."""
        begun, ended = [], []
        if stepping:
            for one in self.running:
                one.context += 1
                one.written += 1
            self.peak = max(self.peak, self.used)
            ended = [one for one in self.running if one.written == one.output]
            self.running = [one for one in self.running if one.written < one.output]
        for one, size in chunks:
            one.read += size
            self.read += size
            if one.read < one.target:
                continue
            self.reading.remove(one)
            begun.append(one)
            one.written += 1
            one.context = one.target
            (ended if one.written == one.output else self.running).append(one)
        return begun, ended


def one_by_one(arrivals: list[tuple[float, int, int]], limits: SchedulerLimits) -> tuple[Reference, np.ndarray, np.ndarray]:
    engine, now, started, place = Reference(limits), 0.0, 0.0, 0
    first, finished = np.full(len(arrivals), -1.0), np.full(len(arrivals), -1.0)
    while True:
        ahead = limits.schedules_ahead and (engine.reading or engine.running)  # the next step was scheduled as the last began
        while place < len(arrivals) and arrivals[place][0] < (started if ahead else now):
            engine.waiting.append(Sequence(place, *arrivals[place][1:]))
            place += 1
        if not (engine.waiting or engine.reading or engine.running):
            if place == len(arrivals):
                return engine, first, finished
            now = arrivals[place][0]
            engine.waiting.append(Sequence(place, *arrivals[place][1:]))
            place += 1
        seconds, chunks, stepping = engine.step()
        started = now
        now += seconds
        begun, ended = engine.done(chunks, stepping)
        for one in begun:
            if first[one.number] < 0:
                first[one.number] = now
        for one in ended:
            finished[one.number] = now


def simulated(arrivals: list[tuple[float, int, int]], limits: SchedulerLimits) -> SimulationOutcome:
    tables = StepTables(STEPS, TableSizes(limits.max_sequences, limits.max_batched_tokens, 4096))
    return simulate([(time, prompt, output, ()) for time, prompt, output in arrivals], tables, limits)


CASES = {
    "room": {},
    "chunks": {"max_batched_tokens": 64},
    "few": {"max_sequences": 3},
    "tight": {"cache_tokens": 16 * 24},
    "tight small blocks": {"cache_tokens": 4 * 60, "block_tokens": 4},
    "tight and few": {"cache_tokens": 16 * 20, "max_sequences": 5, "max_batched_tokens": 48},
    "reserving": {"cache_tokens": 16 * 24, "reserve_answers": True},
    "apart": {"mixed_steps": False},
    "apart and tight": {"mixed_steps": False, "cache_tokens": 16 * 24, "max_batched_tokens": 64},
    "whole prompts": {"chunked_prefill": False, "max_batched_tokens": 160},
    "ahead": {"schedules_ahead": True},
    "ahead and few": {"schedules_ahead": True, "max_sequences": 3, "max_batched_tokens": 64},
    "ahead and tight": {"schedules_ahead": True, "cache_tokens": 16 * 24},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_batched_decode_steps_equal_single_steps(case: str, seed: int) -> None:
    chance = np.random.default_rng(seed)
    limits = replace(DEFAULT_LIMITS, **CASES[case])  # type: ignore[arg-type]
    times = np.cumsum(chance.exponential(0.02, 60)).tolist()
    arrivals = [(time, int(chance.integers(1, 150)), int(chance.integers(1, 60))) for time in times]
    engine, first, finished = one_by_one(arrivals, limits)
    outcome = simulated(arrivals, limits)
    assert (outcome.preempted, outcome.recomputed, outcome.read, outcome.refused) == (
        engine.preempted,
        engine.recomputed,
        engine.read,
        0,
    )
    assert outcome.peak_cache == engine.peak / (limits.cache_tokens // limits.block_tokens)
    assert np.allclose(outcome.first, first, rtol=1e-9)
    assert np.allclose(outcome.finished, finished, rtol=1e-9)
    assert ("tight" not in case) or engine.preempted > 0  # else it tests less than it says


def test_request_waits_for_the_step_already_scheduled_unless_idle() -> None:
    arrivals = [(0.0, 10, 50), (0.0055, 10, 5), (9.0, 10, 5)]
    outcomes = {ahead: simulated(arrivals, replace(DEFAULT_LIMITS, schedules_ahead=ahead)) for ahead in (False, True)}
    step = float(STEPS.decode(1, 12.0))
    later = outcomes[True].first - outcomes[False].first
    assert later[0] == later[2] == 0.0
    assert later[1] == pytest.approx(step, rel=0.01)


def test_latency_outside_steps_delays_every_token_equally() -> None:
    arrivals = [(0.1 * number, 10, 50) for number in range(5)]
    without, with_latency = (simulated(arrivals, replace(DEFAULT_LIMITS, request_latency=seconds)) for seconds in (0.0, 0.003))
    assert np.allclose(with_latency.first - without.first, 0.003)
    assert np.allclose(with_latency.finished - without.finished, 0.003)


def test_requests_go_to_the_least_loaded_replica_and_ties_in_turn() -> None:
    """Three replicas of two ranks; a long request keeps one rank busy, the others take new requests."""
    tables = StepTables(STEPS, TableSizes(DEFAULT_LIMITS.max_sequences, DEFAULT_LIMITS.max_batched_tokens, 4096))

    def routed_ranks(routing: Any, copies: int, stages: int, count: int) -> list[int]:
        loop = _ServerLoop(tables, DEFAULT_LIMITS, copies, stages, routing, 0)
        return [loop._route() for _ in range(count)]

    assert routed_ranks("least", 3, 1, 4) == [1, 2, 0, 1]
    assert routed_ranks("round-robin", 3, 1, 4) == [1, 2, 0, 1]
    assert routed_ranks("round-robin", 2, 2, 4) == [3, 0, 3, 0]  # round robin over replicas, and over the ranks of each
    busy = _ServerLoop(tables, DEFAULT_LIMITS, 3, 1, "least", 0)
    for place, load in enumerate((2, 0, 1)):
        busy.schedulers[place].load = load
    assert [busy._route() for _ in range(3)] == [1, 1, 1]
    assert set(routed_ranks("random", 3, 2, 40)) == set(range(6))
