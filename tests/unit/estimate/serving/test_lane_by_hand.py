"""One engine's scheduler step by step: what it plans, whom it admits, how its blocks grow, whom it throws out."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from tests.serving_cases import linear, small
from whichgpu.estimate.serving.scheduler import RequestLog, Scheduler

STEP = 1e-3


def lane(tokens: int = 1 << 20, **changed: Any) -> tuple[Scheduler, RequestLog]:
    limits, ledger = small(tokens, **changed), RequestLog()
    return Scheduler(linear(limits).steps, limits, ledger), ledger


def on(made: Scheduler) -> None:
    """To the end of what it is doing."""
    made.complete()
    made.plan(made.end)


def writing(output: int = 10, prompt: int = 100, **changed: Any) -> tuple[Scheduler, RequestLog]:
    """A lane that has read a prompt in its first step."""
    made, ledger = lane(**changed)
    ledger.add(0.0, prompt, output)
    assert made.accept(0, 0.0)
    on(made)
    return made, ledger


def test_a_new_lane_has_nothing_to_do() -> None:
    made, _ = lane(16 * 40)
    assert (made.end, made.count, made.used, made.load, made.blocks) == (inf, 0, 0, 0, 40)
    made.plan(3.0)
    assert (made.end, made.count, made.stepping) == (inf, 0, False)


def test_a_prompt_is_one_step_and_its_answer_a_run_of_equal_ones() -> None:
    made, ledger = lane()
    ledger.add(0.0, 100, 10)
    assert made.accept(0, 2.0)
    assert (made.start, made.count, made.slope, made.stepping) == (2.0, 1, 0.0, False)
    assert made.end == pytest.approx(2.0 + STEP)
    assert (made.used, made.load, made.running) == (7, 1, 0)
    assert made.complete() == []
    assert (made.running, made.total, ledger.generated[0], ledger.first[0]) == (1, 100, 1, made.end)
    made.plan(made.end)
    assert (made.count, made.stepping) == (9, True)
    assert made.end == pytest.approx(2.0 + 10 * STEP)
    assert made.complete() == [0]
    assert (made.running, made.total, made.used, made.load, made.turn) == (0, 0, 0, 0, 9)
    assert ledger.finished[0] == made.end


@pytest.mark.parametrize("reserve", [False, True])
def test_runs_go_to_the_next_end_whoever_keeps_room_for_answers(reserve: bool) -> None:
    made, _ = writing(reserve_answers=reserve, tokens=16 * 8)
    assert made.count == 9  # 110 tokens have room in eight blocks
    assert made.used == 7  # of 100 tokens, as of 110


def test_whether_an_end_has_changed() -> None:
    made, ledger = writing(40)
    for _ in range(3):
        ledger.add(0.0, 10, 10)
    before = made.end
    assert made.accept(1, made.start + 3.5 * STEP) is True  # the run ends with the step under way
    assert made.end == pytest.approx(made.start + 4 * STEP) != before
    assert made.count == 4
    assert made.accept(2, made.start + 3.6 * STEP) is False  # somebody waits already
    on(made)
    assert made.count == 1  # a step with both prompts in it
    assert made.accept(3, made.start + STEP / 2) is False  # it ends as it would
    assert (made.load, len(made.waiting)) == (4, 1)


def test_who_comes_in_the_last_step_of_a_run_changes_nothing() -> None:
    made, ledger = writing(5)
    ledger.add(0.0, 10, 10)
    end = made.end
    assert made.accept(1, made.start + 3.5 * STEP) is False
    assert (made.end, made.count) == (end, 4)


def test_who_has_no_room_shortens_nothing() -> None:
    made, ledger = writing(10, tokens=16 * 8)
    ledger.add(0.0, 17, 3)
    ledger.add(0.0, 16, 3)
    assert made.accept(0, made.start + STEP / 2) is False  # two blocks where one is left
    made.waiting.clear()
    assert made.accept(2, made.start + STEP / 2) is True
    full, ledger = writing(10, max_sequences=1)
    ledger.add(0.0, 1, 1)
    assert full.accept(1, full.start + STEP / 2) is False


def test_blocks_grow_when_a_last_block_is_full() -> None:
    """Prompts of 30 and 16 tokens in blocks of 16: the second needs a block at once, the first in its third turn."""
    made, ledger = lane()
    for prompt in (30, 16):
        ledger.add(0.0, prompt, 100)
    made.waiting.extend((0, 1))
    made.plan(0.0)
    on(made)
    assert (made.running, made.used) == (2, 2 + 1)
    assert [made._growth(turns) for turns in (0, 1, 2, 3, 16, 17, 18, 19, 32)] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    made.count = 3  # as if somebody had come
    made.end = made.start + 3 * STEP
    on(made)
    assert (made.used, made.total, made.turn) == (3 + 2, 46 + 2 * 3, 3)
    assert [made._growth(turns) for turns in (1, 13, 14, 15, 16)] == [0, 0, 1, 1, 2]


def test_a_run_is_no_longer_than_there_is_memory_for() -> None:
    """Five blocks, of which two are taken by 20 tokens: 60 more fit."""
    made, _ = writing(100, 20, tokens=16 * 5)
    assert made._growth(60) == 3
    assert made._growth(61) == 4
    assert made._affordable(99) == 60
    assert made.count == 60


def test_the_last_that_came_is_thrown_out_and_waits_first() -> None:
    """Four blocks: two prompts of 20 have two each; at 33 tokens the first needs a third."""
    made, ledger = lane(16 * 4)
    for _ in range(3):
        ledger.add(0.0, 20, 30)
    made.waiting.extend((0, 1, 2))
    made.plan(0.0)
    on(made)
    assert (made.running, len(made.waiting), made.used) == (2, 1, 4)
    assert made.count == 12  # tokens 21 to 32 have room
    on(made)
    assert (made.preempted, made.recomputed) == (1, 32)
    assert list(made.waiting) == [1, 2]
    assert ledger.generated[1] == 13
    assert (made.running, made.used) == (1, 2)
    assert made.count == 17  # the first to its end


def test_a_prompt_half_read_is_thrown_out_before_any_answer() -> None:
    made, ledger = lane(16 * 5, max_batched_tokens=17)
    ledger.add(0.0, 16, 60)
    ledger.add(0.0, 40, 5)
    made.waiting.extend((0, 1))
    made.plan(0.0)
    assert [(entry[0], size) for entry, size in made.chunks] == [(0, 16), (1, 1)]
    assert made.used == 1 + 3
    on(made)
    assert [(entry[0], size) for entry, size in made.chunks] == [(1, 16)]  # beside the token of the first
    on(made)
    assert (made.used, made.preempted) == (5, 0)


@pytest.mark.parametrize(("mixed", "sizes"), [(True, [15, 15, 10]), (False, [16, 16, 8])])
def test_prompts_share_a_step_with_the_tokens_of_others_or_have_their_own(mixed: bool, sizes: list[int]) -> None:
    made, ledger = writing(50, 10, max_batched_tokens=16, mixed_steps=mixed)
    ledger.add(0.0, 40, 5)
    made.waiting.append(1)
    made.plan(made.start)
    seen = []
    for _ in range(3):
        ((_, size),) = made.chunks
        seen.append(size)
        assert made.stepping is mixed
        on(made)
    assert seen == sizes
    assert ledger.generated[1] == 1
    assert made.turn == (3 if mixed else 0)
