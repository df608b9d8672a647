"""A server on the loopback with scripted replies: pages, errors, rate limits, broken, endless and slow bodies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it came."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    """What to send back. `length` lies about the body's size; `endless` never stops sending; `drip` waits between its bytes."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    endless: bool = False
    drip: float = 0.0


Route = Callable[[ReceivedRequest], Answer]


class Server:
    """Routes by path; received requests are recorded in order."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.received: list[ReceivedRequest] = []
        self.otherwise: Route = lambda _: Answer(404, b"not here")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, path: str, answer: Answer | Route | bytes | dict[str, Any] | list[Any]) -> None:
        """What a path answers: a body, a JSON document, an answer, or a function of the request."""
        if isinstance(answer, dict | list):
            answer = Answer(body=json.dumps(answer).encode(), headers={"Content-Type": "application/json"})
        elif isinstance(answer, bytes):
            answer = Answer(body=answer)
        self.routes[path] = answer if callable(answer) else _always(answer)

    def paths(self) -> list[str]:
        return [request.path for request in self.received]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def log_message(self, *_: object) -> None:
                pass

            def _reply(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = ReceivedRequest(self.command, parts.path, parts.query, dict(self.headers), body)
                server.received.append(request)
                answer = server.routes.get(parts.path, server.otherwise)(request)
                try:
                    self._send(answer)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if not answer.endless:
                    length = len(answer.body) if answer.length is None else answer.length
                    self.send_header("Content-Length", str(length))
                self.send_header("Connection", "close")
                self.end_headers()
                while answer.endless:
                    self.wfile.write(answer.body or b"x" * 65536)
                    time.sleep(answer.drip)
                if answer.drip:
                    for start in range(0, len(answer.body), 64):
                        self.wfile.write(answer.body[start : start + 64])
                        self.wfile.flush()
                        time.sleep(answer.drip)
                else:
                    self.wfile.write(answer.body)
                self.close_connection = True

        return Handler

    @contextmanager
    def running(self) -> Iterator[Server]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _always(answer: Answer) -> Route:
    return lambda _: answer


def busy_then(times: int, answer: Answer, status: int = 429, after: str | None = "0") -> Route:
    """A number of refusals, then the reply."""
    left = [times]

    def route(_: ReceivedRequest) -> Answer:
        if left[0]:
            left[0] -= 1
            return Answer(status, b"later", {"Retry-After": after} if after is not None else {})
        return answer

    return route


def conditional(body: bytes, etag: str = '"v1"') -> Route:
    """304 for those who have it already."""

    def route(request: ReceivedRequest) -> Answer:
        if request.headers.get("If-None-Match") == etag:
            return Answer(304, b"", {"ETag": etag})
        return Answer(200, body, {"ETag": etag})

    return route
