"""Worker processes: each answers one question at a time; one that hangs, crashes or grows too large is replaced.

Questions that cannot be answered at once wait in line, clients taking turns, so that one who asks a lot delays mostly itself.

These are not processes of `base/parallel`: there one worker that dies ends the whole pool and none can be killed alone,
while here a worker must be killable at its time limit, bounded in memory, replaced alone and awaited by an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from whichgpu.surface.web.server.frames import TooLong, packed, receive
from whichgpu.surface.web.server.limits import Limits

Question = Mapping[str, Any]
T = TypeVar("T")
KEPT_VARIABLES = ("WHICHGPU_DATA", "WHICHGPU_DEBUG")  # of ours, those that are no options of a command
STARVED_TIMES = 4  # so many times the limit for one that waits for a processor
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
WORKER = "whichgpu.surface.web.server.worker"
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, getattr(signal, "SIGBUS", signal.SIGSEGV))
DEAD_SECONDS = 1.0  # in which a process whose pipe has closed is gone
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Busy(Exception):
    """The line is full, or nobody was free in time."""


class TooLongForUs(Exception):
    """The computation passed its time limit and was stopped."""


class Lost(Exception):
    """The worker died over the question."""


class Ended(Lost):
    """The worker was ended by something outside, whatever the question."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How workers are started: what they are asked before they count as ready, and their bounds."""

    warm: Sequence[Question] = ()
    address_bytes: int | None = None
    nice: int = 0
    module: str = WORKER
    catalog: str | None = None  # the folder of facts, where it is not the bundled one
    allowed: Sequence[str] = ()  # kinds of models beside the harmless ones
    stamp: str | None = None  # of the data at the start


@dataclass(frozen=True, slots=True)
class Processor:
    """Time a process was given, and whether it waits for more."""

    seconds: float
    wanted: bool


class Worker:
    """One process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process, most: int) -> None:
        self.process = process
        self.answers = 0
        self.bytes = 0
        self.warmed: list[dict[str, Any]] = []  # its answers to what it was asked before it counted as ready
        self._most = most

    @classmethod
    async def start(cls, settings: Settings, most: int) -> Worker:
        """A process that has said it is ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", settings.module,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=_environment(), limit=1 << 20,
            process_group=0,  # Ctrl-C is sent to a whole group, and is the server's to handle
        )  # fmt: skip
        worker = cls(process, most)
        try:
            await worker._send(asdict(settings))
            worker.warmed = (await worker._receive(None)).get("answers", [])
        except BaseException:
            worker.kill()
            await asyncio.shield(process.wait())
            raise
        return worker

    async def ask(self, question: Question, progress: Callable[[float], None] | None = None) -> dict[str, Any]:
        """The answer; whoever gives up waiting must kill the worker."""
        await self._send(question)
        reply = await self._receive(progress)
        self.answers += 1
        self.bytes = reply["bytes"]
        answer: dict[str, Any] = reply["answer"]
        return answer

    def processor(self) -> Processor:
        """Processor time it has had, and whether it wants more now; nothing where the system does not say."""
        try:
            with open(f"/proc/{self.process.pid}/stat") as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            return Processor(0.0, False)
        return Processor((int(words[11]) + int(words[12])) / TICKS, words[0] == "R")

    def is_alive(self) -> bool:
        """Whether it can still answer, asked of the system: word of a death comes to us a moment later."""
        if self.process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):
            return True
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    async def was_ended(self) -> bool:
        """Whether something outside ended it (a person, the system short of memory) rather than what it was asked."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), DEAD_SECONDS)
        code = self.process.returncode
        return code is not None and code < 0 and -code not in CRASHES

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _send(self, value: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(packed(value))
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError) as problem:
            raise Lost from problem

    async def _receive(self, progress: Callable[[float], None] | None) -> dict[str, Any]:
        assert self.process.stdout is not None
        while True:
            try:
                reply: dict[str, Any] = await receive(self.process.stdout, self._most)
            except (asyncio.IncompleteReadError, ConnectionError, TooLong) as problem:
                raise Lost from problem
            if "progress" not in reply:
                return reply
            if progress is not None:
                progress(reply["progress"])


class Line:
    """Those who wait for a worker, by client; each client's turn comes round."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[str, deque[asyncio.Future[Worker]]] = OrderedDict()
        self.length = 0

    def join(self, client: str) -> asyncio.Future[Worker]:
        """A place at the end of one's own queue."""
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._by_client.setdefault(client, deque()).append(future)
        self.length += 1
        return future

    def next(self) -> asyncio.Future[Worker] | None:
        """Whose turn it is; those who left are passed over."""
        while self._by_client:
            client, queue = self._by_client.popitem(last=False)
            future = queue.popleft()
            self.length -= 1
            if queue:
                self._by_client[client] = queue
            if not future.done():
                return future
        return None


class Pool:
    """So many workers, kept alive."""

    def __init__(
        self,
        count: int,
        settings: Settings,
        limits: Limits,
        warmed: Callable[[Question, dict[str, Any]], None] = lambda *_: None,
    ) -> None:
        self._count, self._settings, self._limits = count, settings, limits
        self.warmed = warmed  # told what a worker answered before it counted as ready
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._line = Line()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.replaced = 0

    async def open(self, stamp: str | None = None) -> None:
        """Start all; return when the first is ready."""
        if self._closed:
            return
        self._settings = replace(self._settings, stamp=stamp)
        for _ in range(self._count):
            self._start()
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """End all."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for worker in self._all:
            worker.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.process.wait() for worker in self._all), return_exceptions=True)

    async def ask(self, question: Question, client: str = "") -> dict[str, Any]:
        """An answer of the next free worker, within the time limit; of another one, where the first was ended from outside."""
        worker = await self._free(client)
        try:
            return await asyncio.shield(self._task(self._asked(worker, question)))
        except Ended:  # a question changes nothing, so that it may be asked again
            worker = await self._free(client)
            return await asyncio.shield(self._task(self._asked(worker, question)))

    async def _asked(self, worker: Worker, question: Question) -> dict[str, Any]:
        try:
            answer = await self._in_time(worker, question)
        except Lost as lost:
            try:
                ended = await worker.was_ended()
            finally:
                self._replace(worker)
            raise (Ended if ended else Lost) from lost
        except BaseException:
            self._replace(worker)
            raise
        if worker.bytes > self._limits.worker_bytes or worker.answers >= self._limits.worker_answers:
            self._replace(worker)
        else:
            self._give(worker)
        return answer

    async def _in_time(self, worker: Worker, question: Question) -> dict[str, Any]:
        """The answer within the limit; a worker that wants to compute and is given no processor has more time."""
        asking = asyncio.ensure_future(worker.ask(question))
        limit, before = self._limits.answer_seconds, worker.processor()
        try:
            for _ in range(STARVED_TIMES):
                await asyncio.wait((asking,), timeout=limit)
                after = worker.processor()
                if asking.done() or not after.wanted or after.seconds - before.seconds > limit / 2:
                    break
        finally:
            if not asking.done():
                asking.cancel()
        if asking.cancelled() or not asking.done():
            raise TooLongForUs
        return asking.result()

    async def _free(self, client: str) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive():
                return worker
            self._replace(worker)  # died while idle
        if self._line.length >= self._limits.waiting:
            raise Busy
        future = self._line.join(client)
        try:
            return await asyncio.wait_for(future, self._limits.queue_seconds)
        except TimeoutError:
            raise Busy from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give(future.result())
            raise

    def _give(self, worker: Worker) -> None:
        waiting = self._line.next()
        if waiting is not None:
            waiting.set_result(worker)
        else:
            self._idle.append(worker)

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        self.replaced += 1
        self._task(self._buried(worker))
        self._start(replace(self._settings, warm=()))  # others answer meanwhile; soon is better than warm

    async def _buried(self, worker: Worker) -> None:
        await worker.process.wait()
        self._all.discard(worker)

    def _start(self, settings: Settings | None = None) -> None:
        if self._closed:
            return
        self._task(self._started(settings or self._settings))

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that goes on whoever leaves, and that is known until it is done."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _started(self, settings: Settings) -> None:
        wait = 0.2
        while not self._closed:
            try:
                worker = await Worker.start(settings, self._limits.answer_bytes)
            except (Lost, OSError):  # no memory, no process to be had: try again, ever more slowly
                await asyncio.sleep(wait)
                wait = min(wait * 2, 30.0)
                continue
            self._all.add(worker)
            for question, answer in zip(settings.warm, worker.warmed, strict=False):
                self.warmed(question, answer)
            worker.warmed = []
            self._give(worker)
            return


def _environment() -> dict[str, str]:
    """Ours, without settings of the command line: an address means the same on every server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WHICHGPU_") or name in KEPT_VARIABLES}
    path = os.pathsep.join(part for part in sys.path if part)
    return {**kept, **ONE_THREAD, "PYTHONPATH": path}
