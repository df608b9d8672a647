"""The simulator against what can be counted by hand, the step model, and exact queues."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import DEFAULT_LIMITS, linear, real, small
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.load_screen import erlang_c, mean_wait
from whichgpu.estimate.serving.simulator import Arrival, SimulationOutcome

STEP = 1e-3


def requests(*lengths: tuple[float, int, int]) -> list[Arrival]:
    return [(time, prompt, output, ()) for time, prompt, output in lengths]


def spans(outcome: SimulationOutcome) -> list[tuple[float, float]]:
    return [
        (round(float(first) / STEP, 6), round(float(last) / STEP, 6))
        for first, last in zip(outcome.first, outcome.finished, strict=True)
    ]


def test_one_request_takes_a_step_to_read_and_a_step_a_token_after() -> None:
    assert spans(linear().run(requests((0, 100, 10)))) == [(1, 10)]


def test_a_long_prompt_is_read_in_chunks() -> None:
    outcome = linear().run(requests((0, 1100, 2)))
    assert spans(outcome) == [(3, 4)]
    assert outcome.read == 1100


def test_request_arriving_during_a_step_starts_with_the_next() -> None:
    outcome = linear().run(requests((0, 100, 10), (4.2 * STEP, 100, 3)))
    assert spans(outcome) == [(1, 10), (6, 8)]


def test_decode_continues_with_chunked_prefill_and_waits_without() -> None:
    load = requests((0, 100, 10), (4.5 * STEP, 1400, 2))
    assert spans(linear().run(load)) == [(1, 10), (8, 9)]
    apart = linear(replace(DEFAULT_LIMITS, mixed_steps=False))
    assert spans(apart.run(load)) == [(1, 13), (8, 9)]


def test_without_chunks_a_prompt_waits_for_a_step_with_room() -> None:
    limits = replace(DEFAULT_LIMITS, chunked_prefill=False)
    load = requests((0, 1, 50), (0.5 * STEP, 300, 2), (0.5 * STEP, 300, 2))
    assert spans(linear(limits).run(load))[1:] == [(2, 3), (3, 4)]
    assert spans(linear().run(load))[1:] == [(2, 3), (3, 4)]
    first = requests((0, 1, 50), (0.5 * STEP, 300, 9), (0.5 * STEP, 400, 9), (0.5 * STEP, 100, 9))
    assert [start for start, _ in spans(linear(limits).run(first))] == [1, 2, 3, 3]
    assert [start for start, _ in spans(linear().run(first))] == [1, 2, 3, 3]


def test_no_more_sequences_at_once_than_allowed() -> None:
    limits = replace(DEFAULT_LIMITS, max_sequences=2)
    assert spans(linear(limits).run(requests((0, 1, 5), (0, 1, 5), (0, 1, 5)))) == [(1, 5), (2, 6), (6, 10)]


def test_a_full_cache_throws_out_the_last_and_reads_it_again() -> None:
    """Four blocks of 16: both begin with two, the first needs a third at its 33rd token, when the second has written 12."""
    outcome = linear(small(64)).run(requests((0, 20, 30), (0, 20, 30)))
    assert (outcome.preempted, outcome.recomputed) == (1, 31)
    assert outcome.read == 20 + 20 + 32
    assert outcome.peak_cache == 1.0
    assert spans(outcome) == [(1, 30), (2, 48)]  # the other 18 tokens after the first has finished


def test_an_engine_that_reserves_answers_makes_the_second_wait() -> None:
    limits = small(64, reserve_answers=True)
    outcome = linear(limits).run(requests((0, 20, 30), (0, 20, 30)))
    assert outcome.preempted == 0
    assert spans(outcome) == [(1, 30), (31, 60)]


def test_longer_than_the_cache_is_refused_and_the_rest_go_on() -> None:
    outcome = linear(small(64)).run(requests((0, 100, 2), (0, 10, 2)))
    assert outcome.refused == 1
    assert outcome.finished[0] < 0 < outcome.finished[1]


def test_blocks_round_up() -> None:
    """Four blocks of 16 hold three sequences of 17 tokens never, two always; of 16 tokens, four."""
    for prompt, fits in ((16, 4), (17, 2)):
        outcome = linear(small(64)).run([(0.0, prompt, 1, ()) for _ in range(4)])
        starts = np.unique(outcome.first).size
        assert starts == (2 if fits == 4 else 3)  # the first comes alone


def test_shared_prefixes_are_prefilled_once() -> None:
    limits = replace(DEFAULT_LIMITS, prefix_caching=True)
    load: list[Arrival] = [(0.0, 512, 2, (1, 2)), (1.0, 600, 2, (1, 2, 3)), (2.0, 600, 2, (4, 2, 3))]
    outcome = linear(limits, token=1e-5).run(load, hash_tokens=256)
    assert outcome.cached == 512
    assert outcome.read == 512 + 88 + 600
    waits = outcome.first - outcome.arrived
    assert waits[1] < waits[0] < waits[2]
    assert linear(DEFAULT_LIMITS).run(load, hash_tokens=256).cached == 0


def test_closed_loop_clients_send_again_after_a_reply() -> None:
    outcome = linear().run([(0.0, 10, 10, ()) for _ in range(6)], concurrency=2)
    assert np.diff(np.sort(outcome.arrived)).max() > 0
    running = [((outcome.arrived <= time) & (outcome.finished > time)).sum() for time in outcome.arrived]
    assert max(running) == 2


def test_replicas_share_the_load() -> None:
    load = requests(*((0.0, 10, 100) for _ in range(8)))
    one, four = linear(replace(DEFAULT_LIMITS, max_sequences=2)), linear(replace(DEFAULT_LIMITS, max_sequences=2), replicas=4)
    assert four.run(load).finished.max() == pytest.approx(one.run(load).finished.max() / 4, rel=0.02)
    even = four.run(load, routing="round-robin")
    assert even.finished.max() == pytest.approx(four.run(load).finished.max())


def test_stages_of_a_pipeline_work_on_batches_of_their_own() -> None:
    server, steps = real("llama-3.1-70b", "a100-sxm-80gb", gpus=4, parallel={"pp": 4}, seq_in=512, seq_out=64)
    alone = server.run(requests((0.0, 512, 64)))
    assert float(alone.first[0]) == pytest.approx(float(steps.prefill(1, 512)) + server.limits.request_latency, rel=0.01)
    four = server.run(requests(*((0.0, 512, 64) for _ in range(4))))
    assert four.finished.max() < 1.3 * alone.finished.max()


def test_a_long_batch_in_a_pipeline_holds_up_those_behind_it() -> None:
    """Two stages: while a prompt of 400 steps' length passes, the other batch gets a token once it is through, not every step."""
    limits = replace(DEFAULT_LIMITS, max_batched_tokens=400, max_sequences=4)
    server = linear(limits, stages=2, fixed=STEP, token=STEP)
    alone = server.run(requests((0.0, 1, 100)))
    both = server.run(requests((0.0, 1, 100), (10 * STEP, 400, 2)))
    assert float(both.finished[0] - alone.finished[0]) == pytest.approx(401 * STEP, rel=0.02)
    # with a pipeline each, no request is delayed
    apart = linear(limits, replicas=2, fixed=STEP, token=STEP).run(requests((0.0, 1, 100), (10 * STEP, 400, 2)))
    assert float(apart.finished[0]) == pytest.approx(float(alone.finished[0]))


@pytest.mark.parametrize(
    ("model", "gpu", "fields"),
    [
        ("llama-3.1-8b", "h100-sxm", {}),
        ("llama-3.1-8b", "a100-sxm-80gb", {"engine": "tensorrt-llm"}),
        ("llama-3.1-8b", "l40s", {"engine": "sglang"}),
        ("llama-2-70b", "a100-sxm-80gb", {"gpus": 4, "year": 2023}),
        ("mixtral-8x7b", "h100-sxm", {"gpus": 4}),
    ],
)
@pytest.mark.parametrize(("prompt", "output"), [(300, 40), (1531, 257)])
def test_alone_it_is_the_step_model(model: str, gpu: str, fields: dict[str, Any], prompt: int, output: int) -> None:
    """Within 1%: the prompt's pass, then one pass a token at the context it has by then."""
    server, steps = real(model, gpu, prompt + output, seq_in=prompt, seq_out=output, **fields)
    outcome = server.run(requests((0.0, prompt, output)))
    first = float(steps.prefill(1, prompt)) + server.limits.request_latency
    rest = float(steps.decode(1, prompt + np.arange(output - 1)).sum())
    assert float(outcome.first[0]) == pytest.approx(first, rel=0.01)
    assert float(outcome.finished[0]) == pytest.approx(first + rest, rel=0.01)


def test_a_batch_is_the_step_model_too() -> None:
    server, steps = real("llama-3.1-8b", "h100-sxm", 1200, seq_in=1000, seq_out=200)
    outcome = server.run([(0.0, 64, 200, ()) for _ in range(100)])
    together = outcome.first.max()  # from here on all are in the batch
    last = float(outcome.finished.min())
    turns = round((last - together) / float(steps.decode(100, 160)))
    contexts = 64 + 199 - turns + np.arange(turns)
    assert last - together == pytest.approx(float(steps.decode(100, contexts).sum()), rel=0.02)


MEAN = 1000  # steps of an answer: a second


def sampled_requests(servers: int, busy: float, count: int, seed: int, steady: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Memoryless arrivals and answers of geometric length, or all of one."""
    chance = np.random.default_rng(seed)
    times = np.cumsum(chance.exponential(MEAN * STEP / (busy * servers), count))
    return times, np.full(count, MEAN) if steady else chance.geometric(1 / MEAN, count)


def slots(servers: int, times: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Waits and stays where slots are servers and every answer takes its steps whatever else is done."""
    limits = replace(DEFAULT_LIMITS, max_sequences=servers, max_batched_tokens=1 << 14, cache_tokens=1 << 30)
    load = [(float(time), 1, int(output), ()) for time, output in zip(times, outputs, strict=True)]
    outcome = linear(limits).run(load)
    # the first token takes a step of its own, and half a step passes on average until one begins
    return outcome.first - outcome.arrived - 1.5 * STEP, outcome.finished - outcome.arrived


def exact(servers: int, times: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Waits of the same arrivals by Kiefer and Wolfowitz's recursion: each takes the server that is free first."""
    free, waits = [0.0] * servers, []
    for time, output in zip(times.tolist(), outputs.tolist(), strict=True):
        start = max(time, heappop(free))
        waits.append(start - time)
        heappush(free, start + output * STEP)
    return np.array(waits)


@pytest.mark.parametrize(
    ("servers", "busy"), [(1, 0.6), *(pytest.param(*one, marks=pytest.mark.long) for one in ((4, 0.8), (16, 0.9)))]
)
def test_simulator_matches_an_m_m_c_queue(servers: int, busy: float) -> None:
    """Sojourn times and the share that waits as M/M/c within 3%; waits within 1% of the exact ones of these arrivals.

    The mean wait is not compared with the formula: over this many arrivals it varies by 1 to 4%.
    """
    waits, stays, expected = [], [], []
    for seed in range(4):
        times, outputs = sampled_requests(servers, busy, 40_000, seed)
        wait, stay = slots(servers, times, outputs)
        waits.append(wait[2000:])
        stays.append(stay[2000:])
        expected.append(exact(servers, times, outputs)[2000:])
    rate = busy * servers
    assert np.mean(stays) == pytest.approx(mean_wait(servers, rate, 1.0) + 1.0, rel=0.03)
    assert np.mean(np.array(waits) > STEP) == pytest.approx(erlang_c(servers, rate), rel=0.03)
    assert np.mean(waits) == pytest.approx(float(np.mean(expected)), rel=0.01)


def test_answers_of_one_length_wait_half_as_long() -> None:
    """M/D/1 (Pollaczek and Khinchine)."""
    waits, expected = [], []
    for seed in range(3):
        times, outputs = sampled_requests(1, 0.5, 20_000, seed, steady=True)
        waits.append(slots(1, times, outputs)[0])
        expected.append(exact(1, times, outputs))
    assert np.mean(waits) == pytest.approx(float(np.mean(expected)), rel=0.01)
    assert np.mean(waits) == pytest.approx(mean_wait(1, 0.5, 1.0, services=0.0), rel=0.03)


def test_the_same_seed_gives_the_same_outcome_and_another_does_not() -> None:
    server = linear(sequence=1e-4)
    load = Load(100.0, Lengths(50, 0.5), Lengths(20, 0.5), 500, seed=7)
    one, again, other = (server.run(each.arrivals()) for each in (load, load, replace(load, seed=8)))
    for name in ("arrived", "first", "finished", "prompts", "outputs"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert not np.array_equal(one.finished, other.finished)
