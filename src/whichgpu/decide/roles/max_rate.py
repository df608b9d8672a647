"""The requests a second a fleet bears: the most at which its objectives hold and its queue does not grow, by simulation."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_answer import share_within_objectives
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.summary import summarise
from whichgpu.workload.traces.reader import Trace

LEAST, MOST = 600, 24_000  # requests simulated at a rate
BEYOND = 20  # of them that lie beyond the percentile asked
EMPTY = 0.3  # of them that come first and find less to wait for than those after them
FACTOR = 1.6  # from one guess to the next
GUESSES = 8


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How many times as long as a request stays is simulated at a rate, and halvings that narrow the last factor."""

    stays: float
    halvings: int


ROUGH, FINE = SearchEffort(5.0, 3), SearchEffort(6.0, 4)  # to 6% and 3%


def at_even_rate(load: Load) -> Load:
    """The same requests coming at random at an even rate: a trace's beginning has a rate of its own, and its lengths change.

    Its order is kept where prompts that begin alike follow one another.
    """
    trace = load.trace
    if trace is None:
        return load
    order = np.arange(len(trace)) if trace.hashes else np.random.default_rng([load.seed, 3]).permutation(len(trace))
    prompts, outputs = (array("q", np.asarray(row)[order].tolist()) for row in (trace.prompts, trace.outputs))
    mixed = Trace(trace.name, prompts=prompts, outputs=outputs, hashes=trace.hashes, hash_tokens=trace.hash_tokens)
    return replace(load, trace=mixed)


def objectives_hold(fleet: Fleet, load: Load, goals: Objectives, rate: float, care: SearchEffort = FINE) -> bool:
    """Whether the objectives hold at a rate, once batches have filled: requests come for several times as long as one stays."""
    count = round(max(LEAST, BEYOND / max(1e-3, 1.0 - goals.percentile / 100.0)))
    while True:
        part = load.at(rate, count)
        outcome = simulate_fleet(fleet, part.arrivals(), load.hash_tokens)
        if share_within_objectives(outcome, goals, EMPTY) < goals.percentile / 100.0:
            return False
        served = outcome.served
        late = slice(int(EMPTY * count), None)
        stay = float(np.mean((served.finished - served.arrived)[late][served.answered[late]]))
        wanted = min(MOST, round(care.stays * stay * rate))
        if wanted <= 1.2 * count:
            return not summarise(served, part).growing
        count = wanted


def max_rate(fleet: Fleet, load: Load, goals: Objectives, guess: float, care: SearchEffort = FINE) -> float:
    """The most of a steady load; 0 where the objectives do not hold at a small part of the guess."""
    load = at_even_rate(load)
    low = high = guess
    if objectives_hold(fleet, load, goals, guess, care):
        for _ in range(GUESSES):
            low, high = high, high * FACTOR
            if not objectives_hold(fleet, load, goals, high, care):
                break
    else:
        if not objectives_hold(fleet, load, goals, guess / FACTOR**GUESSES, care):
            return 0.0
        for _ in range(GUESSES):
            low, high = low / FACTOR, low
            if objectives_hold(fleet, load, goals, low, care):
                break
    for _ in range(care.halvings):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if objectives_hold(fleet, load, goals, middle, care) else (low, middle)
    return low
