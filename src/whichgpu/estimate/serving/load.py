"""Load on a server: arrival times and lengths of requests, drawn from a seed or read from a trace."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.serving.simulator import Arrival

if TYPE_CHECKING:  # The reader of trace files is slow to import.
    from whichgpu.workload.traces.reader import Trace

Array = np.ndarray
MAX_LENGTH = 10_000_000  # tokens: lengths drawn from a heavy tail are cut here


class Lengths(msgspec.Struct, frozen=True):
    """Distribution of tokens per request: all equal to `mean`; lognormal (`spread`: deviation of the log); or a histogram."""

    mean: float
    spread: float = 0.0
    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    @staticmethod
    def histogram(values: tuple[float, ...], weights: tuple[float, ...]) -> Lengths:
        """Return lengths with these values and weights; the weights need not add up to one.

        >>> Lengths.histogram((100, 300), (1, 3)).mean
        250.0
        """
        return Lengths(float(np.average(values, weights=weights)), 0.0, values, weights)

    def draw(self, random: np.random.Generator, count: int) -> Array:
        """Draw `count` lengths in tokens, whole numbers of at least 1."""
        if self.values:
            shares = np.asarray(self.weights, dtype=float)
            return _rounded(random.choice(np.asarray(self.values), count, p=shares / shares.sum()))
        if self.spread:
            return _rounded(random.lognormal(np.log(self.mean) - self.spread**2 / 2, self.spread, count))
        return _rounded(np.full(count, self.mean))

    def weighted(self, random: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Return lengths and their shares: all values of a histogram, else `count` drawn lengths of equal share."""
        if not self.values:
            lengths = self.draw(random, count if self.spread else 1)
            return lengths, np.full(len(lengths), 1.0 / len(lengths))
        shares = np.asarray(self.weights, dtype=float)
        positive = shares > 0
        return _rounded(np.asarray(self.values, dtype=float)[positive]), shares[positive] / shares.sum()


def with_lengths(trace: Trace, prompts: Lengths, outputs: Lengths, seed: int) -> Trace:
    """Return a trace with lengths drawn from distributions if it has only arrival times; else the trace itself."""
    if trace.has_lengths:
        return trace
    random = np.random.default_rng([seed, 1])
    inputs, outs = (array("q", one.draw(random, len(trace)).tolist()) for one in (prompts, outputs))
    return replace(trace, prompts=inputs, outputs=outs)


def _rounded(lengths: Array) -> Array:
    return np.clip(np.round(lengths), 1, MAX_LENGTH).astype(np.int64)


class Load(msgspec.Struct, frozen=True):
    """Requests per second, their burstiness and lengths. A trace replaces the lengths and, if it has times, the arrival times.

    `burstiness` is the squared coefficient of variation of the time between arrivals: 1 is Poisson, 0 equal intervals.
    """

    rate: float
    prompts: Lengths
    outputs: Lengths
    requests: int
    burstiness: float = 1.0
    seed: int = 0
    trace: Trace | None = None

    def at(self, rate: float, requests: int | None = None) -> Load:
        """Return the load at another rate in requests per second."""
        return replace(self, rate=rate, requests=requests or self.requests)

    @property
    def steady(self) -> bool:
        """Whether arrival times are drawn rather than read from a trace; summaries then leave out a warm-up."""
        return self.trace is None or self.trace.rate is None

    @property
    def hash_tokens(self) -> int:
        """Tokens per hashed block of a prompt; 0 without hashes."""
        return self.trace.hash_tokens if self.trace else 0

    def arrivals(self) -> Iterator[Arrival]:
        """Yield arrivals in order of time; a trace with too few requests is repeated."""
        trace = self.trace
        if trace is not None:
            times = iter(self.times().tolist()) if self.steady else _trace_times(trace, self.rate, self.requests)
            blocks = cycle(trace.hashes) if trace.hashes else cycle(((),))
            yield from zip(times, cycle(trace.prompts), cycle(trace.outputs), blocks, strict=False)
            return
        random = np.random.default_rng([self.seed, 1])
        prompts, outputs = self.prompts.draw(random, self.requests), self.outputs.draw(random, self.requests)
        for time, prompt, output in zip(self.times().tolist(), prompts.tolist(), outputs.tolist(), strict=True):
            yield time, prompt, output, ()

    def times(self) -> Array:
        """Return arrival times in seconds whose mean rate is exactly the load's; a seed gives the same pattern at every rate.

        Without this scaling the mean of a few hundred drawn gaps would be off by some 5%, which matters at a high load.
        """
        if self.burstiness == 0:
            return np.arange(self.requests) / self.rate
        return _unit_rate_times(self.seed, self.burstiness, self.requests) / self.rate


@lru_cache(maxsize=8)
def _unit_rate_times(seed: int, burstiness: float, requests: int) -> Array:
    """Return arrival times in seconds of `requests` requests at a mean rate of one per second."""
    gaps = np.random.default_rng([seed, 0]).gamma(1.0 / burstiness, size=requests)
    times = np.cumsum(gaps)
    return np.asarray(times * (requests / times[-1]))


def _trace_times(trace: Trace, rate: float, count: int) -> Iterator[float]:
    """Yield the arrival times of a trace in seconds, scaled to a rate and repeated if it is too short."""
    span, scale = trace.span, (trace.rate or rate) / rate
    return islice((scale * (time + round * span) for round in range(1 + count // len(trace)) for time in trace.times), count)


def mean_lengths(load: Load) -> tuple[float, float]:
    """Return the mean input tokens and the mean output tokens of a load."""
    if load.trace is None:
        return load.prompts.mean, load.outputs.mean
    return float(np.mean(load.trace.prompts)), float(np.mean(load.trace.outputs))


def longest_request(load: Load) -> int:
    """Return the tokens of the longest request; for drawn lengths, a length that hardly any request exceeds."""
    if load.trace is not None:
        return int(np.max(np.asarray(load.trace.prompts) + np.asarray(load.trace.outputs)))
    lengths = (load.prompts, load.outputs)
    return int(sum(max(one.values) if one.values else one.mean * np.exp(3.0 * one.spread) for one in lengths))
