"""The client: what it tries again, what it refuses, and what it never sends to others."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.live.server import Answer, ReceivedRequest, Server, busy_then, conditional
from whichgpu.base.errors import DataError
from whichgpu.catalog.live.http import Client, Validators


def body(client: Client, url: str, **settings: object) -> bytes:
    return client.get(url, **settings).bytes()  # type: ignore[arg-type]


def error_kind(client: Client, url: str, **settings: object) -> str:
    with pytest.raises(DataError) as caught:
        client.get(url, **settings)  # type: ignore[arg-type]
    return caught.value.kind


def test_body_is_complete_with_its_validators(server: Server, client: Client) -> None:
    server.on("/a", Answer(body=b"hello", headers={"ETag": '"1"', "Last-Modified": "Sat, 22 Aug 2026 07:00:00 GMT"}))
    reply = client.get(server.url + "/a")
    assert reply.bytes() == b"hello"
    assert reply.validators == Validators(server.url + "/a", '"1"', "Sat, 22 Aug 2026 07:00:00 GMT")
    assert reply.modified == datetime(2026, 8, 22, 7, tzinfo=UTC)
    assert server.received[0].headers["User-Agent"].startswith("whichgpu/")


def test_cached_content_is_requested_conditionally(server: Server, waits: list[float]) -> None:
    server.on("/a", conditional(b"new"))
    url = server.url + "/a"
    client = Client(validators={url: Validators(url, '"v1"', "Sat, 22 Aug 2026 07:00:00 GMT")}, sleep=waits.append)
    assert client.get(url).body is None
    assert server.received[0].headers["If-Modified-Since"] == "Sat, 22 Aug 2026 07:00:00 GMT"
    assert body(client, url, conditional=False) == b"new"
    client.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 408])
def test_a_passing_refusal_is_tried_again(server: Server, client: Client, waits: list[float], status: int) -> None:
    server.on("/a", busy_then(2, Answer(body=b"ok"), status, after=None))
    assert body(client, server.url + "/a") == b"ok"
    assert len(waits) == 2
    assert waits[0] < waits[1]


def test_retry_after_of_a_server_is_respected(server: Server, client: Client, waits: list[float]) -> None:
    server.on("/a", busy_then(1, Answer(body=b"ok"), 429, after="17"))
    assert body(client, server.url + "/a") == b"ok"
    assert waits == [17.0]


def test_a_wait_may_be_a_date(server: Server, client: Client, waits: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.on("/a", busy_then(1, Answer(body=b"ok"), 503, after=later))
    assert body(client, server.url + "/a") == b"ok"
    assert 20 < waits[0] <= 30


@pytest.mark.parametrize("after", ["\xb2", "Mon, 16 Nov " + "9" * 30 + " 18:00:00 GMT", "Mon, 16 Nov 2026 18:00:00 +" + "9" * 30])
def test_a_wait_that_cannot_be_read_is_our_own(server: Server, client: Client, waits: list[float], after: str) -> None:
    server.on("/a", busy_then(1, Answer(body=b"ok", headers={"Last-Modified": after}), 503, after=after))
    reply = client.get(server.url + "/a")
    assert (reply.bytes(), reply.modified) == (b"ok", None)
    assert len(waits) == 1


def test_a_wait_of_an_hour_is_not_waited_for(server: Server, client: Client, waits: list[float]) -> None:
    server.on("/a", Answer(429, b"", {"Retry-After": "3600"}))
    assert error_kind(client, server.url + "/a") == "http-status"
    assert waits == []


def test_retries_end_if_a_server_never_recovers(server: Server, client: Client, waits: list[float]) -> None:
    server.on("/a", Answer(503))
    assert error_kind(client, server.url + "/a") == "http-status"
    assert len(server.received) == 4
    assert len(waits) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 204])
def test_a_final_refusal_is_not_tried_again(server: Server, client: Client, status: int) -> None:
    server.on("/a", Answer(status))
    assert error_kind(client, server.url + "/a") == "http-status"
    assert len(server.received) == 1


def test_truncated_body_is_retried_and_never_returned(server: Server, client: Client) -> None:
    server.on("/a", Answer(body=b"half", length=100))
    assert error_kind(client, server.url + "/a") == "http-unreachable"
    assert len(server.received) == 4


def test_gzip_is_unpacked_also_of_several_members(server: Server, client: Client) -> None:
    text = b"a,b,c\n" * 50_000
    server.on("/a", Answer(body=gzip.compress(text) + gzip.compress(b"end"), headers={"Content-Encoding": "gzip"}))
    assert body(client, server.url + "/a") == text + b"end"


@pytest.mark.parametrize("spoil", [lambda packed: packed[:-9], lambda packed: packed[:100], lambda packed: b"no gzip"])
def test_a_broken_gzip_is_not_handed_over(server: Server, client: Client, spoil: Callable[[bytes], bytes]) -> None:
    packed = gzip.compress(bytes(range(256)) * 20)
    server.on("/a", Answer(body=spoil(packed), headers={"Content-Encoding": "gzip"}))
    assert error_kind(client, server.url + "/a") == "http-unreachable"


def test_a_body_that_unpacks_beyond_the_limit_is_refused(server: Server, client: Client) -> None:
    server.on("/a", Answer(body=gzip.compress(b"\0" * (8 << 20)), headers={"Content-Encoding": "gzip"}))
    assert error_kind(client, server.url + "/a", max_bytes=1 << 20) == "http-too-large"


def test_content_length_beyond_the_limit_is_refused_before_download(server: Server, client: Client) -> None:
    server.on("/a", Answer(body=b"x" * 4096))
    assert error_kind(client, server.url + "/a", max_bytes=1024) == "http-too-large"


def test_an_endless_answer_ends_at_the_limit(server: Server, client: Client) -> None:
    server.on("/a", Answer(endless=True))
    assert error_kind(client, server.url + "/a", max_bytes=1 << 20) == "http-too-large"


def test_an_endless_trickle_ends_with_the_time(server: Server, waits: list[float]) -> None:
    client = Client(sleep=waits.append, max_body_seconds=0.3, attempts=1)
    server.on("/a", Answer(body=b"x", endless=True, drip=0.01))
    assert error_kind(client, server.url + "/a") == "http-too-slow"
    client.close()


def test_a_redirect_is_followed_within_reason(server: Server, client: Client) -> None:
    server.on("/a", Answer(302, b"", {"Location": "/b"}))
    server.on("/b", b"there")
    assert body(client, server.url + "/a") == b"there"


@pytest.mark.parametrize("to", ["/a", "ftp://127.0.0.1/x", "file:///etc/passwd"])
def test_a_redirect_in_circles_or_to_elsewhere_is_refused(server: Server, client: Client, to: str) -> None:
    server.on("/a", Answer(301, b"", {"Location": to}))
    assert error_kind(client, server.url + "/a") == "http-redirect"


def test_a_key_is_not_sent_on_to_another_host(server: Server, client: Client) -> None:
    with Server().running() as other:
        other.on("/b", b"there")
        server.on("/a", Answer(302, b"", {"Location": other.url + "/b"}))
        assert body(client, server.url + "/a", headers={"Authorization": "Bearer secret", "X-Goog-Api-Key": "k"}) == b"there"
        assert server.received[0].headers["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.received[0].headers
        assert "X-Goog-Api-Key" not in other.received[0].headers


def test_a_post_is_sent_with_its_body_and_tried_again(server: Server, client: Client) -> None:
    server.on("/q", busy_then(1, Answer(body=b"{}"), 502))
    assert client.post(server.url + "/q", b'{"q": 1}').bytes() == b"{}"
    assert [request.body for request in server.received] == [b'{"q": 1}'] * 2


def test_unreachable_server_is_a_readable_error(client: Client) -> None:
    with pytest.raises(DataError) as caught:
        client.get("http://127.0.0.1:1/x?key=secret")
    assert caught.value.kind == "http-unreachable"
    assert "secret" not in str(caught.value)


def test_unreachable_host_is_tried_once_for_all_addresses(client: Client, waits: list[float]) -> None:
    for path in "abc":
        with pytest.raises(DataError) as caught:
            client.get(f"http://127.0.0.1:1/{path}")
    assert caught.value.kind == "http-still-unreachable"
    assert len(waits) == 3  # those of the first


def test_a_connection_that_takes_long_to_fail_is_not_tried_again(waits: list[float]) -> None:
    hours = iter(range(0, 1000, 10))
    client = Client(sleep=waits.append, clock=lambda: float(next(hours)))
    with pytest.raises(DataError) as caught:
        client.get("http://127.0.0.1:1/x")
    assert (caught.value.kind, waits) == ("http-unreachable", [])


def test_busy_host_is_retried(server: Server, client: Client) -> None:
    server.on("/x", Answer(500))
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            client.get(server.url + "/x")
        assert caught.value.kind == "http-status"


def test_a_proxy_of_the_environment_is_used(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    requests: list[ReceivedRequest] = []

    def answer(request: ReceivedRequest) -> Answer:
        requests.append(request)
        return Answer(body=b"by proxy")

    server.on("/prices", answer)
    assert body(client, "http://prices.example/prices") == b"by proxy"
    assert requests[0].headers["Host"] == "prices.example"


def test_progress_is_reported_in_bytes(server: Server, client: Client) -> None:
    progress: list[tuple[int, int | None]] = []
    client.progress = lambda done, total: progress.append((done, total))
    server.on("/a", b"x" * 100_000)
    client.get(server.url + "/a").bytes()
    assert progress[-1] == (100_000, 100_000)
