"""Long questions as jobs: each in a process of its own that can be followed and cancelled; results kept for a while."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from whichgpu.surface.web.responses import Refusal
from whichgpu.surface.web.rest.endpoints import PREFIX
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.pool import Lost, Question, Settings, Worker

COMMANDS = ("estimate", "recommend", "plan")  # endpoints that may be asked as a job
FILES = ("trace",)  # fields that name an upload
HEARTBEAT_SECONDS = 10.0
OVER = ("done", "failed", "cancelled")


@dataclass(slots=True, eq=False)
class Job:
    """One question on its way."""

    id: str
    client: str
    question: Question
    state: str = "queued"
    done: float = 0.0
    answer: dict[str, Any] | None = None
    problem: str | None = None  # kind of the refusal where there is no answer
    ended: float | None = None
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def told(self) -> dict[str, Any]:
        """What a client sees of it."""
        url = f"{PREFIX}/jobs/{self.id}"
        told = {"id": self.id, "state": self.state, "done": round(self.done, 4), "url": url, "events": f"{url}/events"}
        return told | ({"result": f"{url}/result"} if self.state in OVER else {})

    def move(self, state: str | None = None, done: float | None = None) -> None:
        """Go on, and wake those who follow."""
        self.state = state or self.state
        self.done = self.done if done is None else min(max(done, self.done), 1.0)
        if self.state in OVER and self.ended is None:
            self.ended = time.monotonic()
        self.changed.set()
        self.changed = asyncio.Event()


class Jobs:
    """All that are known."""

    def __init__(self, limits: Limits, settings: Settings, start: Callable[..., Any] = Worker.start) -> None:
        self._limits, self._settings, self._start = limits, settings, start
        self._known: dict[str, Job] = {}
        self._turn = asyncio.Semaphore(limits.jobs_running)

    def add(self, question: Question, client: str) -> Job:
        """A new job, where there is room for one."""
        self._forget()
        waiting = [job for job in self._known.values() if job.state not in OVER]
        if sum(job.client == client for job in waiting) >= self._limits.client_jobs:
            raise Refusal(429, "many-jobs", {"Retry-After": "30"}, n=self._limits.client_jobs)
        if len(self._known) >= self._limits.jobs and not self._make_room():
            raise Refusal(503, "jobs-full", {"Retry-After": "60"})
        job = Job(secrets.token_urlsafe(12), client, question)
        self._known[job.id] = job
        job.task = asyncio.ensure_future(self._run(job))
        return job

    def get(self, id: str) -> Job:
        """A job by its id."""
        self._forget()
        if id not in self._known:
            raise Refusal(404, "job")
        return self._known[id]

    def cancel(self, job: Job) -> None:
        """Stop it where it is not over; its process ends with it."""
        if job.state not in OVER and job.task is not None:
            job.task.cancel()
            job.problem = "job-cancelled"
            job.move("cancelled")

    async def follow(self, job: Job) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Its course as events, until it is over; an empty event now and then shows that the line is alive."""
        while True:
            changed = job.changed
            yield (job.state if job.state in OVER else "progress"), job.told()
            if job.state in OVER:
                return
            while True:
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                    break
                except TimeoutError:
                    yield "", {}

    async def close(self) -> None:
        """Stop all."""
        tasks = [job.task for job in self._known.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job: Job) -> None:
        worker: Worker | None = None
        try:
            async with self._turn, asyncio.timeout(self._limits.job_seconds):
                job.move("running")
                worker = await self._start(self._settings, self._limits.answer_bytes)
                job.answer = await worker.ask(job.question, lambda done: job.move(done=done))
                job.move("done" if job.answer["status"] == 200 else "failed", 1.0)
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            job.problem = "too-long"
            job.move("failed")
        except (Lost, OSError):
            job.problem = "lost"
            job.move("failed")
        finally:
            if worker is not None:
                worker.kill()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(worker.process.wait())

    def _forget(self) -> None:
        oldest = time.monotonic() - self._limits.job_kept_seconds
        for id in [id for id, job in self._known.items() if job.ended is not None and job.ended < oldest]:
            del self._known[id]

    def _make_room(self) -> bool:
        over = [id for id, job in self._known.items() if job.state in OVER]
        if over:
            del self._known[over[0]]
        return bool(over)
