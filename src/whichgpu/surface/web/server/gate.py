"""ASGI middleware that checks every request and adds security headers to every response.

- Head: a limited number of bytes.
- Body: one length. A request with two is refused and its connection closed, against request smuggling (RFC 9112, 6.1).
- Host: only the server's own names, against DNS rebinding.
- Token: where one is set, compared in constant time; in a header from programs, in a cookie from browsers. A client that sends
  many wrong ones is refused for a while.
- Client: the address of the connection, or the one that a configured proxy forwards.
- Origin: other sites may link to a page and nothing else. Changes need POST or DELETE with a header that no form can send.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from math import ceil
from urllib.parse import urlencode, urlsplit

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whichgpu.surface.web.responses import HttpRefusal, refusal_response
from whichgpu.surface.web.server.clients import Network, WrongTokens, client_of, resolve_client
from whichgpu.surface.web.server.limits import Limits

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
COOKIE = "whichgpu-token"
CHANGE_HEADER = "x-whichgpu"  # A page of another site needs a CORS preflight to send it, which is refused.
READS, CHANGES = ("GET", "HEAD"), ("POST", "DELETE")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class AccessRules(msgspec.Struct, frozen=True):
    """Host names of the server, its access token (None if requests need none), and the proxies in front of it."""

    hosts: frozenset[str] = msgspec.field(default_factory=lambda: frozenset(LOOPBACK))
    token: str | None = None
    proxies: tuple[Network, ...] = ()  # Proxies whose word on the client's address and scheme is believed.


def host_names(address: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the values of the Host header that a server at this address accepts: its own names and those in `more`."""
    name = f"[{address.strip('[]')}]" if ":" in address else address
    return frozenset(one.lower() for one in (*LOOPBACK, name, *more))


class Gate:
    """ASGI middleware that checks host, token and origin of each request, and adds security headers to each response."""

    def __init__(self, app: ASGIApp, rules: AccessRules, max_head_bytes: int = Limits().head_bytes) -> None:
        self._app, self._rules, self._wrong_tokens = app, rules, WrongTokens()
        self._max_head_bytes = max_head_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        resolve_client(scope, self._rules.proxies)
        request = Request(scope, receive)
        try:
            response = self._check(request)
        except HttpRefusal as refusal:
            response = refusal_response(request, refusal)
        except Exception:  # A malformed request must still get an answer.
            response = refusal_response(request, HttpRefusal(400, "bad-request"))
        if response is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await response(scope, receive, send_with_headers)

    def _check(self, request: Request) -> Response | None:
        """Return None if the request may pass, or a redirect that sets the token's cookie; raise HttpRefusal otherwise."""
        if request.method not in (*READS, *CHANGES):
            raise HttpRefusal(405, "method", {"Allow": ", ".join((*READS, *CHANGES))}, method=request.method[:20])
        self._check_length(request)
        if {"content-length", "transfer-encoding"} <= set(request.headers):  # A proxy may see another end of the body.
            raise HttpRefusal(400, "bad-request", {"Connection": "close"})
        self._check_host(request)
        if self._rules.token is not None and (response := self._check_token(request, self._rules.token)) is not None:
            return response
        self._check_origin(request)
        return None

    def _check_length(self, request: Request) -> None:
        """Raise if the request's head is too long; the parser limits only a head that arrives in parts."""
        parts = (len(name) + len(value) for name, value in request.headers.raw)
        if sum(parts) + len(request.url.path) + len(request.url.query) > self._max_head_bytes:
            raise HttpRefusal(400, "bad-http", {"Connection": "close"}, kib=self._max_head_bytes >> 10)

    def _check_host(self, request: Request) -> None:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or _host(hosts[0]) not in self._rules.hosts:
            raise HttpRefusal(421, "host", None, host=(hosts or ["–"])[0][:80])

    def _check_token(self, request: Request, token: str) -> Response | None:
        """Raise if the access token is missing or wrong; return a redirect that moves a URL's token to a cookie, else None."""
        client = client_of(request)
        if seconds := self._wrong_tokens.seconds_to_wait(client):
            raise HttpRefusal(429, "many-tokens", {"Retry-After": f"{ceil(seconds)}"}, seconds=f"{ceil(seconds)}")
        presented = request.query_params.get("token")
        if presented is not None and request.method == "GET" and _same(presented, token):
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            target = request.url.path + (f"?{urlencode(rest)}" if rest else "")
            response = Response(None, 303, {"Location": "/" + target.lstrip("/\\"), "Cache-Control": "no-store"})
            response.set_cookie(
                COOKIE, token, httponly=True, samesite="strict", max_age=30 * 86400, secure=request.url.scheme == "https"
            )
            return response
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        cookie = _cookie(request)
        if (scheme.lower() == "bearer" and _same(bearer.strip(), token)) or _same(cookie, token):
            return None
        if presented or bearer or cookie:
            self._wrong_tokens.add(client)
        raise HttpRefusal(401, "token", {"WWW-Authenticate": "Bearer"})

    def _check_origin(self, request: Request) -> None:
        site = request.headers.get("sec-fetch-site", "none")
        is_link = request.headers.get("sec-fetch-mode") == "navigate" and request.method in READS
        if site not in ("none", "same-origin") and not is_link:
            raise HttpRefusal(403, "origin")
        if request.method in READS:
            return
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers["host"].lower():
            raise HttpRefusal(403, "origin")


def check_change_header(request: Request) -> None:
    """Raise if a request that changes state lacks the header CHANGE_HEADER, which other sites cannot send."""
    if CHANGE_HEADER not in request.headers:
        raise HttpRefusal(403, "mark", None, header="X-Whichgpu: 1")


def _same(presented: str, token: str) -> bool:
    return hmac.compare_digest(presented.encode("utf-8", "surrogatepass"), token.encode())


def _cookie(request: Request) -> str:
    try:
        cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _host(text: str) -> str:
    """Return the Host header without its port."""
    name, colon, port = text.strip().lower().rpartition(":")
    if colon and port.isdigit() and (not name.startswith("[") or name.endswith("]")):
        return name
    return text.strip().lower()
