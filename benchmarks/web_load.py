"""The server under load: 50 clients drawing from 200 different questions, the cost of a new question, memory.

    python -m benchmarks.web_load [REQUESTS]
    python -m benchmarks.web_load mixed [REQUESTS]

starts a server on this machine, asks every question once (empty caches), then REQUESTS times (20,000) at random, a tenth of
them new, and prints the clients' latencies. `mixed` asks cheap questions (memory, speed, prices, specs, pages; half of them new
listings) while others compute the most costly ones: a tenth of the REQUESTS (400) are new fleet plans.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.start import Result, table

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, QUESTIONS, REQUESTS = 50, 200, 20_000
P99_SECONDS, RECOMMENDATION_SECONDS, GROWTH = 2.0, 0.15, 1.1
CHEAP_P99_SECONDS = 1.0
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "bert-large", "resnet50", "mixtral-8x7b", "qwen2.5-7b", "gpt2")
GPUS = ("H100 SXM", "A100-SXM-80GB", "L4", "T4", "RTX 4090", "A10G", "V100-SXM-16GB", "H200 SXM")


def questions(seed: int = 0) -> list[str]:
    """Different addresses from a seed: half recommendations, the rest memory, speed, prices, specs and pages."""
    draw = random.Random(seed)
    addresses: dict[str, None] = {}
    while len(addresses) < QUESTIONS:
        addresses.setdefault(_recommendation(draw) if len(addresses) % 2 else _other(draw))
    return list(addresses)


def _recommendation(draw: random.Random) -> str:
    task = draw.choice(("serve", "serve", "train", "finetune", "batch"))
    model = draw.choice(MODELS[:6] if task != "serve" else ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "mixtral-8x7b"))
    fields = {"task": task, "model": model}
    if task == "serve":
        fields |= {"rate": f"{draw.choice((0.5, 1, 2, 5, 10))}/s", "seq_in": str(draw.choice((200, 500, 1000, 2000)))}
    elif task == "finetune":
        fields |= {"lora_rank": str(draw.choice((8, 16, 64)))}
    fields |= draw.choice(({}, {"rank": "time"}, {"rank": "value"}, {"provider": "aws"}, {"provider": "gcp"}, {"gpus": "1..4"}))
    return "/api/v1/recommend?" + urlencode(fields)


def _other(draw: random.Random) -> str:
    kind = draw.randrange(5)
    gpu, model, batch = draw.choice(GPUS), draw.choice(MODELS[:4]), draw.choice((1, 2, 4, 8, 16, 32))
    if kind == 0:
        return "/api/v1/fit?" + urlencode({"model": model, "gpu": gpu, "batch": batch})
    if kind == 1:
        return "/api/v1/estimate?" + urlencode({"task": "forward", "model": model, "gpu": gpu, "batch": batch})
    if kind == 2:
        return "/api/v1/offers?" + urlencode(
            {"gpu": gpu, "limit": draw.choice((10, 20, 50)), "currency": draw.choice(("USD", "EUR"))}
        )
    if kind == 3:
        return "/gpus?" + urlencode({"name": gpu})
    return "/api/v1/gpus?" + urlencode({"limit": draw.randrange(1, 60)})


def new_question(number: int) -> str:
    """An address that no request had before."""
    return f"/api/v1/engines?limit={number % 9 + 1}&offset={number}"


class Client:
    """One connection kept open, one request at a time, with the seconds and failures of its requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seconds: list[float] = []
        self.failed: list[str] = []

    async def ask(self, addresses: Iterator[str]) -> None:
        """Request all addresses, one after the other."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for address in addresses:
            start = time.perf_counter()
            writer.write(f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(head.partition("content-length:")[2].split("\r\n")[0]))
            self.seconds.append(time.perf_counter() - start)
            if int(head.split(" ")[1]) >= 500 or " 429 " in head[:20]:
                self.failed.append(f"{head.splitlines()[0]} {address}")
        writer.close()


async def load(port: int, addresses: Sequence[str]) -> tuple[list[float], list[str], float]:
    """Seconds of every request, failures, and the wall time of all, with all clients drawing from one list."""
    left = iter(addresses)
    clients = [Client(port) for _ in range(CLIENTS)]
    start = time.perf_counter()
    await asyncio.gather(*(client.ask(left) for client in clients))
    wall = time.perf_counter() - start
    seconds = sorted(second for client in clients for second in client.seconds)
    return seconds, [line for client in clients for line in client.failed], wall


@contextlib.contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """A new server: its process and port."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "whichgpu", "web", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if "127.0.0.1" in line)
            yield process.pid, int(line.partition("127.0.0.1:")[2].partition("/")[0])
        finally:
            process.terminate()


def resident(pid: int) -> int:
    """Bytes of memory of a process and its children."""
    listed = subprocess.run(
        ["ps", "-o", "rss=", "--pid", str(pid), "--ppid", str(pid)], capture_output=True, text=True, check=True
    )
    return sum(int(word) for word in listed.stdout.split()) * 1024


def processor_seconds(runs: int = 24) -> tuple[float, float, float]:
    """Processor time of a new recommendation in a warm process: median, best, worst."""
    from whichgpu.base.messages import english
    from whichgpu.surface.web.worker_answers import rest

    addresses = [address.partition("?")[2] for address in questions() if "/recommend" in address]
    for query in addresses[:6]:
        rest({"endpoint": "recommend", "query": query}, english(), None)
    seconds = []
    for query in addresses[6 : 6 + runs]:
        start = time.process_time()
        rest({"endpoint": "recommend", "query": query}, english(), None)
        seconds.append(time.process_time() - start)
    seconds.sort()
    return seconds[len(seconds) // 2], seconds[0], seconds[-1]


def results(requests: int = 2000) -> Iterator[Result]:
    """Each figure against its goal."""
    median, best, worst = processor_seconds()
    yield Result("one uncached recommendation, processor", median, best, RECOMMENDATION_SECONDS)
    print(f"# the slowest of them: {worst * 1000:.0f} ms", flush=True)
    addresses, draw = questions(), random.Random(1)
    with serving() as (pid, port):
        seconds, failed, wall = asyncio.run(load(port, addresses))
        _report("first request of each question", seconds, failed, wall)
        sizes = [resident(pid)]
        each = max(requests // 4, 1)
        for part in range(4):
            drawn = [draw.choice(addresses) for _ in range(each)]
            drawn[::10] = [new_question(part * each + n) for n in range(len(drawn[::10]))]
            seconds, failed, wall = asyncio.run(load(port, drawn))
            sizes.append(resident(pid))
            _report(f"requests {part * each + 1} to {(part + 1) * each}", seconds, failed, wall)
            if failed:
                raise SystemExit("\n".join(failed[:10]))
            yield Result(f"{CLIENTS} clients, {QUESTIONS} questions, p99", _at(seconds, 0.99), _at(seconds, 0.5), P99_SECONDS)
        print("# memory of all processes: " + ", ".join(f"{size >> 20} MiB" for size in sizes), flush=True)
        yield Result("memory after all / after a quarter", sizes[-1] / sizes[1] / 1000, 1 / 1000, GROWTH / 1000, "times")


def mixed_results(requests: int = 400) -> Iterator[Result]:
    """Latency of cheap questions of all kinds while a tenth of all questions are new fleet plans, from clients of their own."""
    costly = [f"/api/v1/plan?what=llama-3.1-8b&tpot_max=50ms&rate={n / 10 + 1}/s" for n in range(requests // 10)]
    draw = random.Random(2)
    cheap = [_other(draw) if n % 2 else new_question(n) for n in range(requests - len(costly))]

    async def both(port: int) -> tuple[list[float], list[float], list[str]]:
        left, others = iter(costly), iter(cheap)
        planners, readers = [Client(port) for _ in range(CLIENTS // 5)], [Client(port) for _ in range(CLIENTS)]
        await asyncio.gather(*(client.ask(left) for client in planners), *(client.ask(others) for client in readers))
        times = [sorted(second for client in group for second in client.seconds) for group in (readers, planners)]
        return times[0], times[1], [line for client in (*readers, *planners) for line in client.failed]

    with serving() as (_, port):
        asyncio.run(load(port, [new_question(10**6)]))
        start = time.perf_counter()
        quick, slow, failed = asyncio.run(both(port))
        _report("cheap questions", quick, failed, time.perf_counter() - start)
        _report("fleet plans", slow, failed, time.perf_counter() - start)
    if failed:
        raise SystemExit("\n".join(failed[:10]))
    yield Result("cheap questions among costly ones, p99", _at(quick, 0.99), _at(quick, 0.5), CHEAP_P99_SECONDS)


def _report(what: str, seconds: list[float], failed: list[str], wall: float) -> None:
    at = ", ".join(f"p{share * 100:g} {_at(seconds, share) * 1000:.0f} ms" for share in (0.5, 0.95, 0.99, 1))
    print(f"# {what}: {len(seconds)} in {wall:.1f} s, {at}, {len(failed)} failed", flush=True)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


if __name__ == "__main__":
    words = sys.argv[1:]
    is_mixed = words[:1] == ["mixed"]
    numbers = [int(word) for word in words[is_mixed:]]
    sys.exit(table(mixed_results(*numbers) if is_mixed else results(*(numbers or [REQUESTS]))))
