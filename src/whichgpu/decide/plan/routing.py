"""Requests of a simulated plan: when they arrive, how long they are, and which replicas they are routed to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.plan.solver.problem import Floats
from whichgpu.decide.plan.traffic import Bucket, DrawnLengths, members
from whichgpu.estimate.serving.fleet.pools import FleetRouting
from whichgpu.estimate.serving.scheduler import Hashes
from whichgpu.estimate.serving.simulator import Arrival

MAX_TRACE = 500_000  # Lengths are drawn from at most this many requests of a trace.
OTHER_HASHES = 1 << 40  # Added to the block hashes of a repeated trace, beyond those of any trace read so far.
SAME_SHARE = 0.02  # Two shares of a bucket of requests that differ by less count as equal.


def by_buckets(buckets: Sequence[Bucket], shares: Floats) -> FleetRouting:
    """Return routing by the plan's `shares` [groups of replicas, buckets]; lengths in no bucket use the nearest bucket's."""
    prompts, outputs = (_edges([getattr(one, name) for one in buckets]) for name in ("prompt_from", "output_from"))
    rows = []
    for prompt in _middles(buckets, "prompt", prompts):
        for output in _middles(buckets, "output", outputs):
            nearest = min(range(len(buckets)), key=lambda b: _distance(buckets[b], prompt, output))
            rows.append(tuple(shares[:, nearest].tolist()))
    return FleetRouting("shares", prompts, outputs, tuple(rows))


def by_prompts(buckets: Sequence[Bucket], demand: Floats, shares: Floats) -> FleetRouting:
    """Return routing by input tokens alone: the plan's `shares` averaged over the output lengths that follow such prompts."""
    edges = _edges([one.prompt_from for one in buckets])
    at = np.searchsorted(np.array(edges), [one.prompt for one in buckets], side="right")
    rows = []
    for place, prompt in enumerate(_middles(buckets, "prompt", edges)):
        mine = at == place
        if not demand[mine].any():
            mine = np.arange(len(buckets)) == min(range(len(buckets)), key=lambda b: abs(np.log(buckets[b].prompt / prompt)))
        rates = shares[:, mine] @ np.maximum(demand[mine], 1e-12)
        rows.append(tuple((rates / rates.sum()).tolist()))
    return FleetRouting("lengths", edges, (), tuple(rows))


def depends_on_outputs(buckets: Sequence[Bucket], shares: Floats) -> bool:
    """Return whether the plan routes prompts of one length differently by their output length."""
    sizes: dict[int, list[int]] = {}
    for place, one in enumerate(buckets):
        sizes.setdefault(one.prompt_from, []).append(place)
    return any(float(np.ptp(shares[:, mine], axis=1).max()) > SAME_SHARE for mine in sizes.values())


def _edges(starts: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(set(starts))[1:])


def _middles(buckets: Sequence[Bucket], name: str, edges: tuple[int, ...]) -> list[float]:
    """Return a typical length in tokens for each length class between `edges`: the geometric mean of its ends."""
    low = min(getattr(one, f"{name}_from") for one in buckets)
    high = max(getattr(one, f"{name}_to") for one in buckets)
    ends = [max(1, low), *edges, max(high, *edges, 1) + 1]
    return [float(np.sqrt(start * max(start, end - 1))) for start, end in pairwise(ends)]


def _distance(bucket: Bucket, prompt: float, output: float) -> float:
    """Return the distance between a bucket's mean lengths and a request's lengths, in logarithms."""
    return float(abs(np.log(bucket.prompt / prompt)) + abs(np.log(bucket.output / output)))


def draw_arrivals(served: ServedModel, mix: Floats, rate: float, count: int, seed: int) -> list[Arrival]:
    """Return Poisson arrivals for the simulator: seconds, input tokens, output tokens, and block hashes if the trace has them."""
    chance = np.random.default_rng([seed, 3])
    if served.traffic.hash_tokens:
        requests = _consecutive(served, mix, count, chance)
    else:
        at = chance.choice(len(mix), count, p=mix / mix.sum())
        prompts, outputs = _lengths(served, at, chance)
        requests = list(zip(prompts.tolist(), outputs.tolist(), [()] * count, strict=True))
    times = np.cumsum(chance.exponential(1.0 / rate, count))
    return [(time, *request) for time, request in zip(times.tolist(), requests, strict=True)]


def _consecutive(served: ServedModel, mix: Floats, count: int, chance: np.random.Generator) -> list[tuple[int, int, Hashes]]:
    """Return requests of a trace in its order from a random one on, thinned to this mix of buckets, with their block hashes.

    What requests share depends on their order. A trace that is too short is repeated with other hashes, which share nothing.
    """
    trace, shares = served.traffic.trace, np.array([one.share for one in served.traffic.buckets])
    assert trace is not None
    prompts, outputs = np.asarray(trace.prompts), np.asarray(trace.outputs)
    at = np.zeros(len(prompts), dtype=np.int64)
    for b, mine in enumerate(members(served.traffic.buckets, prompts, outputs)):
        at[mine] = b
    weights = mix / shares
    order = np.roll(np.arange(len(prompts)), -int(chance.integers(len(prompts))))
    order = order[chance.random(len(order)) < (weights / weights.max())[at[order]]]
    rounds = -(-count // max(1, len(order)))
    requests: list[tuple[int, int, Hashes]] = [
        (trace.prompts[place], trace.outputs[place], [one + turn * OTHER_HASHES for one in trace.hashes[place]])
        for turn in range(rounds)
        for place in order.tolist()
    ]
    return requests[:count]


def _lengths(served: ServedModel, at: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return input and output tokens of requests in these buckets, drawn from the trace or distribution they are made of."""
    buckets, source = served.traffic.buckets, _requests(served)
    prompts = np.array([max(1, round(bucket.prompt)) for bucket in buckets])[at]
    outputs = np.array([max(1, round(bucket.output)) for bucket in buckets])[at]
    if source is None:
        return prompts, outputs
    for b, mine in enumerate(members(buckets, source.prompts, source.outputs)):
        places = np.flatnonzero(at == b)
        if len(mine) and len(places):
            drawn = chance.choice(mine, len(places), p=source.weights[mine] / source.weights[mine].sum())
            prompts[places] = np.maximum(1, np.round(source.prompts[drawn]))
            outputs[places] = np.maximum(1, np.round(source.outputs[drawn]))
    return prompts, outputs


def _requests(served: ServedModel) -> DrawnLengths | None:
    """Return the requests that a model's buckets are made of, at most `MAX_TRACE` of a trace; None if they are not known."""
    trace = served.traffic.trace
    if trace is None:
        return served.traffic.drawn
    every = max(1, len(trace) // MAX_TRACE)
    prompts, outputs = np.asarray(trace.prompts)[::every], np.asarray(trace.outputs)[::every]
    return DrawnLengths(prompts, outputs, np.ones(len(prompts)))
