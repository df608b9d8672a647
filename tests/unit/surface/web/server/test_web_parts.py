"""Parts of the server: answer cache, request queue, the state in an address."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from zlib import decompress

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")

from starlette.requests import Request

from whichgpu.api.request.catalog import GpusRequest
from whichgpu.api.request.field import Field, fields_of
from whichgpu.api.request.kinds import Names, Plain
from whichgpu.api.request.load import FitRequest
from whichgpu.api.request.offers import OffersRequest
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import Flag, Whole
from whichgpu.base.messages import english
from whichgpu.surface.web.command_replies import HttpReply
from whichgpu.surface.web.page import Page, PageContent, View, address, read_state, view_named
from whichgpu.surface.web.responses import answer_response
from whichgpu.surface.web.rest.endpoints import parameter_name
from whichgpu.surface.web.server.cache import AnswerCache
from whichgpu.surface.web.server.pool import WaitingQueue
from whichgpu.surface.web.server.serve import is_loopback
from whichgpu.surface.web.server.worker import encoded

Result = TypeVar("Result")


def finished(work: Coroutine[Any, Any, Result]) -> Result:
    """What it gives, from a loop of its own: browser tests in the same process keep one running in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def answer(size: int = 10, status: int = 200) -> dict[str, Any]:
    return {"status": status, "body": b"x" * size}


def test_concurrent_identical_requests_are_computed_once() -> None:
    async def run() -> tuple[int, int]:
        cache, computed = AnswerCache(1 << 20, 100), 0

        async def compute() -> dict[str, Any]:
            nonlocal computed
            computed += 1
            await asyncio.sleep(0.01)
            return answer()

        await asyncio.gather(*(cache.answer("a", compute) for _ in range(20)))
        await cache.answer("a", compute)
        return computed, len(cache)

    assert finished(run()) == (1, 1)


def test_disconnecting_client_does_not_cancel_for_others_and_the_last_one_does() -> None:
    async def run() -> list[str]:
        cache, events = AnswerCache(1 << 20, 100), []

        async def compute() -> dict[str, Any]:
            try:
                await asyncio.sleep(0.5)  # far longer than the others wait, also on a busy machine
            except asyncio.CancelledError:
                events.append("given up")
                raise
            events.append("computed")
            return answer()

        first, second = (asyncio.ensure_future(cache.answer("a", compute)) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        assert (await second)["status"] == 200
        alone = asyncio.ensure_future(cache.answer("b", compute))
        await asyncio.sleep(0.01)
        alone.cancel()
        late = cache.answer("b", compute)  # requested while the other is being cancelled
        with pytest.raises(asyncio.CancelledError):
            await alone
        assert (await late)["status"] == 200
        return events

    assert finished(run()) == ["computed", "given up", "computed"]


def test_answer_cache_is_bounded_and_stores_no_errors() -> None:
    async def run() -> None:
        cache = AnswerCache(100_000, 50)

        async def ask(key: int, size: int, status: int = 200) -> None:
            async def compute() -> dict[str, Any]:
                return answer(size, status)

            await cache.answer(key, compute)

        for key in range(200):
            await ask(key, 5000)
            assert cache.bytes <= 100_000
        assert cache.get(199) is not None
        assert cache.get(0) is None
        await ask(1000, 90_000)  # larger than one may be
        await ask(1001, 10, 500)
        assert cache.get(1000) is None
        assert cache.get(1001) is None
        for key in range(2000, 2200):
            await ask(key, 1)
        assert len(cache) <= 50

    finished(run())


@pytest.mark.parametrize("accepts", ["gzip", "identity"])
def test_large_answer_is_sent_in_chunks_with_bounded_buffering(accepts: str) -> None:
    plain = b"".join(str(n).encode() for n in range(300_000))
    answer = encoded(HttpReply(200, "application/json", plain))
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [(b"accept-encoding", accepts.encode())],
    }
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    finished(answer_response(Request(scope), answer)(scope, None, send))  # type: ignore[arg-type]
    pieces = [message["body"] for message in sent[1:]]
    body = b"".join(pieces)
    assert (decompress(body, wbits=31) if accepts == "gzip" else body) == plain
    assert (b"content-length", str(len(body)).encode()) in sent[0]["headers"]
    assert max(map(len, pieces)) < 1 << 18
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(pieces) - 1) + [False]


def test_clients_take_turns() -> None:
    async def run() -> list[str]:
        line, order = WaitingQueue(), []
        places = {line.join(client): f"{client}{n}" for n, client in enumerate(["a", "a", "a", "b", "c", "a"])}
        left = next(place for place, name in places.items() if name == "b3")
        left.cancel()
        while (place := line.next()) is not None:
            order.append(places[place])
        assert line.length == 0
        return order

    assert finished(run()) == ["a0", "c4", "a1", "a2", "a5"]


FIELDS = {"name": Field(Names()), "sort": Field(Plain()), "batch": Field(Whole(), "N"), "fused": Field(Flag(), has_negative=True)}
DEFAULTS: dict[str, Any] = {"name": (), "sort": None, "batch": None, "fused": True}
VIEW = View("gpus", (), FIELDS, DEFAULTS, lambda _: PageContent("gpus.html", {}))


@pytest.mark.parametrize(
    "fields", [{}, {"name": ("H100 SXM", "T4")}, {"sort": "-a&b=c"}, {"batch": "3", "fused": False}, {"name": ("ü%",)}]
)
def test_an_address_reads_back_as_the_same_state(fields: dict[str, Any]) -> None:
    state = DEFAULTS | fields
    assert read_state(VIEW, address(VIEW, state).partition("?")[2]) == state


def test_an_address_changed_in_one_thing() -> None:
    page = Page(VIEW, DEFAULTS | {"name": ("T4",), "sort": "name"}, english())
    assert page.url(sort=None) == "/gpus?name=T4"
    assert page.url(batch=2) == "/gpus?name=T4&sort=name&batch=2"
    for query in ("fused=perhaps", "name=%ff"):
        with pytest.raises(UsageError):
            read_state(VIEW, query)
    assert Page(VIEW, read_state(VIEW, "batch=3"), english()).number("batch", 2) == 2
    with pytest.raises(UsageError):
        Page(VIEW, read_state(VIEW, "batch=x"), english()).number("batch", 2)


def test_every_page_takes_the_fields_of_its_request() -> None:
    for name, request in (("recommend", RecommendRequest), ("fit", FitRequest), ("gpus", GpusRequest), ("prices", OffersRequest)):
        parameters = {parameter_name(field) for field in fields_of(request).values() if not field.is_local}
        # Pages always show the nearest measurements, so the switch that asks for them (`evidence`) is no field of a page.
        assert parameters - {"catalog_as_known", "evidence"} <= set(view_named(name).fields)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_addresses_only_this_machine_can_reach(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com", "127.0.0.1.example.com"])
def test_addresses_others_can_reach(host: str) -> None:
    assert not is_loopback(host)
