"""The gate every request passes: whose host it names, whether it may come in, where it comes from; and what replies carry.

- Host: only names the server goes by, or a page elsewhere could point its own name here (DNS rebinding).
- Token: where there is one, compared in constant time; in a header for programs, in a cookie for browsers.
- Origin: other sites may link to a page, and nothing else. What changes state comes as POST or DELETE with a header that no form
  can send.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whichgpu.surface.web.responses import Refusal, refused

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
COOKIE = "whichgpu-token"
MARK = "x-whichgpu"  # no page of another site can send it without asking first, and is told no
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


@dataclass(frozen=True, slots=True)
class Door:
    """Names the server goes by, and the token it wants where it is not for this machine alone."""

    hosts: frozenset[str] = field(default_factory=lambda: frozenset(LOOPBACK))
    token: str | None = None


def hosts_of(address: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Names that mean a server bound to an address."""
    named = f"[{address.strip('[]')}]" if ":" in address else address
    return frozenset(name.lower() for name in (*LOOPBACK, named, *more))


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        try:
            reply = self._entered(request)
        except Refusal as refusal:
            reply = refused(request, refusal)
        except Exception:  # nothing about a request may keep the gate from answering
            reply = refused(request, Refusal(400, "bad-request"))
        if reply is None:
            await self._app(scope, receive, guarded)
        else:
            await reply(scope, receive, guarded)

    def _entered(self, request: Request) -> Response | None:
        """None where the request may go on; a reply where the gate has one itself."""
        if request.method not in (*READS, *CHANGES):
            raise Refusal(405, "method", {"Allow": ", ".join((*READS, *CHANGES))}, method=request.method[:20])
        self._check_host(request)
        if self._door.token is not None and (reply := self._check_token(request, self._door.token)) is not None:
            return reply
        self._check_origin(request)
        return None

    def _check_host(self, request: Request) -> None:
        named = request.headers.getlist("host")
        if len(named) != 1 or _host(named[0]) not in self._door.hosts:
            raise Refusal(421, "host", None, host=(named or ["–"])[0][:80])

    def _check_token(self, request: Request, token: str) -> Response | None:
        """The address a browser is first opened with carries the token; it becomes a cookie and leaves the address."""
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and _same(given, token):
            kept = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            where = request.url.path + (f"?{urlencode(kept)}" if kept else "")
            reply = Response(None, 303, {"Location": "/" + where.lstrip("/\\"), "Cache-Control": "no-store"})
            reply.set_cookie(COOKIE, token, httponly=True, samesite="strict", max_age=30 * 86400)
            return reply
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), token):
            return None
        if _same(_cookie(request), token):
            return None
        raise Refusal(401, "token", {"WWW-Authenticate": "Bearer"})

    def _check_origin(self, request: Request) -> None:
        site = request.headers.get("sec-fetch-site", "none")
        is_link = request.headers.get("sec-fetch-mode") == "navigate" and request.method in READS
        if site not in ("none", "same-origin") and not is_link:
            raise Refusal(403, "origin")
        if request.method in READS:
            return
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers["host"].lower():
            raise Refusal(403, "origin")


def check_mark(request: Request) -> None:
    """What changes state says so in a header of its own."""
    if MARK not in request.headers:
        raise Refusal(403, "mark", None, header="X-Whichgpu: 1")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _host(text: str) -> str:
    """The name of a Host header without its port."""
    name, colon, port = text.strip().lower().rpartition(":")
    if colon and port.isdigit() and (not name.startswith("[") or name.endswith("]")):
        return name
    return text.strip().lower()
