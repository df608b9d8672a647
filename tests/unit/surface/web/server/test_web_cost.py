"""Cheap questions overtake costly ones, and costly ones never have all workers."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")

from tests.unit.surface.web.server.test_web_parts import finished
from tests.unit.surface.web.server.test_web_pool import workers
from whichgpu.surface.web.command_replies import HttpReply
from whichgpu.surface.web.server import worker
from whichgpu.surface.web.server.cost import COSTLY_SECONDS, CostEstimates, group_of
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.pool import MAX_OVERTAKING, TimeLimitExceeded, WaitingQueues
from whichgpu.surface.web.server.service import COSTLY_NICE, Service

PLAN = {"kind": "rest", "endpoint": "plan", "query": "what=gpt2"}
GPUS = {"kind": "rest", "endpoint": "gpus", "query": "name=T4"}


def test_the_estimate_of_a_group_follows_its_answers() -> None:
    costs = CostEstimates()
    assert costs.is_costly(PLAN)
    assert not costs.is_costly(GPUS)
    for _ in range(20):
        costs.add(GPUS, 4.0)
        costs.add(PLAN, 0.01)
    assert costs.is_costly({**GPUS, "query": "name=L4"})
    assert costs.seconds(PLAN) < COSTLY_SECONDS


def test_quick_refusals_and_answers_of_a_costly_group_leave_it_costly() -> None:
    costs, recommend = CostEstimates(), {"kind": "rest", "endpoint": "recommend", "query": "task=serve"}
    for _ in range(20):
        costs.add(recommend, 0.01, is_refusal=True)
    assert costs.seconds(recommend) >= COSTLY_SECONDS
    for _ in range(20):
        costs.add(recommend, 0.01)
    assert costs.is_costly(recommend)
    costs.add(GPUS, 4.0, is_refusal=True)  # A refusal after seconds of work is as costly as an answer.
    assert costs.is_costly(GPUS)


class OneAnswerPool:
    """A pool whose workers all give the same answer, or exceed the time limit."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self._answer = answer

    async def ask(self, *_: Any) -> dict[str, Any]:
        if self._answer is None:
            raise TimeLimitExceeded
        return self._answer


def test_the_server_learns_from_answers_and_time_limits_and_not_from_refusals() -> None:
    service = Service(Limits(), workers=1, draws=False)
    fit = {"kind": "rest", "endpoint": "fit", "query": "model=bert-large"}
    for _ in range(12):
        finished(service._compute(OneAnswerPool({"status": 400, "seconds": 0.001}), PLAN, ""))  # type: ignore[arg-type]
    assert service.costs.seconds(PLAN) == CostEstimates().seconds(PLAN)
    finished(service._compute(OneAnswerPool({"status": 200, "seconds": 3.0}), PLAN, ""))  # type: ignore[arg-type]
    assert service.costs.seconds(PLAN) == 3.0
    with pytest.raises(TimeLimitExceeded):
        finished(service._compute(OneAnswerPool(None), fit, ""))  # type: ignore[arg-type]
    assert service.costs.is_costly(fit)


def test_tasks_and_simulations_are_groups_of_their_own() -> None:
    serve = {"kind": "rest", "endpoint": "estimate", "query": "task=serve&rate=5/s"}
    assert group_of(serve) != group_of({**serve, "query": "task=serve"}) != group_of({**serve, "query": "task=decode"})
    assert CostEstimates().is_costly(serve)
    assert group_of({**serve, "query": "%ff=1"}) == "estimate"


def test_a_cheap_question_is_answered_while_costly_ones_fill_the_queue() -> None:
    async def run() -> int:
        async with workers(2, answer_seconds=1.0) as pool:
            costly = [asyncio.ensure_future(pool.ask({"spin": True}, f"client {n}", costly=True)) for n in range(3)]
            await asyncio.sleep(0)
            cheap: list[Any] = await asyncio.wait_for(asyncio.gather(*(pool.ask({"n": n}, "other") for n in range(30))), 30.0)
            assert cheap == [{"n": n} for n in range(30)]
            unfinished = sum(not one.done() for one in costly)
            for one in costly:
                with pytest.raises(TimeLimitExceeded):
                    await one
            assert pool._queue.running == 0
            return unfinished

    assert finished(run()) >= 2  # the cheap ones did not wait for them


def test_a_costly_question_gets_its_turn_among_many_cheap_ones() -> None:
    async def run() -> int:
        queues = WaitingQueues(2)
        cheap = [queues.cheap.join("a") for _ in range(50)]
        costly, other = queues.costly.join("b"), queues.costly.join("b")
        order = [queues.next() for _ in range(MAX_OVERTAKING + 1)]
        assert order[:-1] == cheap[:MAX_OVERTAKING]
        assert order[-1] is costly
        rest = [queues.next() for _ in range(60)]
        assert other not in rest  # one of two workers is free of costly questions
        return rest.count(None)

    assert finished(run()) == 60 - (50 - MAX_OVERTAKING)


def test_a_costly_question_waits_until_another_worker_is_ready() -> None:
    async def run() -> None:
        queues = WaitingQueues(2)
        queues.ready = 1
        costly = queues.costly.join("a")
        assert queues.next() is None  # A cheap question may come, and would wait for all of it.
        cheap = queues.cheap.join("a")
        assert queues.next() is cheap
        queues.ready = 2
        assert queues.next() is costly

    finished(run())


def test_a_costly_question_is_computed_at_a_lower_priority_than_the_next() -> None:
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    values: list[int] = []

    def answer(*_: Any) -> HttpReply:
        values.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return HttpReply(200, "text/plain", b"")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker, "compute", answer)
        for nice in (COSTLY_NICE, 0):
            worker._answer_at_priority({"kind": "page", "nice": nice}, io.BytesIO())
    assert values == [niceness + COSTLY_NICE, niceness]


def test_a_costly_question_that_is_given_up_leaves_its_place() -> None:
    async def run() -> None:
        async with workers(2, answer_seconds=30.0, queue_seconds=0.2) as pool:
            first = asyncio.ensure_future(pool.ask({"n": 1}, "a", costly=True))
            second = asyncio.ensure_future(pool.ask({"n": 2}, "a", costly=True))
            await asyncio.sleep(0)
            second.cancel()
            assert await first == {"n": 1}
            assert await pool.ask({"n": 3}, "a", costly=True) == {"n": 3}
            assert pool._queue.running == 0

    finished(run())
