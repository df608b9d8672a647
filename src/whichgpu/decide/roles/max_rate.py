"""The capacity of a fleet by simulation: the highest request rate at which its objectives hold and its queue does not grow."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_answer import share_within_objectives
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.summary import summarise
from whichgpu.workload.traces.reader import Trace

MIN_REQUESTS, MAX_REQUESTS = 600, 24_000  # Bounds of the inference requests simulated at one rate.
BEYOND = 20  # At least this many requests must lie beyond the percentile.
WARM_UP = 0.3  # This share of the requests, from the first, finds emptier batches and is not counted.
FACTOR = 1.6  # Factor from one guessed rate to the next.
MAX_GUESSES = 8  # Most guesses above or below the first (assumed).


class SearchEffort(msgspec.Struct, frozen=True):
    """Effort of the search for the highest rate: how long each simulation runs, and how often the rate is bisected."""

    latencies: float  # simulated time as a multiple of the mean latency of a request
    bisections: int


ROUGH, FINE = SearchEffort(5.0, 3), SearchEffort(6.0, 4)  # These find the highest rate to within 6% and 3%.


def at_even_rate(load: Load) -> Load:
    """Return the load at an even rate, with a trace's requests in random order, since a trace's rate and lengths vary over time.

    The order is kept if the trace has shared prefixes, since such requests follow one another.
    """
    trace = load.trace
    if trace is None:
        return load
    order = np.arange(len(trace)) if trace.hashes else np.random.default_rng([load.seed, 3]).permutation(len(trace))
    prompts, outputs = (array("q", np.asarray(row)[order].tolist()) for row in (trace.prompts, trace.outputs))
    mixed = Trace(trace.name, prompts=prompts, outputs=outputs, hashes=trace.hashes, hash_tokens=trace.hash_tokens)
    return replace(load, trace=mixed)


def objectives_hold(fleet: Fleet, load: Load, objectives: Objectives, rate: float, effort: SearchEffort = FINE) -> bool:
    """Return whether the objectives hold at a request rate, simulated for several times the latency of a request."""
    count = round(max(MIN_REQUESTS, BEYOND / max(1e-3, 1.0 - objectives.percentile / 100.0)))
    while True:
        part = load.at(rate, count)
        outcome = simulate_fleet(fleet, part.arrivals(), load.hash_tokens)
        if share_within_objectives(outcome, objectives, WARM_UP) < objectives.percentile / 100.0:
            return False
        served = outcome.served
        late = slice(int(WARM_UP * count), None)
        latency = float(np.mean((served.finished - served.arrived)[late][served.answered[late]]))
        needed = min(MAX_REQUESTS, round(effort.latencies * latency * rate))
        if needed <= 1.2 * count:
            return not summarise(served, part).growing
        count = needed


def max_rate(fleet: Fleet, load: Load, objectives: Objectives, guess: float, effort: SearchEffort = FINE) -> float:
    """Return the highest requests per second at which the objectives hold, searched around `guess`; 0 if only far below it."""
    load = at_even_rate(load)
    low = high = guess
    if objectives_hold(fleet, load, objectives, guess, effort):
        for _ in range(MAX_GUESSES):
            low, high = high, high * FACTOR
            if not objectives_hold(fleet, load, objectives, high, effort):
                break
    else:
        if not objectives_hold(fleet, load, objectives, guess / FACTOR**MAX_GUESSES, effort):
            return 0.0
        for _ in range(MAX_GUESSES):
            low, high = low / FACTOR, low
            if objectives_hold(fleet, load, objectives, low, effort):
                break
    for _ in range(effort.bisections):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if objectives_hold(fleet, load, objectives, middle, effort) else (low, middle)
    return low
