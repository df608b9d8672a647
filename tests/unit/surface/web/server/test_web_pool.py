"""Workers killed from outside lose no reply; a worker killed by its request loses only that reply."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")

from tests.unit.surface.web.server.test_web_parts import finished
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.pool import WorkerLost, WorkerPool, WorkerSettings

KILLS = 20


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(count, WorkerSettings(module="tests.surface.web_echo_worker"), Limits())
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_killed_as_it_is_handed_a_question_costs_no_answer(moment: str) -> None:
    async def run() -> int:
        async with workers(2) as pool:
            for number in range(KILLS):
                while not pool._idle:
                    await asyncio.sleep(0.01)
                next_one = pool._idle[-1].process.pid  # the one the next question goes to
                if moment == "before":
                    os.kill(next_one, signal.SIGKILL)
                asking = asyncio.ensure_future(pool.ask({"number": number}))
                if moment == "after":
                    await asyncio.sleep(0)  # it has the worker, whose pipe nothing has been read from
                    os.kill(next_one, signal.SIGKILL)
                assert await asking == {"number": number}
            return pool.replaced

    assert finished(run()) >= KILLS - 2  # an answer may be out before its worker is killed


def test_a_question_that_crashes_its_worker_is_not_put_to_another() -> None:
    async def run() -> tuple[int, int]:
        async with workers(2) as pool:
            with pytest.raises(WorkerLost):
                await pool.ask({"signal": int(signal.SIGSEGV)})
            crashed = pool.replaced
            with pytest.raises(WorkerLost):
                await pool.ask({"signal": int(signal.SIGKILL)})  # killed from outside, as far as known: retried once
            return crashed, pool.replaced

    assert finished(run()) == (1, 3)
