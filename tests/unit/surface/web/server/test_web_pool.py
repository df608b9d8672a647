"""Workers killed from outside lose no reply; a worker killed by its request loses only that reply."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")

from tests.unit.surface.web.server.test_web_parts import finished
from whichgpu.surface.web.responses import HttpRefusal
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.pool import TimeLimitExceeded, WorkerLost, WorkerPool, WorkerSettings, _environment
from whichgpu.surface.web.server.service import Service
from whichgpu.workload.model_files.hub import _their_caches

KILLS = 20


@asynccontextmanager
async def workers(count: int, **limits: float) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(count, WorkerSettings(module="tests.surface.web_echo_worker"), Limits(**limits))  # type: ignore[arg-type]
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.sweep(2)
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


def test_the_share_done_of_an_answer_is_known_while_it_is_computed() -> None:
    async def run() -> list[float | None]:
        service = Service(Limits(answer_seconds=1.0), 1, module="tests.surface.web_echo_worker", warm=(), draws=False)
        question = {"kind": "page", "name": "plan", "progress": 0.4, "spin": True}
        await service.open()
        try:
            asking = asyncio.ensure_future(service.ask(question, "client"))
            while (done := service.progress(question)) is None:
                await asyncio.sleep(0.01)
            with pytest.raises(HttpRefusal):  # It never ends.
                await asking
            return [done, service.progress(question)]
        finally:
            await service.close()

    assert finished(run()) == [0.4, None]


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


def test_workers_inherit_no_access_to_hugging_face(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    private = tmp_path / "models--org--private" / "snapshots" / "abc"
    private.mkdir(parents=True)
    (private / "config.json").write_text('{"model_type": "llama"}')
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.setenv(name, "hf_secret")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    environment = _environment()
    assert "hf_secret" not in environment.values()
    assert _their_caches("org", "private")
    monkeypatch.setenv("HF_HUB_CACHE", environment["HF_HUB_CACHE"])
    assert not _their_caches("org", "private")


def test_time_limit_is_kept_on_a_busy_machine() -> None:
    async def run() -> float:
        async with workers(1, answer_seconds=0.5) as pool:
            start = time.monotonic()
            with pytest.raises(TimeLimitExceeded):
                await pool.ask({"spin": True})
            return time.monotonic() - start

    assert 0.4 < finished(run()) < 1.5
