"""Figures of a level by hand: what counts, and gaps between tokens without a prefill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from whichgpu.measure.endpoint.client import LateAnswer, StreamedAnswer
from whichgpu.measure.endpoint.ramp import Ask, budget, run_level, summarise_level


def answer(sent: float, ttft: float, tpot: float, tokens: int) -> StreamedAnswer:
    return StreamedAnswer(sent, tuple(sent + ttft + tpot * place for place in range(tokens)), 100, tokens)


def test_the_first_request_of_a_worker_is_not_measured() -> None:
    level = summarise_level(1, [[answer(0, 9, 9, 2), answer(20, 0.5, 0.1, 11), answer(22, 0.5, 0.1, 11)]])
    assert level is not None
    assert (level.requests, level.ttft.seconds) == (2, 0.5)
    assert level.tpot is not None
    assert level.tpot.seconds == pytest.approx(0.1)
    assert level.throughput == pytest.approx(22 / (23.5 - 18))


def test_decode_steps_are_gaps_in_which_no_request_waits_for_its_first_token() -> None:
    slowed = [5.0 + 0.1 * place for place in range(5)] + [5.9 + 0.1 * place for place in range(30)]
    first = [answer(0, 1, 0.1, 5), StreamedAnswer(4, tuple(slowed), 100, 35)]
    second = [answer(0, 1, 0.1, 5), answer(5.45, 0.4, 0.1, 31)]  # Its prefill is in the gap of 0.5 s of the other.
    level = summarise_level(2, [first, second])
    assert level is not None
    assert level.decode_step is not None
    assert (level.decode_step.low, level.decode_step.high) == pytest.approx((0.1, 0.1))


def test_joined_tokens_count_as_several() -> None:
    joined = [StreamedAnswer(sent, tuple(sent + 1 + 0.2 * place for place in range(26)), 100, 51) for sent in (0, 10, 20)]
    level = summarise_level(1, [joined])
    assert level is not None
    assert level.decode_step is not None
    assert level.decode_step.seconds == pytest.approx(0.1)


def test_a_worker_without_a_measured_request_leaves_the_level_out() -> None:
    assert summarise_level(1, [[answer(0, 1, 1, 3)]]) is None


def test_budget_counts_every_request() -> None:
    assert budget((1, 4), 10, 3).requests == 1 + 5 * 4
    assert budget((1, 4), 10, 3).tokens_in == 210


@pytest.mark.parametrize(("complete", "measured"), [(4, 3), (3, 2), (1, None), (0, None)])
def test_answers_before_one_that_came_too_late_count(complete: int, measured: int | None) -> None:
    @contextmanager
    def open_worker() -> Iterator[Ask]:
        answers = iter([answer(10.0 * place, 1, 0.1, 5) for place in range(complete)])

        def ask(tokens: int, seed: int) -> StreamedAnswer:
            try:
                return next(answers)
            except StopIteration as late:
                raise LateAnswer from late

        yield ask

    level = run_level(1, 5, open_worker, float("inf"))
    assert (level.requests if level else None) == measured
