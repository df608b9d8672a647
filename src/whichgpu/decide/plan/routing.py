"""Router rules from a plan's bucket shares: by input and output tokens, or by input tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from whichgpu.decide.plan.solver.problem import Floats
from whichgpu.decide.plan.traffic import Bucket
from whichgpu.estimate.serving.fleet.pools import FleetRouting

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
