"""Limits on connections that uvicorn has no setting for, added to its HTTP protocol class.

A client that sends no complete request head in time, or does not read its reply in time, is disconnected. Once the maximum number
of connections is open, each new one closes the connection that has waited longest without a request, so that holding thousands
open keeps nobody out. What is not HTTP is answered with the JSON body every error has.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from whichgpu.base.messages import english
from whichgpu.surface.web.server.gate import HEADERS, POLICY
from whichgpu.surface.web.server.limits import Limits

STATE = "connection"  # Key of the connection in the state of a request's ASGI scope.
BAD_REQUEST = b"HTTP/1.1 400 "


def bound_connections(config: uvicorn.Config, limits: Limits) -> None:
    """Apply the limits to every connection of a server that is not yet started."""
    config.load()
    connections = Connections(limits, config.http_protocol_class)
    config.http_protocol_class = partial(Connection, connections)  # type: ignore[assignment]


class RequestTracker:
    """ASGI middleware that notifies a request's connection when the request begins and ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get("state", {}).get(STATE)
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.request_began()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.request_ended()


class Connections:
    """The open connections of one server, whose number is limited."""

    def __init__(self, limits: Limits, protocol: type[asyncio.Protocol]) -> None:
        self.limits, self.protocol = limits, protocol
        self.open: set[Connection] = set()
        self.waiting: OrderedDict[Connection, None] = OrderedDict()  # Connections without a request, the longest waiting first.
        self._max_count = connections_allowed(limits)

    def add(self, connection: Connection) -> None:
        """Count a new connection; if there are too many, close the one that has waited longest."""
        self.open.add(connection)
        self.waiting[connection] = None
        while len(self.open) > self._max_count and self.waiting:
            next(iter(self.waiting)).abort()


class Connection(asyncio.Protocol):
    """One connection: the server's HTTP protocol, with time limits on the client's sending and reading."""

    def __init__(self, connections: Connections, *, app_state: dict[str, Any], **values: Any) -> None:
        self._all, self.limits = connections, connections.limits
        self._http = connections.protocol(app_state={**app_state, STATE: self}, **values)  # type: ignore[call-arg]
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._requests = 0  # Requests passed to the application and not yet answered.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._http.connection_made(ReplyTransport(self))  # type: ignore[arg-type]
        self._expect("head", self.limits.head_seconds)
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)
        self._forget()

    def data_received(self, data: bytes) -> None:
        if not self._requests:
            self._expect("head", self.limits.head_seconds)
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # Bytes that are not HTTP arrived during a reply, so no other reply can be sent.
            self.close()

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._expect("reader", self.limits.unread_seconds)

    def resume_writing(self) -> None:
        self._http.resume_writing()
        self._came("reader")

    def request_began(self) -> None:
        """Stop the time limit for the request head, which has arrived."""
        self._requests += 1
        self._all.waiting.pop(self, None)
        self._came("head")

    def request_ended(self) -> None:
        """Wait for the next request; uvicorn itself closes a connection that stays idle."""
        self._requests -= 1
        if not self._requests and not self.transport.is_closing():
            self._all.waiting[self] = None
            self._expect("head", self.limits.idle_seconds + self.limits.head_seconds)

    def close(self) -> None:
        """Close the connection after the client has read what was sent, within the time limit for that."""
        self.transport.close()
        self._expect("reader", self.limits.unread_seconds)

    def abort(self) -> None:
        """Close the connection immediately, without sending what is left."""
        self._forget()
        self.transport.abort()

    def _expect(self, what: str, seconds: float) -> None:
        """Disconnect unless the request head or the client's reading comes within `seconds`; an earlier deadline is kept."""
        loop = asyncio.get_running_loop()
        if what not in self._timers or self._timers[what].when() > loop.time() + seconds:
            self._came(what)
            self._timers[what] = loop.call_later(seconds, self.abort)

    def _came(self, what: str) -> None:
        if timer := self._timers.pop(what, None):
            timer.cancel()

    def _forget(self) -> None:
        for what in (*self._timers,):
            self._came(what)
        self._all.open.discard(self)
        self._all.waiting.pop(self, None)


class ReplyTransport:
    """The transport the HTTP protocol writes to, which replaces the plain-text reply to what is not HTTP by an error of ours."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._replaced = False

    def write(self, data: bytes) -> None:
        """Write a part of a reply; uvicorn's own error reply, which lacks our security policy, is replaced by our own."""
        if data.startswith(BAD_REQUEST) and POLICY.encode() not in data:
            self._replaced = True
            self._connection.transport.write(_bad_http(self._connection.limits))
        elif not self._replaced:
            self._connection.transport.write(data)

    def close(self) -> None:
        """Close the connection once the client has read the reply."""
        self._connection.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)


def _bad_http(limits: Limits) -> bytes:
    """Return the reply to bytes that are not HTTP, or to a request head that is too long."""
    words = english()
    hint = words.text("hint.web-bad-http", kib=limits.head_bytes >> 10)
    error = {"kind": "bad-http", "message": words.text("error.web-bad-http"), "hint": hint, "choices": []}
    body = json.dumps({"ok": False, "error": error}).encode()
    headers = {**HEADERS, "Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return BAD_REQUEST + f"Bad Request\r\n{lines}\r\n".encode() + body


def connections_allowed(limits: Limits) -> int:
    """Return the largest number of open connections: the limit, or fewer if the system's file descriptors do not suffice."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = limits.connections + 256
        if soft < needed:
            soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(64, min(limits.connections, soft - 256))
    except (ImportError, OSError, ValueError):
        return 400
