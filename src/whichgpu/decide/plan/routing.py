"""A plan's shares of buckets as a router keeps them: by prompt and answer, or by prompts alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from whichgpu.decide.plan.solver.problem import Floats
from whichgpu.decide.plan.traffic import Bucket
from whichgpu.estimate.serving.fleet.pools import FleetRouting

ALIKE = 0.02  # of a bucket: shares that differ by less are the same


def by_buckets(buckets: Sequence[Bucket], shares: Floats) -> FleetRouting:
    """As planned; `shares` are [groups, buckets]. Lengths between buckets go with the one whose means are nearest."""
    prompts, outputs = (_edges([getattr(one, name) for one in buckets]) for name in ("prompt_from", "output_from"))
    rows = []
    for prompt in _middles(buckets, "prompt", prompts):
        for output in _middles(buckets, "output", outputs):
            nearest = min(range(len(buckets)), key=lambda b: _away(buckets[b], prompt, output))
            rows.append(tuple(shares[:, nearest].tolist()))
    return FleetRouting("shares", prompts, outputs, tuple(rows))


def by_prompts(buckets: Sequence[Bucket], demand: Floats, shares: Floats) -> FleetRouting:
    """The same by prompts alone: a prompt's share is that of all answers to prompts like it."""
    edges = _edges([one.prompt_from for one in buckets])
    at = np.searchsorted(np.array(edges), [one.prompt for one in buckets], side="right")
    rows = []
    for place, prompt in enumerate(_middles(buckets, "prompt", edges)):
        mine = at == place
        if not demand[mine].any():
            mine = np.arange(len(buckets)) == min(range(len(buckets)), key=lambda b: abs(np.log(buckets[b].prompt / prompt)))
        told = shares[:, mine] @ np.maximum(demand[mine], 1e-12)
        rows.append(tuple((told / told.sum()).tolist()))
    return FleetRouting("lengths", edges, (), tuple(rows))


def by_answers(buckets: Sequence[Bucket], shares: Floats) -> bool:
    """Whether prompts of one size go different ways by the length of their answers."""
    sizes: dict[int, list[int]] = {}
    for place, one in enumerate(buckets):
        sizes.setdefault(one.prompt_from, []).append(place)
    return any(float(np.ptp(shares[:, mine], axis=1).max()) > ALIKE for mine in sizes.values())


def _edges(starts: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(set(starts))[1:])


def _middles(buckets: Sequence[Bucket], name: str, edges: tuple[int, ...]) -> list[float]:
    """A length that stands for each class: the geometric mean of its ends."""
    low = min(getattr(one, f"{name}_from") for one in buckets)
    high = max(getattr(one, f"{name}_to") for one in buckets)
    ends = [max(1, low), *edges, max(high, *edges, 1) + 1]
    return [float(np.sqrt(start * max(start, end - 1))) for start, end in pairwise(ends)]


def _away(bucket: Bucket, prompt: float, output: float) -> float:
    """How far a bucket's lengths are, in their logarithms."""
    return float(abs(np.log(bucket.prompt / prompt)) + abs(np.log(bucket.output / output)))
