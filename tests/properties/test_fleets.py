"""For any fleet, load and machine lifetimes: every lost request is reported, and time moves forward."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.serving_cases import DEFAULT_LIMITS, linear
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.kv_transfer import Port
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, Interruptions, ReplicaPool

LIMITS = st.fixed_dictionaries(
    {
        "max_batched_tokens": st.integers(20, 400),
        "max_sequences": st.integers(1, 8),
        "block_tokens": st.sampled_from([1, 16, 64]),
        "cache_tokens": st.sampled_from([512, 1024, 4096]),
        "chunked_prefill": st.booleans(),
        "mixed_steps": st.booleans(),
        "reserve_answers": st.booleans(),
        "prefix_caching": st.booleans(),
    }
)
REQUESTS = st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 300), st.integers(1, 60)), min_size=1, max_size=40)
LIVES = st.builds(
    Interruptions,
    rate=st.sampled_from([0.0, 3600.0, 40_000.0]),
    notice=st.sampled_from([0.0, 0.01]),
    warm_up=st.sampled_from([0.0, 0.02]),
    outage=st.sampled_from([0.0, 0.05]),
    fallback=st.booleans(),
    retries=st.integers(0, 50),
)
PORTS = st.builds(Port, out=st.sampled_from([1e6, 1e9]), into=st.sampled_from([1e6, 1e9]), latency=st.sampled_from([0.0, 1e-3]),
                  token_bytes=st.just(1e3))  # fmt: skip


@st.composite
def fleets(draw: Any) -> Fleet:
    def pool(name: str, role: Any) -> ReplicaPool:
        server = linear(
            replace(DEFAULT_LIMITS, **draw(LIMITS)), 1, draw(st.integers(1, 2)), token=1e-6, sequence=1e-5, context=1e-9
        )
        copies = draw(st.integers(1, 3))
        spot = draw(st.integers(0, copies))
        return ReplicaPool(name, server, copies, role, 1, draw(st.sampled_from([0.5, 1.0, 3.0])), spot, draw(PORTS))

    shape = draw(st.sampled_from(["aggregated", "disaggregated", "both"]))
    pools = [pool("w", "both")] if shape != "disaggregated" else []
    pools += [pool("r", "prefill"), pool("d", "decode")] if shape != "aggregated" else []
    routing = FleetRouting()
    if draw(st.booleans()):
        row = tuple(1.0 for _ in pools)
        routing = FleetRouting("shares", (100,), (), (row, row))
    return Fleet(tuple(pools), routing, draw(LIVES), draw(st.integers(0, 9)))


@settings(max_examples=examples(60), deadline=None)
@given(fleet=fleets(), requests=REQUESTS)
def test_requests_and_tokens_are_conserved(fleet: Fleet, requests: list[tuple[float, int, int]]) -> None:
    load = [(time, prompt, output, tuple(range(prompt // 32))) for time, prompt, output in sorted(requests)]
    outcome = simulate_fleet(fleet, load, hash_tokens=32)
    served = outcome.served
    done = served.answered
    assert outcome.answered + outcome.lost + served.refused == len(load)
    if fleet.interruptions.rate == 0:
        assert outcome.lost == outcome.retried == outcome.interruptions == 0
    assert (served.first[done] >= served.arrived[done]).all()
    assert (served.finished[done] >= served.first[done]).all()
    # every answered prompt was prefilled or cached once, and again after each preemption
    assert served.read + served.cached >= int(served.prompts[done].sum())
    if not served.preempted and not outcome.retried and not outcome.lost:
        assert served.read + served.cached == int(served.prompts[done].sum())
        steps = int((np.arange(len(served.batch_steps)) * served.batch_steps).sum())
        assert steps == int((served.outputs[done] - 1).sum())
    assert served.peak_cache <= 1.0 + 1e-12
    for use in outcome.pools:
        assert 0 <= use.utilisation <= 1 + 1e-9
        assert use.busy_seconds >= 0
    again = simulate_fleet(fleet, load, hash_tokens=32)
    assert (again.served.finished == served.finished).all()


def test_transfer_interrupted_every_time_counts_as_lost() -> None:
    """The machine that writes is lost every 36 ms, a transfer takes 300: the request counts as lost."""
    slow = Port(out=1e6, into=1e6, latency=0.0, token_bytes=1e3)
    lives = Interruptions(rate=100_000.0, warm_up=0.0, outage=0.0, fallback=False, retries=3)
    pools = (ReplicaPool("r", linear(), 1, "prefill", port=slow), ReplicaPool("d", linear(), 1, "decode", spot=1, port=slow))
    for came in (0.0, 1e-300, 1e-4):
        outcome = simulate_fleet(Fleet(pools, FleetRouting(), lives), [(came, 300, 20, ())])
        assert (outcome.answered, outcome.lost) == (0, 1)
        assert 0 < outcome.pools[0].utilisation <= 1  # paid for until the request was given up, not until it came
