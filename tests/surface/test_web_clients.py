"""Who a client is behind a proxy, what wrong tokens cost, and where the cookie is sent."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")
pytest.importorskip("httpx", reason="Starlette's test client needs httpx")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette warns that a later test client will need another package.
    from starlette.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from whichgpu.base.errors import UsageError
from whichgpu.surface.web.app import application
from whichgpu.surface.web.server import clients
from whichgpu.surface.web.server.clients import MAX_CLIENTS, MAX_WRONG_TOKENS, WrongTokens, client_of, parse_proxies
from whichgpu.surface.web.server.gate import AccessRules, Gate
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.service import Service

TOKEN = "a-token-that-is-long-enough"
PROXY = "10.0.0.5"
FILE = "/static/page.css"  # Answered without a worker.


def client_name(peer: str, *proxies: str, **headers: str) -> str:
    """Return the client and scheme that the application sees behind the gate."""

    async def respond(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{client_of(request)} {request.url.scheme}")

    app = Gate(Starlette(routes=[Route("/", respond)]), AccessRules(proxies=parse_proxies(proxies)))
    client = TestClient(app, base_url="http://localhost", client=(peer, 4000))
    return str(client.get("/", headers={name.replace("_", "-"): value for name, value in headers.items()}).text)


@pytest.fixture
def app() -> Any:
    return application(Service(Limits(), 1, warm=(), draws=False), AccessRules(token=TOKEN, proxies=parse_proxies([PROXY])))


def visitor(app: Any, peer: str = PROXY) -> Any:
    return TestClient(app, base_url="http://localhost", client=(peer, 4000), follow_redirects=False)


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "192.0.2.7", "10.0.0.6"])
def test_forwarded_headers_are_ignored_unless_a_configured_proxy_sends_them(peer: str) -> None:
    headers = {"x_forwarded_for": "198.51.100.1", "x_forwarded_proto": "https"}
    assert client_name(peer, **headers) == f"{peer} http"
    assert client_name(peer, PROXY, **headers) == f"{peer} http"


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("203.0.113.9, 198.51.100.1", "198.51.100.1"),  # The client wrote the first itself.
        ("198.51.100.1, 10.0.0.5", "198.51.100.1"),  # Two proxies in a row.
        ("198.51.100.1:5000", "198.51.100.1"),
        ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        ("198.51.100.1, unknown", PROXY),
        ("", PROXY),
    ],
)
def test_a_configured_proxy_names_its_client(forwarded: str, client: str) -> None:
    assert client_name(PROXY, "10.0.0.0/29", x_forwarded_for=forwarded, x_forwarded_proto="https") == f"{client} https"
    assert client_name(PROXY, PROXY, x_forwarded_for=forwarded) == f"{client} http"


def test_proxies_are_addresses_or_networks() -> None:
    assert [str(network) for network in parse_proxies(["10.0.0.5,10.1.0.0/16", "[::1]", ""])] == [
        "10.0.0.5/32", "10.1.0.0/16", "::1/128",
    ]  # fmt: skip
    for text in ("proxy.example", "10.0.0.5/8", "*", "10.0.0"):
        with pytest.raises(UsageError, match="not an address"):
            parse_proxies([text])


def test_wrong_tokens_are_throttled_for_their_client_only(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(app._app._wrong_tokens, "_clock", lambda: now[0])
    attacker, other = {"X-Forwarded-For": "198.51.100.1"}, {"X-Forwarded-For": "198.51.100.2"}
    right = {"Authorization": f"Bearer {TOKEN}"}
    client = visitor(app)
    for _ in range(MAX_WRONG_TOKENS + 5):
        assert client.get(FILE, headers=attacker).status_code == 401  # Without a token nothing is guessed.
    guesses = [
        lambda number: client.get(FILE, headers={**attacker, "Authorization": f"Bearer {number}"}),
        lambda number: client.get(FILE, headers={**attacker, "Cookie": f"whichgpu-token={number}"}),
        lambda number: client.get(f"{FILE}?token={number}", headers=attacker),
    ]
    for number in range(MAX_WRONG_TOKENS):
        assert guesses[number % 3](number).status_code == 401
    refused = client.get(FILE, headers={**attacker, **right})
    assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "many-tokens")
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert client.get(f"{FILE}?token={TOKEN}", headers=attacker).status_code == 429
    assert client.get(FILE, headers={**other, **right}).status_code == 200
    now[0] += 61
    assert client.get(FILE, headers={**attacker, **right}).status_code == 200


def test_wrong_tokens_are_remembered_of_a_limited_number_of_clients() -> None:
    tokens = WrongTokens()
    for number in range(MAX_CLIENTS + 500):
        tokens.add(str(number))
    assert len(tokens._times) == MAX_CLIENTS
    assert clients.WRONG_TOKEN_SECONDS >= 30


@pytest.mark.parametrize(("scheme", "is_secure"), [("https", True), ("http", False)])
def test_cookie_is_secure_behind_tls(app: Any, scheme: str, is_secure: bool) -> None:
    reply = visitor(app).get(f"{FILE}?token={TOKEN}", headers={"X-Forwarded-Proto": scheme})
    assert reply.status_code == 303
    assert ("Secure" in reply.headers["set-cookie"]) is is_secure
    spoofed = visitor(app, "192.0.2.7").get(f"{FILE}?token={TOKEN}", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" not in spoofed.headers["set-cookie"]
