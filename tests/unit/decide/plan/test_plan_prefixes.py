"""Plans for traces whose prompts share their beginning: cached tokens in the capacity, the trace's order in the simulation."""

from __future__ import annotations

from array import array
from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from whichgpu.decide.plan.routing import draw_arrivals
from whichgpu.decide.plan.traffic import CACHE_SIZES, Traffic, trace_traffic
from whichgpu.workload.traces.reader import Trace

COUNT, BLOCK = 400, 512


def _traffic(shared: bool) -> Traffic:
    """Return the traffic of requests of three blocks, in conversations of four turns if they share something."""
    own = [[3 * n, 3 * n + 1, 3 * n + 2] for n in range(COUNT)]
    turns = [own[n - n % 4] if shared else own[n] for n in range(COUNT)]
    times, lengths = array("d", range(COUNT)), array("q", [3 * BLOCK] * COUNT)
    outputs = array("q", [100] * COUNT)
    return trace_traffic(Trace("t", times, lengths, outputs, [array("q", one) for one in turns], BLOCK), None)


def test_buckets_have_the_tokens_found_in_caches_of_each_size() -> None:
    (bucket,) = _traffic(shared=True).buckets
    assert len(bucket.cached) == len(CACHE_SIZES)
    assert all(abs(tokens - 0.75 * (3 * BLOCK - 1)) < 1 for tokens in bucket.cached)  # The last token is always computed.
    assert _traffic(shared=False).buckets[0].cached == (0.0,) * len(CACHE_SIZES)


def test_simulated_requests_keep_the_order_of_the_trace_and_a_repeated_trace_shares_nothing_with_itself() -> None:
    traffic = _traffic(shared=True)
    arrivals = draw_arrivals(SimpleNamespace(traffic=traffic), np.ones(1), 1.0, 2 * COUNT, 0)  # type: ignore[arg-type]
    assert [one[0] for one in arrivals] == sorted(one[0] for one in arrivals)
    hashes = [tuple(one[3]) for one in arrivals]
    assert set(hashes[:COUNT]).isdisjoint(hashes[COUNT:])
    following = sum(one == other for one, other in pairwise(hashes[:COUNT]))
    assert following >= COUNT * 3 // 4 - 2
