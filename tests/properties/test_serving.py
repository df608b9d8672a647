"""Whatever the load and the limits: nothing is lost, time goes forward, more load never helps anyone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.serving_cases import DEFAULT_LIMITS, linear, real
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.simulator import RoutingPolicy
from whichgpu.estimate.serving.summary import summarise

LIMITS = st.fixed_dictionaries(
    {
        "max_batched_tokens": st.integers(20, 400),
        "max_sequences": st.integers(1, 12),
        "block_tokens": st.sampled_from([1, 4, 16, 64]),
        "chunked_prefill": st.booleans(),
        "mixed_steps": st.booleans(),
        "reserve_answers": st.booleans(),
        "prefix_caching": st.booleans(),
    }
)
REQUESTS = st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 300), st.integers(1, 60)), min_size=1, max_size=40)


@settings(max_examples=examples(60))
@given(
    limits=LIMITS, blocks=st.integers(2, 40), requests=REQUESTS, copies=st.integers(1, 3), stages=st.integers(1, 2),
    routing=st.sampled_from(["least", "round-robin", "random"]), clients=st.none() | st.integers(1, 8),
)  # fmt: skip
def test_requests_and_tokens_are_conserved(
    limits: dict[str, Any], blocks: int, requests: list[tuple[float, int, int]], copies: int, stages: int, routing: RoutingPolicy,
    clients: int | None,
) -> None:  # fmt: skip
    size = limits["block_tokens"]
    cache = blocks * 64
    server = linear(
        replace(DEFAULT_LIMITS, **limits, cache_tokens=cache), copies, stages, token=1e-6, sequence=1e-5, context=1e-9
    )
    load = [(time, prompt, output, tuple(range(prompt // 32))) for time, prompt, output in sorted(requests)]
    outcome = server.run(load, clients, hash_tokens=32, routing=routing)
    fits = np.array([-(-(prompt + output) // size) * size <= cache for _, prompt, output, _ in load])
    assert (outcome.answered == fits).all()
    assert outcome.refused == (~fits).sum()
    done = outcome.answered
    # every prompt token is computed or cached once, and again after a preemption
    prefilled = outcome.read + outcome.cached - outcome.recomputed
    expected = int(outcome.prompts[done].sum())
    assert prefilled >= expected
    assert prefilled == expected or outcome.preempted > 0
    # every token of an answer but the first is a step of its sequence, save those made when it was read again
    steps = int((np.arange(len(outcome.batch_steps)) * outcome.batch_steps).sum())
    assert steps + outcome.preempted >= int((outcome.outputs[done] - 1).sum()) >= steps
    assert (outcome.first[done] > outcome.arrived[done]).all()
    assert (outcome.finished[done] >= outcome.first[done]).all()
    assert outcome.peak_cache <= 1.0 + 1e-12
    assert outcome.busy <= 1.0 + 1e-9


@settings(max_examples=examples(40))
@given(limits=LIMITS, requests=REQUESTS)
def test_batched_steps_equal_single_steps(limits: dict[str, Any], requests: list[tuple[float, int, int]]) -> None:
    """A request that arrives at any moment and is never admitted must not change anything for the others."""
    server = linear(replace(DEFAULT_LIMITS, **limits), token=1e-6, sequence=1e-5, context=1e-9)
    load = [(time, prompt, output, ()) for time, prompt, output in sorted(requests)]
    plain = server.run(load)
    watched = sorted(
        [*load, *((0.0013 * step, DEFAULT_LIMITS.cache_tokens + 1, 1, ()) for step in range(300))], key=lambda one: one[0]
    )
    outcome = server.run(watched)
    answered = outcome.answered
    assert outcome.finished[answered] == pytest.approx(plain.finished)


SERVERS: list[Any] = [("h100-sxm", {}), ("l40s", {"engine": "sglang"}), ("a100-sxm-80gb", {"year": 2023})]
RATES, SEEDS, REQUESTS_EACH = (0.5, 1, 2, 4, 8, 16, 32), 5, 4000
# The p99 of TPOT from one run of 2,500 requests has a standard deviation of 1.5%, and at four times a server's capacity the first
# requests, before it is full, count as well: so several longer runs, whose spread is the noise.
# Number of standard errors by which a percentile may fall; smallest and largest standard error for a comparison.
ERRORS, MIN_ERROR, MAX_ERROR = 3.0, 0.003, 0.03


@pytest.mark.parametrize(("gpu", "fields"), [SERVERS[0], *(pytest.param(*one, marks=pytest.mark.long) for one in SERVERS[1:])])
def test_more_load_never_lowers_a_latency_percentile(gpu: str, fields: dict[str, Any]) -> None:
    """Up to the noise of the simulation, taken from several seeds; each seed has the same arrivals at all rates, only closer."""
    server, _ = real("llama-3.1-8b", gpu, seq_in=600, seq_out=120, **fields)
    latencies = np.array([[_percentiles(server, float(rate), seed) for seed in range(SEEDS)] for rate in RATES])
    risen = np.log(latencies[1:] / latencies[:-1])  # [rates, seeds, percentiles]
    mean, error = risen.mean(axis=1), risen.std(axis=1, ddof=1) / SEEDS**0.5
    assert error[np.abs(mean) < 0.1].max() < MAX_ERROR  # for large changes the noise does not matter
    assert (mean >= -ERRORS * np.maximum(error, MIN_ERROR)).all(), (mean.min(axis=1), error.max(axis=1))


def _percentiles(server: Server, rate: float, seed: int) -> list[float]:
    load = Load(rate, Lengths(600, 0.6), Lengths(120, 0.6), REQUESTS_EACH, seed=seed)
    summary = summarise(server.run(load.arrivals()), load)
    return [*summary.ttft.at, *summary.tpot.at, *summary.latency.at]


@settings(max_examples=examples(30))
@given(factor=st.floats(1.05, 3.0), rate=st.floats(1, 200))
def test_slower_steps_never_help(factor: float, rate: float) -> None:
    server = linear(sequence=1e-4, token=1e-6)
    load = Load(rate, Lengths(60, 0.5), Lengths(30, 0.5), 300)
    fast, slow = (summarise(one.run(load.arrivals()), load) for one in (server, server.scaled(factor)))
    assert slow.latency.mean > fast.latency.mean
    assert slow.tpot.mean > fast.tpot.mean
