"""The Model Context Protocol over streamable HTTP on this machine: each message is a POST, each reply one JSON document.

The server keeps no session and sends no messages of its own, so a GET (a stream of them) is refused, as the protocol permits.
Specification: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Language, msg
from whichgpu.base.version import __version__
from whichgpu.surface.mcp.protocol import (
    INVALID_REQUEST,
    SLOW_METHODS,
    VERSIONS,
    ProtocolError,
    error_reply,
    is_request,
    parse,
    reply_to,
)
from whichgpu.surface.mcp.server import MAX_LINE_BYTES

ADDRESS = "127.0.0.1"
PATH = "/mcp"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
TIMEOUT_SECONDS = 60  # Longest pause within one request (assumed).


class LocalServer(ThreadingHTTPServer):
    """HTTP server of this machine's clients; tools compute one at a time."""

    daemon_threads = True

    def __init__(self, port: int, language: Language) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.language = language
        self.tools = Lock()

    @property
    def url(self) -> str:
        """Return the address that clients connect to."""
        return f"http://{ADDRESS}:{self.server_address[1]}{PATH}"

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request; one that computes waits for the one before."""
        if message["method"] not in SLOW_METHODS:
            return reply_to(message, self.language)
        with self.tools:
            return reply_to(message, self.language)


def serve_http(port: int, language: Language, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` is called with the server's address."""
    try:
        server = LocalServer(port, language)
    except OSError as problem:
        message = msg("error.cannot-listen", host=ADDRESS, port=port, why=problem.strerror or str(problem))
        raise UsageError("cannot-listen", message, msg("hint.cannot-listen")) from problem
    with server:
        ready(server.url)
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    protocol_version = "HTTP/1.1"
    server_version = f"whichgpu/{__version__}"
    sys_version = ""
    timeout = TIMEOUT_SECONDS

    def do_POST(self) -> None:
        """Answer the message in the body."""
        if refusal := self._refusal():
            self._send_error(*refusal)
            return
        try:
            message = parse(self.rfile.read(int(self.headers["Content-Length"])))
        except ProtocolError as problem:
            self._send(HTTPStatus.BAD_REQUEST, error_reply(None, problem))
            return
        if is_request(message):
            self._send(HTTPStatus.OK, self.server.answer(message))
        else:
            self._send(HTTPStatus.ACCEPTED, None)

    def do_GET(self) -> None:
        """Refuse a stream of the server's own messages."""
        self._send_error(HTTPStatus.METHOD_NOT_ALLOWED, "this server sends no messages of its own")

    do_DELETE = do_PUT = do_HEAD = do_OPTIONS = do_GET

    def _refusal(self) -> tuple[HTTPStatus, str] | None:
        """Return why a request is refused before its body is read; None if it is not."""
        headers = self.headers
        origin, length = headers.get("Origin"), headers.get("Content-Length", "")
        if _host(f"//{headers.get('Host', '')}") not in LOOPBACK_NAMES or (origin and _host(origin) not in LOOPBACK_NAMES):
            return HTTPStatus.FORBIDDEN, "only clients on this machine are answered"  # A page of another site is none.
        if self.path != PATH:
            return HTTPStatus.NOT_FOUND, f"the address is {PATH}"
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is not application/json"
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length"
        if len(length) > len(str(MAX_LINE_BYTES)) or int(length) > MAX_LINE_BYTES:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the message is longer than {MAX_LINE_BYTES} bytes"
        if headers.get("MCP-Protocol-Version", VERSIONS[-1]) not in VERSIONS:
            return HTTPStatus.BAD_REQUEST, f"the protocol version is none of {', '.join(VERSIONS)}"
        return None

    def _send_error(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True  # The body was not read.
        self._send(status, error_reply(None, ProtocolError(INVALID_REQUEST, message)))

    def _send(self, status: HTTPStatus, document: dict[str, Any] | None) -> None:
        body = b"" if document is None else msgspec.json.encode(document)
        self.send_response(status)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST")
        if document is not None:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests are private."""


def _host(url: str) -> str | None:
    """Return the host of an address in lower case; None if it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
