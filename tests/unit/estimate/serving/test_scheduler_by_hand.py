"""One scheduler step by step: what it plans, admits and preempts, and how its KV blocks grow."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from tests.serving_cases import linear, small
from whichgpu.estimate.serving.scheduler import RequestLog, Scheduler

STEP = 1e-3


def scheduler(tokens: int = 1 << 20, **changed: Any) -> tuple[Scheduler, RequestLog]:
    limits, log = small(tokens, **changed), RequestLog()
    return Scheduler(linear(limits).steps, limits, log), log


def on(one: Scheduler) -> None:
    """Complete its current steps and plan the next."""
    one.complete()
    one.plan(one.end)


def decoding(output: int = 10, prompt: int = 100, **changed: Any) -> tuple[Scheduler, RequestLog]:
    """Scheduler that has prefilled a prompt in its first step."""
    one, log = scheduler(**changed)
    log.add(0.0, prompt, output)
    assert one.accept(0, 0.0)
    on(one)
    return one, log


def test_new_scheduler_is_idle() -> None:
    one, _ = scheduler(16 * 40)
    assert (one.end, one.count, one.used, one.load, one.blocks) == (inf, 0, 0, 0, 40)
    one.plan(3.0)
    assert (one.end, one.count, one.decoding) == (inf, 0, False)


def test_a_prompt_is_one_step_and_its_answer_a_run_of_equal_ones() -> None:
    one, log = scheduler()
    log.add(0.0, 100, 10)
    assert one.accept(0, 2.0)
    assert (one.start, one.count, one.slope, one.decoding) == (2.0, 1, 0.0, False)
    assert one.end == pytest.approx(2.0 + STEP)
    assert (one.used, one.load, one.running) == (7, 1, 0)
    assert one.complete() == []
    assert (one.running, one.context_total, log.generated[0], log.first[0]) == (1, 100, 1, one.end)
    one.plan(one.end)
    assert (one.count, one.decoding) == (9, True)
    assert one.end == pytest.approx(2.0 + 10 * STEP)
    assert one.complete() == [0]
    assert (one.running, one.context_total, one.used, one.load, one.turn) == (0, 0, 0, 0, 9)
    assert log.finished[0] == one.end


@pytest.mark.parametrize("reserve", [False, True])
def test_decode_runs_advance_to_the_next_completion_with_or_without_reserved_output(reserve: bool) -> None:
    one, _ = decoding(reserve_answers=reserve, tokens=16 * 8)
    assert one.count == 9  # 110 tokens have room in eight blocks
    assert one.used == 7  # of 100 tokens, as of 110


def test_whether_an_end_has_changed() -> None:
    one, log = decoding(40)
    for _ in range(3):
        log.add(0.0, 10, 10)
    before = one.end
    assert one.accept(1, one.start + 3.5 * STEP) is True  # the run ends with the step under way
    assert one.end == pytest.approx(one.start + 4 * STEP) != before
    assert one.count == 4
    assert one.accept(2, one.start + 3.6 * STEP) is False  # a request is already waiting
    on(one)
    assert one.count == 1  # a step with both prompts in it
    assert one.accept(3, one.start + STEP / 2) is False  # it ends as it would
    assert (one.load, len(one.waiting)) == (4, 1)


def test_arrival_during_the_last_step_of_a_run_changes_nothing() -> None:
    one, log = decoding(5)
    log.add(0.0, 10, 10)
    end = one.end
    assert one.accept(1, one.start + 3.5 * STEP) is False
    assert (one.end, one.count) == (end, 4)


def test_waiting_request_without_kv_space_does_not_shorten_a_run() -> None:
    one, log = decoding(10, tokens=16 * 8)
    log.add(0.0, 17, 3)
    log.add(0.0, 16, 3)
    assert one.accept(0, one.start + STEP / 2) is False  # two blocks where one is left
    one.waiting.clear()
    assert one.accept(2, one.start + STEP / 2) is True
    full, log = decoding(10, max_sequences=1)
    log.add(0.0, 1, 1)
    assert full.accept(1, full.start + STEP / 2) is False


def test_blocks_grow_when_a_last_block_is_full() -> None:
    """Prompts of 30 and 16 tokens in blocks of 16: the second needs a block at once, the first in its third turn."""
    one, log = scheduler()
    for prompt in (30, 16):
        log.add(0.0, prompt, 100)
    one.waiting.extend((0, 1))
    one.plan(0.0)
    on(one)
    assert (one.running, one.used) == (2, 2 + 1)
    assert [one._growth(turns) for turns in (0, 1, 2, 3, 16, 17, 18, 19, 32)] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    one.count = 3  # as if a request had arrived
    one.end = one.start + 3 * STEP
    on(one)
    assert (one.used, one.context_total, one.turn) == (3 + 2, 46 + 2 * 3, 3)
    assert [one._growth(turns) for turns in (1, 13, 14, 15, 16)] == [0, 0, 1, 1, 2]


def test_a_run_is_no_longer_than_there_is_memory_for() -> None:
    """Five blocks, of which two are taken by 20 tokens: 60 more fit."""
    one, _ = decoding(100, 20, tokens=16 * 5)
    assert one._growth(60) == 3
    assert one._growth(61) == 4
    assert one._affordable_turns(99) == 60
    assert one.count == 60


def test_last_admitted_request_is_preempted_and_queued_first() -> None:
    """Four blocks: two prompts of 20 have two each; at 33 tokens the first needs a third."""
    one, log = scheduler(16 * 4)
    for _ in range(3):
        log.add(0.0, 20, 30)
    one.waiting.extend((0, 1, 2))
    one.plan(0.0)
    on(one)
    assert (one.running, len(one.waiting), one.used) == (2, 1, 4)
    assert one.count == 12  # tokens 21 to 32 have room
    on(one)
    assert (one.preempted, one.recomputed) == (1, 32)
    assert list(one.waiting) == [1, 2]
    assert log.generated[1] == 13
    assert (one.running, one.used) == (1, 2)
    assert one.count == 17  # the first to its end


def test_a_prompt_half_read_is_thrown_out_before_any_answer() -> None:
    one, log = scheduler(16 * 5, max_batched_tokens=17)
    log.add(0.0, 16, 60)
    log.add(0.0, 40, 5)
    one.waiting.extend((0, 1))
    one.plan(0.0)
    assert [(prefill.number, size) for prefill, size in one.chunks] == [(0, 16), (1, 1)]
    assert one.used == 1 + 3
    on(one)
    assert [(prefill.number, size) for prefill, size in one.chunks] == [(1, 16)]  # together with the token of the first
    on(one)
    assert (one.used, one.preempted) == (5, 0)


@pytest.mark.parametrize(("mixed", "sizes"), [(True, [15, 15, 10]), (False, [16, 16, 8])])
def test_prompts_share_a_step_with_the_tokens_of_others_or_have_their_own(mixed: bool, sizes: list[int]) -> None:
    one, log = decoding(50, 10, max_batched_tokens=16, mixed_steps=mixed)
    log.add(0.0, 40, 5)
    one.waiting.append(1)
    one.plan(one.start)
    steps = []
    for _ in range(3):
        ((_, size),) = one.chunks
        steps.append(size)
        assert one.decoding is mixed
        on(one)
    assert steps == sizes
    assert log.generated[1] == 1
    assert one.turn == (3 if mixed else 0)
