"""The load on a server: when requests come and how long they are, drawn from a seed or taken from a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle, islice

import numpy as np

from whichgpu.estimate.serving.simulator import Arrival
from whichgpu.workload.traces.reader import Trace

Array = np.ndarray
LONGEST = 10_000_000  # tokens: a heavy tail is cut there


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or answers: `mean` each; lognormal with it and a `spread` (of the logarithm); or a histogram."""

    mean: float
    spread: float = 0.0
    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    @staticmethod
    def histogram(values: tuple[float, ...], weights: tuple[float, ...]) -> Lengths:
        """Lengths with how often each comes; weights need not add up to one.

        >>> Lengths.histogram((100, 300), (1, 3)).mean
        250.0
        """
        return Lengths(float(np.average(values, weights=weights)), 0.0, values, weights)

    def draw(self, chance: np.random.Generator, count: int) -> Array:
        """So many of them, whole and at least 1."""
        if self.values:
            shares = np.asarray(self.weights, dtype=float)
            found = chance.choice(np.asarray(self.values), count, p=shares / shares.sum())
        elif self.spread:
            found = chance.lognormal(np.log(self.mean) - self.spread**2 / 2, self.spread, count)
        else:
            found = np.full(count, self.mean)
        return _whole(found)

    def weighted(self, chance: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Lengths with their shares: all values of a histogram, else so many drawn ones of equal share."""
        if not self.values:
            drawn = self.draw(chance, count if self.spread else 1)
            return drawn, np.full(len(drawn), 1.0 / len(drawn))
        shares = np.asarray(self.weights, dtype=float)
        some = shares > 0
        return _whole(np.asarray(self.values, dtype=float)[some]), shares[some] / shares.sum()


def _whole(lengths: Array) -> Array:
    return np.clip(np.round(lengths), 1, LONGEST).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests a second, how unevenly they come, and their lengths. A trace brings its own lengths and, told the rate, its times.

    `burstiness` is the squared coefficient of variation of the time between arrivals: 1 is Poisson, 0 a steady beat.
    """

    rate: float
    prompts: Lengths
    outputs: Lengths
    requests: int
    burstiness: float = 1.0
    seed: int = 0
    trace: Trace | None = None

    def at(self, rate: float, requests: int | None = None) -> Load:
        """The same at another rate."""
        return replace(self, rate=rate, requests=requests or self.requests)

    @property
    def steady(self) -> bool:
        """Whether it is drawn, so that its beginning is no part of what is asked for."""
        return self.trace is None or self.trace.rate is None

    @property
    def hash_tokens(self) -> int:
        """Length of the blocks prompts are known by; 0 where they are not."""
        return self.trace.hash_tokens if self.trace else 0

    def arrivals(self) -> Iterator[Arrival]:
        """In order of time; a trace comes again from its beginning where more requests are asked for than it has."""
        trace = self.trace
        if trace is not None:
            times = iter(self.times().tolist()) if self.steady else _times(trace, self.rate, self.requests)
            blocks = cycle(trace.hashes) if trace.hashes else cycle(((),))
            lengths = zip(cycle(trace.prompts), cycle(trace.outputs), blocks, strict=False)
            for time, (prompt, output, hashes) in zip(times, lengths, strict=False):
                yield time, prompt, output, hashes
            return
        chance = np.random.default_rng([self.seed, 1])
        prompts, outputs = self.prompts.draw(chance, self.requests), self.outputs.draw(chance, self.requests)
        for time, prompt, output in zip(self.times().tolist(), prompts.tolist(), outputs.tolist(), strict=True):
            yield time, prompt, output, ()

    def times(self) -> Array:
        """Arrivals at the rate, over all of them exactly; the same seed gives the same pattern at every rate, faster or slower.

        A few hundred drawn gaps are some 5% longer or shorter than those they are drawn from, which at a high load is much.
        """
        if self.burstiness == 0:
            return np.arange(self.requests) / self.rate
        return _drawn(self.seed, self.burstiness, self.requests) / self.rate


@lru_cache(maxsize=8)
def _drawn(seed: int, burstiness: float, requests: int) -> Array:
    """Times of so many requests that come one a second."""
    gaps = np.random.default_rng([seed, 0]).gamma(1.0 / burstiness, size=requests)
    times = np.cumsum(gaps)
    return np.asarray(times * (requests / times[-1]))


def _times(trace: Trace, rate: float, count: int) -> Iterator[float]:
    """A trace's times, drawn out or pressed together to a rate, over and over."""
    span, scale = trace.span, (trace.rate or rate) / rate
    return islice((scale * (time + round * span) for round in range(1 + count // len(trace)) for time in trace.times), count)


def mean_lengths(load: Load) -> tuple[float, float]:
    """Mean tokens of prompts and answers."""
    if load.trace is None:
        return load.prompts.mean, load.outputs.mean
    return float(np.mean(load.trace.prompts)), float(np.mean(load.trace.outputs))


def longest_request(load: Load) -> int:
    """Tokens of the longest request, or one that hardly any exceeds."""
    if load.trace is not None:
        return int(np.max(np.asarray(load.trace.prompts) + np.asarray(load.trace.outputs)))
    return int(
        sum(max(one.values) if one.values else one.mean * np.exp(3.0 * one.spread) for one in (load.prompts, load.outputs))
    )
