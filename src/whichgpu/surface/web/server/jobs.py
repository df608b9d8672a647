"""Long computations as jobs, each in its own process; clients can follow and cancel them, and results are kept for a while."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from whichgpu.surface.web.responses import HttpRefusal
from whichgpu.surface.web.rest.endpoints import PREFIX
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.pool import Worker, WorkerLost, WorkerSettings

COMMANDS = ("estimate", "recommend", "plan")  # Endpoints that may run as a job.
FILES = ("trace",)  # Fields that name an uploaded file.
HEARTBEAT_SECONDS = 10.0  # Seconds between two events of a silent stream (assumed; proxies close idle ones after 30 s or more).
FINISHED_STATES = ("done", "failed", "cancelled")


class WebJob(msgspec.Struct, eq=False):
    """A long computation for a web client: what to compute (`question`), state, progress and answer."""

    id: str
    client: str
    question: Question
    state: str = "queued"
    done: float = 0.0
    answer: dict[str, Any] | None = None
    problem: str | None = None  # kind of error if there is no answer
    ended: float | None = None
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def document(self) -> dict[str, Any]:
        """Return state, progress and URLs of the job for clients."""
        url = f"{PREFIX}/jobs/{self.id}"
        document = {"id": self.id, "state": self.state, "done": round(self.done, 4), "url": url, "events": f"{url}/events"}
        return document | ({"result": f"{url}/result"} if self.state in FINISHED_STATES else {})

    def update(self, state: str | None = None, done: float | None = None) -> None:
        """Change state or progress, and wake the clients that follow the job."""
        self.state = state or self.state
        self.done = self.done if done is None else min(max(done, self.done), 1.0)
        if self.state in FINISHED_STATES and self.ended is None:
            self.ended = time.monotonic()
        self.changed.set()
        self.changed = asyncio.Event()


class Jobs:
    """The background jobs of a server: queued, running and finished."""

    def __init__(self, limits: Limits, settings: WorkerSettings, start: Callable[..., Any] = Worker.start) -> None:
        self._limits, self._settings, self._start = limits, settings, start
        self._jobs: dict[str, WebJob] = {}
        self._running = asyncio.Semaphore(limits.jobs_running)

    def add(self, question: Question, client: str) -> WebJob:
        """Queue a question as a new job and return it; raise `HttpRefusal` if the client or the server has too many."""
        self._delete_expired()
        unfinished = [job for job in self._jobs.values() if job.state not in FINISHED_STATES]
        if sum(job.client == client for job in unfinished) >= self._limits.client_jobs:
            raise HttpRefusal(429, "many-jobs", {"Retry-After": "30"}, n=self._limits.client_jobs)
        if len(self._jobs) >= self._limits.jobs and not self._make_room():
            raise HttpRefusal(503, "jobs-full", {"Retry-After": "60"})
        job = WebJob(secrets.token_urlsafe(12), client, question)
        self._jobs[job.id] = job
        job.task = asyncio.ensure_future(self._run(job))
        return job

    def get(self, id: str) -> WebJob:
        """Return a job by its id; raise `HttpRefusal` if there is none."""
        self._delete_expired()
        if id not in self._jobs:
            raise HttpRefusal(404, "job")
        return self._jobs[id]

    def cancel(self, job: WebJob) -> None:
        """Stop an unfinished job and its process."""
        if job.state not in FINISHED_STATES and job.task is not None:
            job.task.cancel()
            job.problem = "job-cancelled"
            job.update("cancelled")

    async def follow(self, job: WebJob) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield events of a job until it is finished, with empty ones as heartbeats."""
        while True:
            changed = job.changed
            yield (job.state if job.state in FINISHED_STATES else "progress"), job.document()
            if job.state in FINISHED_STATES:
                return
            while True:
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                    break
                except TimeoutError:
                    yield "", {}

    def states(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        present = [job.state for job in self._jobs.values()]
        return {state: present.count(state) for state in ("queued", "running", *FINISHED_STATES)}

    async def close(self) -> None:
        """Stop all background jobs and their processes."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job: WebJob) -> None:
        worker: Worker | None = None
        try:
            async with self._running, asyncio.timeout(self._limits.job_seconds):
                job.update("running")
                worker = await self._start(self._settings, self._limits.answer_bytes)
                job.answer = await worker.ask(job.question, lambda done: job.update(done=done))
                job.update("done" if job.answer["status"] == 200 else "failed", 1.0)
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            job.problem = "too-long"
            job.update("failed")
        except (WorkerLost, OSError):
            job.problem = "lost"
            job.update("failed")
        finally:
            if worker is not None:
                worker.kill()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(worker.process.wait())

    def _delete_expired(self) -> None:
        oldest = time.monotonic() - self._limits.job_kept_seconds
        for id in [id for id, job in self._jobs.items() if job.ended is not None and job.ended < oldest]:
            del self._jobs[id]

    def _make_room(self) -> bool:
        finished = [id for id, job in self._jobs.items() if job.state in FINISHED_STATES]
        if finished:
            del self._jobs[finished[0]]
        return bool(finished)
