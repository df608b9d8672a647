"""HTTP/1.1 with patience that ends: for headers that do not come, for readers that do not read, for connections that only wait.

When there are as many connections as may be, the one that has waited longest without a request makes room: whoever holds
thousands open keeps nobody else out.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from whichgpu.base.messages import english
from whichgpu.surface.web.limits import Limits
from whichgpu.surface.web.safety import HEADERS


class PatientProtocol(H11Protocol):
    """One connection."""

    limits: ClassVar[Limits] = Limits()
    waiting: ClassVar[OrderedDict[PatientProtocol, None]] = OrderedDict()  # connections without a request, longest first
    most: ClassVar[int] = 8192

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._await_head()
        while len(self.connections) > self.most and self.waiting:
            longest = next(iter(self.waiting))
            self.waiting.pop(longest)
            longest.transport.abort()
            self.connections.discard(longest)

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._stop("_timer")
        self._stop("_unread")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # a whole head has come
            self._busy()
        elif self._timer is None and self._is_between():
            self._await_head()

    def on_response_complete(self) -> None:
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before and not self.transport.is_closing():
            self.waiting[self] = None  # may go when room is needed; uvicorn's own timer ends it otherwise
        if self.transport.is_closing():
            self._await_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("_unread")

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or too long a head, in the one shape errors have."""
        speech = english()
        hint = speech.text("hint.web-bad-http", kib=self.limits.head_bytes >> 10)
        error = {"kind": "bad-http", "message": speech.text("error.web-bad-http"), "hint": hint, "choices": []}
        body = json.dumps({"ok": False, "error": error}).encode()
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        headers += [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        try:
            parts = [
                self.conn.send(h11.Response(status_code=400, headers=headers, reason=STATUS_PHRASES[400])),
                self.conn.send(h11.Data(data=body)),
                self.conn.send(h11.EndOfMessage()),
            ]
            self.transport.write(b"".join(part for part in parts if part))
        except h11.LocalProtocolError:  # an answer is under way already
            pass
        self.transport.close()
        self._await_reader()

    def _is_between(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self.waiting[self] = None
        self._timer = self.loop.call_later(self.limits.head_seconds, self._give_up)

    def _busy(self) -> None:
        self.waiting.pop(self, None)
        self._stop("_timer")

    def _await_reader(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.unread_seconds, self._give_up)

    def _give_up(self) -> None:
        self.waiting.pop(self, None)
        self.transport.abort()

    def _stop(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name, None)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def connections_allowed(limits: Limits) -> int:
    """As many as the limit, or as the system's descriptors allow with some left for the server itself."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = limits.connections + 256
        if soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(64, min(limits.connections, soft - 256))
    except (ImportError, OSError, ValueError):
        return 400


def patient(limits: Limits) -> type[Any]:
    """The protocol with these limits."""
    most = connections_allowed(limits)
    return type("Protocol", (PatientProtocol,), {"limits": limits, "most": most, "waiting": OrderedDict()})
