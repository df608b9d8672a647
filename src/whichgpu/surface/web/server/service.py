"""What stands behind the routes: workers, kept answers, jobs and uploads, and the limits of each client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from starlette.requests import Request

from whichgpu.surface.web.responses import Refusal
from whichgpu.surface.web.server.cache import Answer, Answers
from whichgpu.surface.web.server.jobs import Jobs
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.pool import WORKER, Busy, Lost, Pool, Question, Settings, TooLongForUs
from whichgpu.surface.web.uploads import Uploads
from whichgpu.surface.web.vega_bundle import is_made
from whichgpu.surface.web.views import PAGES


def page_question(name: str, ending: str = "html", query: str = "", lang: str = "en", chart: str = "") -> dict[str, Any]:
    """A page in one of its forms."""
    return {"kind": "page", "name": name, "ending": ending, "query": query, "lang": lang, "chart": chart}


# Asked of every worker before it counts as ready, so that nobody's first question waits for tables to be read.
WARM: tuple[Question, ...] = (
    page_question("recommend"),
    page_question("fit"),
    page_question("gpus"),
)
FIRST_PICTURE = page_question("fit", "svg", chart="memory")  # loads the engine, whose start takes seconds
ARTIST_NICE = 5
QUIET_SECONDS = 2.0
SOONEST = 1.0  # seconds between looks at whether the data changed


class Service:
    """One server's state."""

    def __init__(
        self,
        limits: Limits,
        workers: int | None = None,
        allowed: tuple[str, ...] = (),
        module: str = WORKER,
        warm: tuple[Question, ...] = WARM,
        catalog: str | None = None,
        draws: bool = True,
    ) -> None:
        self.limits, self._draws = limits, draws
        count = workers or max(2, min(8, os.cpu_count() or 2))
        bounds: dict[str, Any] = {
            "address_bytes": limits.worker_address_bytes,
            "allowed": allowed,
            "module": module,
            "catalog": catalog,
        }
        self.pool = Pool(count, Settings(warm, **bounds), limits, self._keep_warm)
        patient = replace(limits, answer_seconds=limits.picture_seconds)
        # It draws: its engine wants much address space, and its making ready is not to slow an answer.
        self.artist = Pool(1, Settings(nice=ARTIST_NICE, allowed=allowed, catalog=catalog), patient)
        self.answers = Answers(limits.cache_bytes, limits.cache_entries)
        self.jobs = Jobs(limits, Settings(nice=10, **bounds))
        self.uploads = Uploads(limits)
        self._waiting: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._stamp = (-SOONEST, "")
        self._asked_at = 0.0
        self._first_stamp = ""
        self._artist_opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the workers; return when one is ready."""
        self._first_stamp = self._data_stamp()
        await self.pool.open(self._first_stamp)

    async def close(self) -> None:
        """End everything."""
        await asyncio.gather(self.jobs.close(), self.pool.close(), self.artist.close())
        self.uploads.close()

    async def prepare(self) -> None:
        """Have every page ready as it is first opened, the script that draws charts, and when nobody asks, our own engine."""
        if not self._draws:
            return
        with contextlib.suppress(Refusal):
            for name in PAGES:
                await self.ask(page_question(name), "")
            await self.ask({"kind": "script"}, "", drawing=not is_made())
            await self._quiet()
            await self.ask(FIRST_PICTURE, "", drawing=True)

    def kept(self, question: Question) -> Answer | None:
        """The answer kept to a question."""
        return self.answers.get(_key({**question, "stamp": self._data_stamp()}))

    def take_stream(self, client: str) -> None:
        """Count one more who follows a job, where that is allowed."""
        if self._streams[client] >= self.limits.client_streams or self._streams.total() >= self.limits.streams:
            raise Refusal(429, "many-streams", {"Retry-After": "10"})
        self._streams[client] += 1

    def give_stream(self, client: str) -> None:
        """One less."""
        self._streams[client] -= 1
        self._streams += Counter()  # forgets those that follow none

    async def ask(self, question: Question, client: str, drawing: bool = False) -> Answer:
        """The kept answer, or a new one within the client's limits."""
        question = {**question, "stamp": self._data_stamp()}
        key = _key(question)
        if self._waiting[client] >= self.limits.client_waiting:
            raise Refusal(429, "many-questions", {"Retry-After": "2"}, n=self.limits.client_waiting)
        self._waiting[client] += 1
        try:
            if drawing:
                await self._artist_ready()
            pool = self.artist if drawing else self.pool
            return await self.answers.answer(key, lambda: pool.ask(question, client))
        except Busy:
            raise Refusal(503, "busy", {"Retry-After": "5"}) from None
        except TooLongForUs:
            raise Refusal(422, "too-long", None, seconds=f"{self.limits.answer_seconds:g}") from None
        except Lost:
            raise Refusal(500, "lost") from None
        finally:
            self._asked_at = time.monotonic()
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]

    def _keep_warm(self, question: Question, answer: Answer) -> None:
        """A page made while a worker was starting need not be made again for the first who opens it."""
        self.answers.keep(_key({**question, "stamp": self._first_stamp}), answer)

    async def _quiet(self) -> None:
        """Wait until nobody has asked for a while."""
        while self._waiting or time.monotonic() - self._asked_at < QUIET_SECONDS:
            await asyncio.sleep(QUIET_SECONDS / 4)

    async def _artist_ready(self) -> None:
        if self._artist_opening is None:
            self._artist_opening = asyncio.ensure_future(self.artist.open(self._data_stamp()))
        await asyncio.shield(self._artist_opening)

    def _data_stamp(self) -> str:
        """Changes with the day and with what the user's own store and measurements hold, on which answers depend."""
        now = time.monotonic()
        if now - self._stamp[0] >= SOONEST:
            self._stamp = (now, _stamp())
        return self._stamp[1]


def client_of(request: Request) -> str:
    """Whom limits count: the address; all of an IPv6 network of one subscriber together."""
    host = request.client.host if request.client else ""
    return ":".join(host.split(":")[:4]) if ":" in host and not host.startswith("::") else host


def _key(question: Question) -> Hashable:
    return tuple(sorted((name, _frozen(value)) for name, value in question.items()))


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return _key(value)
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _stamp() -> str:
    from whichgpu.base.files import user_folder
    from whichgpu.catalog.live.price_store import store_path

    store, own = store_path(), user_folder("XDG_DATA_HOME", ".local/share")
    paths = [store, store.with_name(store.name + "-wal") if store else None, own / "whichgpu" / "records" if own else None]
    return " ".join((date.today().isoformat(), *(_seen(path) for path in paths)))


def _seen(path: Path | None) -> str:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        found = None
    return f"{found.st_mtime_ns}/{found.st_size}" if found else "-"
