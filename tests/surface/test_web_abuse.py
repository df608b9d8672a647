"""What is done to the server on purpose or by accident leaves it answering others."""

from __future__ import annotations

import gzip
import json
import os
import resource
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.surface.web import SMALL, Server, serving

REQUESTS = 2000
MILLION = 1_000_000
POST = b"POST /api/v1/fit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def closed(bare: socket.socket, within: float) -> bool:
    """Whether the other side hangs up in time."""
    bare.settimeout(within)
    try:
        while bare.recv(65536):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_field_of_a_million_characters(small: Server) -> None:
    long = "x" * MILLION
    assert small.get(f"/api/v1/gpus?name={long}").status == 400
    assert small.get("/gpus", cookie=long).status == 400
    assert small.get(f"/{long}").status == 400
    posted = small.post("/api/v1/fit", {"model": long})
    assert (posted.status, posted.error["kind"]) == (400, "bad-field")
    nested = small.get(
        "/api/v1/fit", "POST", b'{"model":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, content_type="application/json"
    )
    assert nested.status == 400
    numbers = small.get(
        "/api/v1/fit", "POST", b'{"model":"bert-large","batch":' + b"9" * 500_000 + b"}", content_type="application/json"
    )
    assert numbers.status == 400
    assert small.post("/api/v1/fit", {"model": "bert-large", "gpu": ["T4"] * 50_000}).status in (200, 400, 422)
    small.answers_others()


def test_bodies_too_large_or_packed_are_refused_unread(small: Server) -> None:
    bomb = gzip.compress(b"0" * (100 << 20))
    packed = small.get("/api/v1/fit", "POST", bomb, content_type="application/json", content_encoding="gzip")
    assert (packed.status, packed.error["kind"]) == (415, "encoding")
    with small.connect() as bare:
        bare.sendall(POST + b"Content-Length: 99999999999\r\n\r\n")
        assert b" 413 " in bare.recv(200)
    with small.connect() as bare:
        bare.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        try:
            for _ in range(100):
                bare.sendall(chunk)
        except OSError:
            pass  # it hung up on us, as it should
        else:
            assert b" 413 " in bare.recv(200)
    small.answers_others()


def test_a_body_with_two_lengths_is_refused_and_nothing_after_it_is_read(small: Server) -> None:
    after = b"GET /api/v1/gpus?name=T4 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b'14\r\n{"model":"bert-base"}\r\n0\r\n\r\n'
    with small.connect() as bare:
        bare.sendall(POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + body + after)
        bare.settimeout(5)
        reply = b"".join(iter(lambda: bare.recv(65536), b""))  # until it hangs up
    assert reply.startswith(b"HTTP/1.1 400")
    assert reply.count(b"HTTP/1.1 ") == 1
    small.answers_others()


def test_a_slow_sender_is_hung_up_on(small: Server) -> None:
    with ExitStack() as stack:
        heads = [stack.enter_context(small.connect()) for _ in range(50)]
        for bare in heads:
            bare.sendall(b"GET /gpus HTTP/1.1\r\nHost: loc")
        body = stack.enter_context(small.connect())
        body.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        silent = stack.enter_context(small.connect())
        second = stack.enter_context(small.connect())
        second.sendall(b"GET /api/v1/gpus?name=T4 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.5)
        second.sendall(b"GET /g")  # a second head, begun and never ended
        for _ in range(4):  # a drop now and then buys no time
            for bare in heads:
                with suppress(OSError):
                    bare.sendall(b"a")
            time.sleep(0.3)
        small.answers_others()
        assert all(closed(bare, 5) for bare in (*heads, silent, second))
        body.settimeout(5)
        assert b" 408 " in body.recv(200)


@pytest.mark.long
def test_a_slow_reader_is_hung_up_on(small: Server) -> None:
    small.get("/api/v1/gpus")
    with ExitStack() as stack:
        readers = []
        for _ in range(20):
            bare = socket.socket()
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stack.enter_context(bare)
            bare.connect(("127.0.0.1", small.port))
            bare.sendall(b"GET /api/v1/gpus HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            readers.append(bare)
        small.answers_others()
        time.sleep(4)  # more than it waits for a reader
        small.answers_others()
        for bare in readers:
            got = 0
            bare.settimeout(5)
            try:
                while part := bare.recv(1 << 20):
                    got += len(part)
            except OSError:
                pass
            assert got < 3_000_000  # 20 answers of 800 kB were requested


def _hold(server: Server, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip(f"the system gives a process only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    with ExitStack() as stack:
        for number in range(count):
            bare = stack.enter_context(socket.socket())
            bare.setblocking(False)
            bare.connect_ex(("127.0.0.1", server.port))
            if number % 500 == 499:
                server.answers_others()
        server.answers_others()


def test_thousands_of_open_connections(server: Server) -> None:
    _hold(server, REQUESTS)
    server.answers_others()


@pytest.mark.long
def test_ten_thousand_open_connections(server: Server) -> None:
    _hold(server, 10_000)
    server.answers_others()


def test_the_connection_idle_longest_makes_room_for_a_new_one(tmp_path: Path) -> None:
    with serving(tmp_path, "workers=1", "connections=64", "head_seconds=60", script=SMALL) as running, ExitStack() as stack:
        connections = [stack.enter_context(running.connect()) for _ in range(100)]
        running.answers_others()
        assert all(closed(bare, 5) for bare in connections[:30])
        assert not closed(connections[-1], 0.2)


@pytest.mark.parametrize(("name", "status"), [("spin", 422), ("die", 500)])
def test_a_question_that_hangs_or_kills_its_worker_costs_only_itself(small: Server, name: str, status: int) -> None:
    before = set(small.workers())
    replies = []
    asking = threading.Thread(target=lambda: replies.append(small.get(f"/api/v1/gpus?name={name}")))
    asking.start()
    for _ in range(3):
        small.answers_others(within=3)
        time.sleep(0.3)
    asking.join(20)
    assert replies[0].status == status, replies[0].text
    assert replies[0].error["kind"] == ("too-long" if status == 422 else "lost")
    small.answers_others()
    end = time.monotonic() + 20
    while len(small.workers()) < len(before) and time.monotonic() < end:
        time.sleep(0.2)
    after = set(small.workers())
    assert len(after) >= 2
    assert after != before  # the culprit was replaced


def test_a_question_that_eats_memory_is_stopped(small: Server) -> None:
    reply = small.get("/api/v1/gpus?name=eat")
    assert reply.status == 500
    small.answers_others()


def test_library_output_does_not_corrupt_replies(small: Server) -> None:
    assert small.get("/api/v1/gpus?name=noise").error["kind"] == "unknown-gpu"
    small.answers_others()


@pytest.mark.long
def test_all_workers_busy_means_waiting_not_failing(small: Server) -> None:
    replies: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: replies.append(small.get(f"/api/v1/gpus?name=slow{n}").status)) for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [400] * 5


@pytest.mark.long
def test_waiting_requests_per_client_are_limited(small: Server) -> None:
    replies: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: replies.append(small.get(f"/api/v1/gpus?name=slow-{n}").status)) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(replies)) == [400, 429]
    assert replies.count(429) == 6
    small.answers_others()


def test_abandoned_requests_leave_the_queue(small: Server) -> None:
    for n in range(30):
        with small.connect() as bare:
            bare.sendall(f"GET /api/v1/gpus?name=slow--{n} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            time.sleep(0.01)
    start = time.monotonic()
    small.answers_others(within=4)  # two may have started, the rest were cancelled
    assert time.monotonic() - start < 4


@pytest.mark.long
def test_no_request_leaves_its_mark_in_memory(small: Server) -> None:
    def resident() -> int:
        with open(f"/proc/{small.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("this system does not tell a process's memory")
    for n in range(50):
        small.get(f"/api/v1/engines?limit=10&offset={n}")
    before = resident()
    for n in range(200):
        small.get(f"/api/v1/engines?limit={n % 10 + 1}&offset={n}")
    assert resident() - before < 8 << 20  # the cache of this server is bounded at 1 MiB


def test_invalid_http_gets_the_standard_error_document(small: Server) -> None:
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"\x00" * 100_000,
        b"GET /" + b"a" * 40_000,
        b"GET /api/v1 HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 40_000,
        b"GET /api/v1 HTTP/1.1\r\nHost: localhost" + b"\r\nX: a" * 20_000,
        POST + b"Transfer-Encoding: chunked\r\n\r\nnot a length",
    ):
        with small.connect() as bare:
            bare.sendall(garbage + b"\r\n\r\n")
            bare.settimeout(5)
            reply = b"".join(iter(lambda: bare.recv(65536), b""))  # until it hangs up
        assert reply.startswith(b"HTTP/1.1 400"), garbage[:20]
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["kind"] == "bad-http"
    small.answers_others()
