"""Capacities of prefill and decode workers follow their queue, their steps and the network."""

from __future__ import annotations

import numpy as np
import pytest

from tests.serving_cases import DEFAULT_LIMITS
from whichgpu.decide.roles.worker_rates import Requests, decode_rates, prefill_rates
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.kv_transfer import Port

PORT = Port(float("inf"), float("inf"), 0.0, 1e5)
REQUESTS = Requests(np.array([1000.0]), np.array([101.0]), np.array([1101.0]))
TRIED = np.array([1.0, 4.0, 16.0])


def prefill(ttft: float | None, port: Port = PORT) -> float:
    return float(prefill_rates(DEFAULT_LIMITS, port, np.array([0.1]), REQUESTS, Objectives(ttft, None, 90)).rates[0])


def decode(tpot: float | None, port: Port = PORT) -> float:
    steps = np.array([[0.010], [0.012], [0.020]])
    return float(decode_rates(DEFAULT_LIMITS, port, steps, TRIED, REQUESTS, Objectives(None, tpot, 90)).rates[0])


def test_a_prefill_worker_keeps_its_queue_within_the_ttft() -> None:
    assert prefill(None) == pytest.approx(9.0)
    assert 0 < prefill(0.12) < prefill(0.3) < prefill(None)
    assert prefill(0.05) == 0.0


def test_a_decode_worker_runs_the_largest_batch_within_the_tpot() -> None:
    assert decode(None) == pytest.approx(16 / 2.0)
    assert decode(0.015) == pytest.approx(4 / 1.2)
    assert decode(0.005) == 0.0


def test_a_slow_network_limits_both_and_counts_as_time_between_tokens() -> None:
    slow = Port(2e8, 2e8, 0.0, 1e5)  # two KV caches of 1000 tokens per second
    assert prefill(None, slow) == pytest.approx(1.8)
    assert decode(None, slow) == pytest.approx(1.8)
    assert decode(0.013, slow) == 0.0
