"""Worker processes: each answers one question at a time; one that hangs, crashes or grows too large is replaced.

Queued questions are taken from clients in turn, so that a client with many questions delays mostly itself. Cheap questions
overtake costly ones, and one worker is kept free of costly ones, so that a cheap question waits for another cheap one at most.

`base/parallel` cannot serve here: one dead worker ends its whole pool, while these must be killable at a time limit, bounded in
memory, replaced one by one and awaited by an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from whichgpu.surface.web.server.frames import FrameTooLong, Question, pack_frame, receive_frame
from whichgpu.surface.web.server.limits import Limits

T = TypeVar("T")
Progress = Callable[[float], None]  # Takes the share of the work that is done.
KEPT_VARIABLES = ("WHICHGPU_DATA", "WHICHGPU_DEBUG")  # Variables that workers inherit: they set no option of a command.
# Variables that workers never inherit: a client's `hf:` model is fetched without the operator's access to private ones.
SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
WORKER = "whichgpu.surface.web.server.worker"
CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, getattr(signal, "SIGBUS", signal.SIGSEGV))
EXIT_SECONDS = 1.0  # Seconds within which a process whose pipe has closed exits (assumed).
MAX_OVERTAKING = 8  # Cheap questions that get a worker before a costly one that waits (assumed).
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class PoolBusy(Exception):
    """Raised if too many questions wait for a worker, or no worker became free in time."""


class TimeLimitExceeded(Exception):
    """Raised if a computation exceeded its time limit and was stopped."""


class WorkerLost(Exception):
    """Raised if a worker process died while it computed an answer."""


class WorkerKilled(WorkerLost):
    """Raised if a worker was killed from outside (for lack of memory, say) and not because of its question."""


class WorkerSettings(msgspec.Struct, frozen=True):
    """Settings of worker processes: warm-up questions (`warm`), limits, catalog and permitted models."""

    warm: Sequence[Question] = ()
    address_bytes: int | None = None
    nice: int = 0
    module: str = WORKER
    catalog: str | None = None  # folder of the catalog; None for the bundled one
    allowed: Sequence[str] = ()  # models that clients may name in addition to built-in ones
    stamp: str | None = None  # version stamp of the data when the worker starts


class Worker:
    """One worker process, and the pipes to and from it."""

    def __init__(self, process: asyncio.subprocess.Process, max_bytes: int) -> None:
        self.process = process
        self.answers = 0
        self.bytes = 0
        self.warm_answers: list[dict[str, Any]] = []  # Answers to the warm-up questions, which a worker gets before it is ready.
        self._max_bytes = max_bytes

    @classmethod
    async def start(cls, settings: WorkerSettings, max_bytes: int) -> Worker:
        """Start a worker process and wait until it is ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", settings.module,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=_environment(), limit=1 << 20,
            process_group=0,  # Ctrl-C is sent to a whole process group, and only the server handles it.
        )  # fmt: skip
        worker = cls(process, max_bytes)
        try:
            await worker._send(asdict(settings))
            worker.warm_answers = (await worker._receive(None)).get("answers", [])
        except BaseException:
            worker.kill()
            await asyncio.shield(process.wait())
            raise
        return worker

    async def ask(self, question: Question, progress: Progress | None = None) -> dict[str, Any]:
        """Return the worker's answer; a caller that stops waiting must kill the worker."""
        await self._send(question)
        reply = await self._receive(progress)
        self.answers += 1
        self.bytes = reply["bytes"]
        return dict(reply["answer"])

    def is_alive(self) -> bool:
        """Whether the worker process is alive by the system's account, since asyncio learns of its death later."""
        if self.process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):
            return True
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    async def was_killed(self) -> bool:
        """Whether the worker was killed from outside (by a person, or for lack of memory) rather than by its question."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), EXIT_SECONDS)
        code = self.process.returncode
        return code is not None and code < 0 and -code not in CRASH_SIGNALS

    def kill(self) -> None:
        """Kill the worker immediately."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _send(self, value: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(pack_frame(value))
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError) as problem:
            raise WorkerLost from problem

    async def _receive(self, progress: Progress | None) -> dict[str, Any]:
        assert self.process.stdout is not None
        while True:
            try:
                reply: dict[str, Any] = await receive_frame(self.process.stdout, self._max_bytes)
            except (asyncio.IncompleteReadError, ConnectionError, FrameTooLong) as problem:
                raise WorkerLost from problem
            if "progress" not in reply:
                return reply
            if progress is not None:
                progress(reply["progress"])


class WaitingQueue:
    """Requests waiting for a worker, taken from clients in turn."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[str, deque[asyncio.Future[Worker]]] = OrderedDict()
        self.length = 0

    def join(self, client: str) -> asyncio.Future[Worker]:
        """Add a request to the end of a client's own queue; return a future for the worker that it will get."""
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._by_client.setdefault(client, deque()).append(future)
        self.length += 1
        return future

    def next(self) -> asyncio.Future[Worker] | None:
        """Return the next future in the queue that is still waited for, or None."""
        while self._by_client:
            client, queue = self._by_client.popitem(last=False)
            future = queue.popleft()
            self.length -= 1
            if queue:
                self._by_client[client] = queue
            if not future.done():
                return future
        return None


class WaitingQueues:
    """Cheap and costly questions that wait for a worker, and how many costly ones are being answered."""

    def __init__(self, workers: int) -> None:
        self.cheap, self.costly = WaitingQueue(), WaitingQueue()
        self.running = 0  # costly questions that have a worker
        self._workers, self.ready = workers, workers  # workers of the pool, and those that are alive now
        self._overtaken = 0

    @property
    def length(self) -> int:
        """Return the number of questions that wait."""
        return self.cheap.length + self.costly.length

    def may_run(self, costly: bool) -> bool:
        """Whether a question of this kind may have a worker that is free: a costly one only if another worker is left."""
        return not costly or self.running < (self.ready - 1 if self._workers > 1 else 1)

    def next(self) -> asyncio.Future[Worker] | None:
        """Return the next future to get a worker, or None: cheap ones first, but every few answers a costly one."""
        is_turn = self._overtaken >= MAX_OVERTAKING
        for is_costly in (True, False) if is_turn else (False, True):
            if not self.may_run(is_costly):
                continue
            future = (self.costly if is_costly else self.cheap).next()
            if future is not None:
                self._overtaken = 0 if is_costly else self._overtaken + bool(self.costly.length)
                self.running += is_costly
                return future
        return None


class WorkerPool:
    """A fixed number of worker processes that answer questions of web clients, replaced when they die."""

    def __init__(
        self,
        count: int,
        settings: WorkerSettings,
        limits: Limits,
        on_warm_answer: Callable[[Question, dict[str, Any]], None] = lambda *_: None,
    ) -> None:
        self._count, self._settings, self._limits = count, settings, limits
        self._on_warm_answer = on_warm_answer
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._queue = WaitingQueues(count)
        self._queue.ready = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.replaced = 0

    async def open(self, stamp: str | None = None) -> None:
        """Start all worker processes; return when the first is ready. `stamp` is the version of the data they load."""
        if self._closed:
            return
        self._settings = replace(self._settings, stamp=stamp)
        for _ in range(self._count):
            self._start()
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    @property
    def alive(self) -> int:
        """Return the number of worker processes that are ready or answer a question."""
        return sum(worker.is_alive() for worker in self._all)

    @property
    def waiting(self) -> int:
        """Return the number of questions that wait for a worker."""
        return self._queue.length

    @property
    def resident_bytes(self) -> int:
        """Return the memory of all worker processes in bytes, each as of its last answer."""
        return sum(worker.bytes for worker in self._all)

    async def close(self) -> None:
        """Kill all worker processes of the pool."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for worker in self._all:
            worker.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.process.wait() for worker in self._all), return_exceptions=True)

    async def ask(
        self, question: Question, client: str = "", costly: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Return the answer of the next free worker within the time limit; repeated if that worker was killed from outside.

        `progress` gets the shares of the work that the worker reports as done.
        """
        worker = await self._free_worker(client, costly)
        try:
            return await asyncio.shield(self._task(self._answer(worker, question, costly, progress)))
        except WorkerKilled:  # Answering has no side effects, so the question may be asked again.
            worker = await self._free_worker(client, costly)
            return await asyncio.shield(self._task(self._answer(worker, question, costly, progress)))

    async def _answer(self, worker: Worker, question: Question, costly: bool, progress: Progress | None) -> dict[str, Any]:
        try:
            answer = await self._answer_in_time(worker, question, progress)
        except WorkerLost as lost:
            self._queue.running -= costly
            try:
                was_killed = await worker.was_killed()
            finally:
                self._replace(worker)
            raise (WorkerKilled if was_killed else WorkerLost) from lost
        except BaseException:
            self._queue.running -= costly
            self._replace(worker)
            raise
        self._queue.running -= costly
        if worker.bytes > self._limits.worker_bytes or worker.answers >= self._limits.worker_answers:
            self._replace(worker)
        else:
            self._release(worker)
        return answer

    async def _answer_in_time(self, worker: Worker, question: Question, progress: Progress | None) -> dict[str, Any]:
        """Return the answer; raise `TimeLimitExceeded` after the time limit, also on a busy machine."""
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                return await worker.ask(question, progress)
        except TimeoutError:
            raise TimeLimitExceeded from None

    async def _free_worker(self, client: str, costly: bool) -> Worker:
        while self._idle and self._queue.may_run(costly):
            worker = self._idle.pop()
            if worker.is_alive():
                self._queue.running += costly
                return worker
            self._replace(worker)  # The worker died while it was idle.
        limits = self._limits
        if self._queue.length >= limits.waiting:
            raise PoolBusy
        future = (self._queue.costly if costly else self._queue.cheap).join(client)
        try:
            return await asyncio.wait_for(future, limits.costly_queue_seconds if costly else limits.queue_seconds)
        except TimeoutError:
            raise PoolBusy from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._queue.running -= costly
                self._release(future.result())
            raise

    def _release(self, worker: Worker) -> None:
        """Give a free worker to the next question that may have one; others may then have those that are idle."""
        self._idle.append(worker)
        while self._idle and (waiting := self._queue.next()) is not None:
            waiting.set_result(self._idle.pop())

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        self._queue.ready -= 1
        self.replaced += 1
        self._task(self._forget(worker))
        self._start(replace(self._settings, warm=()))  # A worker without warm-up questions is ready sooner.

    async def _forget(self, worker: Worker) -> None:
        await worker.process.wait()
        self._all.discard(worker)

    def _start(self, settings: WorkerSettings | None = None) -> None:
        if self._closed:
            return
        self._task(self._start_worker(settings or self._settings))

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that continues if its caller is cancelled, and is referenced until it is done."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _start_worker(self, settings: WorkerSettings) -> None:
        wait = 0.2
        while not self._closed:
            try:
                worker = await Worker.start(settings, self._limits.answer_bytes)
            except (WorkerLost, OSError):  # Memory or processes are exhausted: retry with growing delay.
                await asyncio.sleep(wait)
                wait = min(wait * 2, 30.0)
                continue
            self._all.add(worker)
            self._queue.ready += 1
            for question, answer in zip(settings.warm, worker.warm_answers, strict=False):
                self._on_warm_answer(question, answer)
            worker.warm_answers = []
            self._release(worker)
            return


def _environment() -> dict[str, str]:
    """Return the workers' environment variables, without settings of the command line, so that a URL has one meaning."""
    dropped = {name for name in os.environ if name.startswith("WHICHGPU_")} - {*KEPT_VARIABLES} | {*SECRET_VARIABLES}
    variables = {name: value for name, value in os.environ.items() if name not in dropped}
    path = os.pathsep.join(part for part in sys.path if part)
    # Hugging Face's own cache may contain private models of the operator, so workers look into none.
    return {**variables, **ONE_THREAD, "PYTHONPATH": path, "HF_HUB_CACHE": os.devnull}
