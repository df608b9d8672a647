"""A bounded ramp of concurrency: a fixed number of requests at each level, and what they took.

At each level, as many workers as the level's concurrency send one request after another. A worker's first request is short by
a random amount, so that later prefills are spread over time as in a running service; only what follows is measured.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from statistics import median

import msgspec

from whichgpu.base.errors import WhichGpuError
from whichgpu.measure.bench.case import Timing, summarise_runs
from whichgpu.measure.endpoint.client import LateAnswer, StreamedAnswer

ROUNDS = 3  # Measured requests of each worker.
MIN_CLEAN_GAPS = 20  # Fewest gaps between tokens without a prefill from which the time of a decode step is taken.

Ask = Callable[[int, int], StreamedAnswer]  # Takes the number of output tokens and a seed.
OpenWorker = Callable[[], AbstractContextManager[Ask]]  # Opens a connection of its own.


class Budget(msgspec.Struct, frozen=True):
    """The most that a ramp sends: requests, their input tokens, and output tokens."""

    requests: int
    tokens_in: int
    tokens_out: int


class Level(msgspec.Struct, frozen=True):
    """Measurements at one concurrency: times in seconds, throughput in output tokens per second of all requests together."""

    concurrency: int
    requests: int  # requests whose times were used
    tokens_in: int  # median input tokens of a request, as the server counts them
    tokens_out: int
    ttft: Timing
    tpot: Timing | None
    throughput: float
    decode_step: Timing | None  # time of one decode step while no request was in its prefill; None if there were too few


def budget(levels: Sequence[int], tokens_in: int, tokens_out: int) -> Budget:
    """Return the most that a ramp over these levels sends, its first probe included."""
    requests = 1 + sum(levels) * (1 + ROUNDS)
    return Budget(requests, requests * tokens_in, requests * tokens_out)


def run_level(concurrency: int, tokens_out: int, open_worker: OpenWorker, deadline: float) -> Level | None:
    """Return the measurements at one concurrency; None if the deadline (monotonic seconds) came before any was complete."""
    workers = [_Worker(index, open_worker, tokens_out, concurrency, deadline) for index in range(concurrency)]
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if error := next((worker.error for worker in workers if worker.error is not None), None):
        raise error
    return summarise_level(concurrency, [worker.answers for worker in workers])


class _Worker:
    """Sends requests one after another; an error ends it and is kept."""

    def __init__(self, index: int, open_worker: OpenWorker, tokens_out: int, concurrency: int, deadline: float) -> None:
        self._open, self._tokens_out, self._deadline = open_worker, tokens_out, deadline
        self._random = random.Random(concurrency * 100_003 + index)
        self.answers: list[StreamedAnswer] = []
        self.error: WhichGpuError | None = None

    def run(self) -> None:
        """Send the short first request and the measured ones, until the deadline."""
        try:
            with self._open() as ask:
                for number in range(1 + ROUNDS):
                    if number and time.perf_counter() >= self._deadline:
                        return
                    length = self._tokens_out if number else self._random.randint(1, self._tokens_out)
                    self.answers.append(ask(length, self._random.getrandbits(48)))
        except LateAnswer:  # The answers before it count.
            return
        except WhichGpuError as problem:
            self.error = problem


def summarise_level(concurrency: int, answers: Sequence[Sequence[StreamedAnswer]]) -> Level | None:
    """Return the figures of one level from the answers of its workers, while all of them were busy."""
    if any(len(ones) < 2 for ones in answers):
        return None
    start = max(ones[0].arrivals[-1] for ones in answers)
    end = min(ones[-1].arrivals[-1] for ones in answers)
    measured = [one for ones in answers for one in ones[1:]]
    begun = [one for one in measured if start <= one.sent and one.arrivals[0] <= end] or measured
    whole = [one for one in begun if one.arrivals[-1] <= end] or begun
    every = [one for ones in answers for one in ones]
    tpots = [one.tpot for one in whole if one.tpot is not None]
    gaps = _clean_gaps(every, start, end)
    return Level(
        concurrency,
        len(begun),
        int(median(one.tokens_in for one in begun)),
        int(median(one.tokens_out for one in begun)),
        summarise_runs([one.ttft for one in begun]),
        summarise_runs(tpots) if tpots else None,
        _throughput(every, start, end) if end > start else sum(one.tokens_out for one in begun) / _seconds(begun),
        summarise_runs(gaps) if len(gaps) >= MIN_CLEAN_GAPS else None,
    )


def _throughput(answers: Sequence[StreamedAnswer], start: float, end: float) -> float:
    """Return output tokens per second that arrived in a span of time."""
    tokens = sum(one.tokens_out / len(one.arrivals) * sum(start < moment <= end for moment in one.arrivals) for one in answers)
    return tokens / (end - start)


def _seconds(answers: Sequence[StreamedAnswer]) -> float:
    return max(one.arrivals[-1] for one in answers) - min(one.sent for one in answers)


def _clean_gaps(answers: Sequence[StreamedAnswer], start: float, end: float) -> list[float]:
    """Return seconds per token between pieces of an answer, of gaps in which no request waited for its first token."""
    begins, ends = _union((one.sent, one.arrivals[0]) for one in answers)

    def is_clean(before: float, after: float) -> bool:
        place = bisect_right(ends, before)  # The first prefill that ends after the gap begins.
        return start <= before and after <= end and (place == len(begins) or begins[place] >= after)

    return [
        (after - before) * one.pieces_per_token
        for one in answers
        for before, after in pairwise(one.arrivals)
        if is_clean(before, after)
    ]


def _union(spans: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return begins and ends of the disjoint spans of time that cover the same moments, in order.

    >>> _union([(4, 6), (0, 2), (1, 3)])
    ([0, 4], [3, 6])
    """
    begins: list[float] = []
    ends: list[float] = []
    for begin, end in sorted(spans):
        if ends and begin <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            begins.append(begin)
            ends.append(end)
    return begins, ends
