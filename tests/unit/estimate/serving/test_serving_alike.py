"""The loop for requests of one length does exactly what the simulator does."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving_cases import PLAIN, linear
from whichgpu.estimate.serving.equal_requests import simulate_equal_requests
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits

limits = st.builds(
    lambda tokens, sequences, blocks, flags: replace(
        PLAIN, max_batched_tokens=tokens, max_sequences=sequences, cache_tokens=16 * blocks,
        chunked_prefill=flags[0], mixed_steps=flags[1], reserve_answers=flags[2],
    ),
    st.sampled_from([32, 64, 512]), st.integers(1, 16), st.sampled_from([12, 30, 80, 5000]), st.tuples(*[st.booleans()] * 3),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(limits, st.integers(1, 150), st.integers(1, 120), st.floats(0.2, 60.0), st.sampled_from([0.0, 1.0, 8.0]))
def test_the_same_to_the_last_bit(allowed: SchedulerLimits, prompt: int, output: int, rate: float, burstiness: float) -> None:
    server = linear(allowed, fixed=2e-3, token=1e-5, sequence=1e-4, context=1e-7)
    load = Load(rate, Lengths(prompt), Lengths(output), 120, burstiness)
    times = [time for time, *_ in load.arrivals()]
    told = simulate_equal_requests(times, prompt, output, server.steps, server.batch_limits)
    whole = server.run(load.arrivals())
    if told is None:
        assert whole.preempted or whole.refused or allowed.cache_tokens < 5000 * 16
        return
    for one in fields(whole):
        mine, theirs = getattr(told, one.name), getattr(whole, one.name)
        assert np.array_equal(mine, theirs), one.name


def test_room_enough_is_always_answered() -> None:
    server = linear(fixed=2e-3, token=1e-5)
    assert simulate_equal_requests([0.0, 0.1, 0.1, 5.0], 700, 40, server.steps, server.batch_limits) is not None
