"""The capacity of a fleet by simulation: the highest request rate at which its objectives hold and its queue does not grow."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_answer import within_objectives
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.estimate.serving.summary import summarise
from whichgpu.workload.traces.reader import Trace

MIN_REQUESTS, MAX_REQUESTS = 600, 40_000  # Bounds of the inference requests simulated at one rate.
BEYOND = 20  # At least this many requests must lie beyond the percentile.
WARM_UP = 0.3  # This share of the requests, from the first, finds emptier batches and is not counted.
FACTOR = 1.6  # Factor from one guessed rate to the next.
MAX_GUESSES = 8  # Most guesses above or below the first (assumed).


class SearchEffort(msgspec.Struct, frozen=True):
    """Effort of the search for the highest rate: how long each simulation runs, and how often the rate is bisected."""

    latencies: float  # simulated time as a multiple of the mean latency of a request
    bisections: int


# These find the highest rate to within 6% and 3%. Near saturation batches and queues fill slowly: in simulations of 6 latencies
# requests were not yet late at rates 3 to 6% above those at which they are in simulations of 20 to 60 latencies.
ROUGH, FINE = SearchEffort(10.0, 3), SearchEffort(20.0, 4)


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
        served = simulate_fleet(fleet, part.arrivals(), load.hash_tokens).served
        counted = counted_requests(served)
        if within_objectives(served, objectives)[counted].mean() < objectives.percentile / 100.0:
            return False
        needed = min(MAX_REQUESTS, round(effort.latencies * _mean_latency(served, counted) * rate))
        if needed <= 1.2 * count:
            return not summarise(served, part).growing
        count = needed


def _mean_latency(served: SimulationOutcome, counted: slice) -> float:
    """Return the mean seconds from arrival to last token of answered requests."""
    latencies = (served.finished - served.arrived)[counted][served.answered[counted]]
    return float(latencies.mean()) if len(latencies) else 0.0


def counted_requests(served: SimulationOutcome) -> slice:
    """Return the requests that count: those after the warm-up whose batches are not yet emptied after the last arrival."""
    first = int(WARM_UP * len(served.arrived))
    latency = _mean_latency(served, slice(first, None))
    last = int(np.searchsorted(served.arrived, served.arrived[-1] - latency))
    return slice(first, max(last, (first + len(served.arrived)) // 2))


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
