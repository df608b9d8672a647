"""State behind the routes: workers, cached answers, jobs and uploads, and the limits of each client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from whichgpu.base.messages import languages
from whichgpu.surface.web.responses import HttpRefusal
from whichgpu.surface.web.server.cache import Answer, AnswerCache
from whichgpu.surface.web.server.cost import CostEstimates
from whichgpu.surface.web.server.data_version import data_stamp, release_version
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.server.jobs import Jobs
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.metrics import Metrics
from whichgpu.surface.web.server.pool import WORKER, PoolBusy, TimeLimitExceeded, WorkerLost, WorkerPool, WorkerSettings
from whichgpu.surface.web.uploads import Uploads
from whichgpu.surface.web.vega_bundle import is_cached
from whichgpu.surface.web.views import PAGES, START


def page_question(
    name: str, ending: str = "html", query: str = "", lang: str = "en", chart: str = "", subject: str | None = None
) -> dict[str, Any]:
    """Return the message that asks a worker process for a page in the format `ending`, or for one chart of it.

    `subject` is what the URL's path names after the page.
    """
    return {"kind": "page", "name": name, "ending": ending, "query": query, "lang": lang, "chart": chart, "subject": subject}


# Every worker answers these before it is ready, so that no client's first question waits for tables to be loaded.
WARM_QUESTIONS: tuple[Question, ...] = (
    *map(page_question, ("recommend", "fit", "gpus")),
    {**page_question(START), "hurry": True},
)
FIRST_CHART = page_question("fit", "svg", chart="memory")  # Loads vl-convert, which takes seconds.
OWN_CLIENT = ""  # Questions of the server itself, which wait behind those of clients.
CHART_WORKER_NICE, COSTLY_NICE, JOB_NICE = 5, 5, 10
QUIET_SECONDS = 2.0  # Seconds without a question after which the chart worker is warmed up.
STAMP_SECONDS = 1.0  # Seconds between checks whether the data changed.


class Service:
    """State of one web server: workers, cached answers, jobs, uploads and the limits of its clients."""

    def __init__(
        self,
        limits: Limits,
        workers: int | None = None,
        allowed: tuple[str, ...] = (),
        module: str = WORKER,
        warm: tuple[Question, ...] = WARM_QUESTIONS,
        catalog: str | None = None,
        draws: bool = True,
    ) -> None:
        self.limits, self._draws, self._catalog = limits, draws, catalog
        self.metrics, self.costs = Metrics(), CostEstimates()
        count = workers or max(2, min(8, os.cpu_count() or 2))
        settings = WorkerSettings(warm, limits.worker_address_bytes, module=module, catalog=catalog, allowed=allowed)
        self.pool = WorkerPool(count, settings, limits, self._cache_warm_answer)
        # vl-convert needs much address space, and its start must not delay an answer.
        chart_settings = WorkerSettings(nice=CHART_WORKER_NICE, allowed=allowed, catalog=catalog)
        self.chart_pool = WorkerPool(1, chart_settings, replace(limits, answer_seconds=limits.picture_seconds))
        self.answers = AnswerCache(limits.cache_bytes, limits.cache_entries)
        self.jobs = Jobs(limits, replace(settings, warm=(), nice=JOB_NICE))
        self.uploads = Uploads(limits)
        self._later: dict[Hashable, asyncio.Task[None]] = {}  # Answers being computed that nobody waits for.
        self._progress: dict[Hashable, float] = {}  # Shares done of the answers that workers compute.
        self._waiting: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._stamp = (-STAMP_SECONDS, "")
        self._asked_at = 0.0
        self._first_stamp = ""
        self._chart_pool_opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the workers; return as soon as one is ready."""
        self._first_stamp = self._data_stamp()
        await self.pool.open(self._first_stamp)

    async def close(self) -> None:
        """Stop workers, jobs and uploads."""
        for task in self._later.values():
            task.cancel()
        await asyncio.gather(self.jobs.close(), self.pool.close(), self.chart_pool.close())
        self.uploads.close()

    async def prepare(self) -> None:
        """Cache every page in its default state, the start page with its four answers first, and the chart script.

        When no questions come, the start page is cached in the other languages, and the chart worker warmed up.
        """
        if not self._draws:
            return
        with contextlib.suppress(HttpRefusal):
            for name in PAGES:
                await self.ask(page_question(name), OWN_CLIENT)
            await self.ask({"kind": "script"}, OWN_CLIENT, drawing=not is_cached())
            await self._until_quiet()
            for code in languages():
                await self.ask(page_question(START, lang=code), OWN_CLIENT)
            await self.ask(FIRST_CHART, OWN_CLIENT, drawing=True)

    def cached(self, question: Question) -> Answer | None:
        """Return the cached answer to a question for the workers, or None.

        For a question in a hurry it is the whole answer; until a worker has computed that, one that leaves out some parts.
        """
        stamped = {**question, "stamp": self._data_stamp()}
        if not stamped.pop("hurry", False):
            return self.answers.get(_key(stamped))
        whole = self.answers.get(_key(stamped))
        if whole is None:
            self._compute_later(stamped)
        return whole or self.answers.get(_key({**stamped, "hurry": True}))

    def progress(self, question: Question) -> float | None:
        """Return the share done of an answer that a worker computes; None if nothing is known of it."""
        return self._progress.get(_key({**question, "stamp": self._data_stamp()}))

    def tag(self, question: Question) -> str:
        """Return an entity tag that changes with the question, the catalog, the calibration and the user's own data."""
        version = release_version(self._catalog)
        return blake2b(repr((_key(question), self._data_stamp(), version)).encode(), digest_size=12).hexdigest()

    def rate_limit(self, client: str) -> dict[str, str]:
        """Return the headers that say how many questions a client may have under way, and how many more it may ask now."""
        limit = self.limits.client_waiting
        policy = f'"questions";q={limit};qu="concurrent-requests"'
        return {"RateLimit-Policy": policy, "RateLimit": f'"questions";r={max(0, limit - self._waiting[client])}'}

    def present_values(self) -> dict[str, float | Mapping[str, int]]:
        """Return present values for monitoring: workers, queue, cached answers, jobs and open streams."""
        return {
            "workers": self.pool.alive, "worker_replacements_total": self.pool.replaced,
            "worker_resident_bytes": self.pool.resident_bytes, "questions_waiting": self.pool.waiting,
            "questions": self._waiting.total(), "cached_answers": len(self.answers), "cached_answer_bytes": self.answers.bytes,
            "jobs": self.jobs.states(), "job_streams": self._streams.total(),
        }  # fmt: skip

    def add_stream(self, client: str) -> None:
        """Count one more open stream of job events of a client; raise `HttpRefusal` if there are too many."""
        if self._streams[client] >= self.limits.client_streams or self._streams.total() >= self.limits.streams:
            raise HttpRefusal(429, "many-streams", {"Retry-After": "10"})
        self._streams[client] += 1

    def remove_stream(self, client: str) -> None:
        """Count one open stream of job events of a client less."""
        self._streams[client] -= 1
        self._streams += Counter()  # Drops clients without streams from the counter.

    async def ask(self, question: Question, client: str, drawing: bool = False) -> Answer:
        """Return the answer to a question, cached or by a worker (the chart worker if `drawing`), within the client's limits."""
        question = {**question, "stamp": self._data_stamp()}
        key = _key(question)
        if self._waiting[client] >= self.limits.client_waiting:
            headers = {"Retry-After": "2", **self.rate_limit(client)}
            raise HttpRefusal(429, "many-questions", headers, n=self.limits.client_waiting)
        self._waiting[client] += 1
        try:
            if drawing:
                await self._chart_pool_ready()
            pool = self.chart_pool if drawing else self.pool
            return await self.answers.answer(key, lambda: self._compute(pool, question, client))
        except PoolBusy:
            raise HttpRefusal(503, "busy", {"Retry-After": "5"}) from None
        except TimeLimitExceeded:
            raise HttpRefusal(422, "too-long", None, seconds=f"{self.limits.answer_seconds:g}") from None
        except WorkerLost:
            raise HttpRefusal(500, "lost") from None
        finally:
            self._asked_at = time.monotonic()
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]

    async def _compute(self, pool: WorkerPool, question: Question, client: str) -> Answer:
        """Return a worker's answer, and remember how long it took; cheap questions overtake costly ones."""
        key = _key(question)
        try:
            is_costly = client == OWN_CLIENT or self.costs.is_costly(question)
            question_sent = {**question, "nice": COSTLY_NICE} if is_costly else question
            answer = await pool.ask(question_sent, client, is_costly, lambda done: self._progress.update({key: done}))
        except TimeLimitExceeded:
            self.costs.add(question, self.limits.answer_seconds)
            raise
        finally:
            self._progress.pop(key, None)
        if seconds := answer.get("seconds"):
            self.costs.add(question, seconds, is_refusal=answer["status"] != 200)
        return answer

    def _compute_later(self, question: Question) -> None:
        """Compute and cache the answer to a question without waiting for it."""
        key = _key(question)
        if key in self._later:
            return

        async def compute() -> None:
            with contextlib.suppress(HttpRefusal):
                await self.ask(question, OWN_CLIENT)

        task = self._later[key] = asyncio.ensure_future(compute())
        task.add_done_callback(lambda _: self._later.pop(key, None))

    def _cache_warm_answer(self, question: Question, answer: Answer) -> None:
        """Cache the answer to a warm-up question, which a worker computes while it starts."""
        self.answers.put(_key({**question, "stamp": self._first_stamp}), answer)

    async def _until_quiet(self) -> None:
        """Wait until no client has asked a question for QUIET_SECONDS."""
        while self._waiting or time.monotonic() - self._asked_at < QUIET_SECONDS:
            await asyncio.sleep(QUIET_SECONDS / 4)

    async def _chart_pool_ready(self) -> None:
        if self._chart_pool_opening is None:
            self._chart_pool_opening = asyncio.ensure_future(self.chart_pool.open(self._data_stamp()))
        await asyncio.shield(self._chart_pool_opening)

    def _data_stamp(self) -> str:
        """Return a text that changes with the day, the user's price store and measurements, on which answers depend."""
        now = time.monotonic()
        if now - self._stamp[0] >= STAMP_SECONDS:
            self._stamp = (now, data_stamp())
        return self._stamp[1]


def _key(question: Question) -> Hashable:
    return tuple(sorted((name, _frozen(value)) for name, value in question.items()))


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return _key(value)
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
