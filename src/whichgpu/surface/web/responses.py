"""Replies of the server itself: an answer with its tag, compressed where that is welcome, and every refusal in one shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zlib import decompressobj

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.surface.web.reader_language import headers_of, language_of

REVALIDATE = "private, no-cache"
PIECE, PACKED_PIECE = 1 << 16, 1 << 13  # bytes of an answer sent at a time; the second of its compressed form, to be unpacked
FOREVER = "private, max-age=31536000, immutable"


class Refusal(Exception):
    """The server itself says no: a status, a kind for programs, ids of the message and hint, and headers of its own."""

    def __init__(self, status: int, kind: str, headers: Mapping[str, str] | None = None, **values: object) -> None:
        super().__init__(status, kind)
        self.status, self.kind, self.headers, self.values = status, kind, dict(headers or {}), values

    def error(self) -> WhichGpuError:
        """The same as one of our errors."""
        return WhichGpuError(self.kind, msg(f"error.web-{self.kind}", **self.values), msg(f"hint.web-{self.kind}", **self.values))


def replied(request: Request, answer: Mapping[str, Any], cache_control: str = REVALIDATE) -> Response:
    """An answer of a worker; 304 where the reader has it already."""
    accepts = _accepts_gzip(request.headers.get("accept-encoding", ""))
    is_packed = answer["packed"] and accepts
    tag = f'"{answer["tag"]}{"-gz" if is_packed else ""}"'
    headers = {**answer["headers"], "Vary": "Accept-Encoding, Accept-Language", "Cache-Control": cache_control}
    if answer["status"] == 200:
        headers["ETag"] = tag
        if _has_already(request.headers.get("if-none-match", ""), answer["tag"]):
            return Response(None, 304, headers)
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    headers["Content-Type"] = answer["content"]
    return Pieces(answer, is_packed, headers)


class Pieces(Response):
    """An answer sent as fast as it is read: whoever reads slowly makes the server hold a piece of it, not the whole."""

    def __init__(self, answer: Mapping[str, Any], as_packed: bool, headers: Mapping[str, str]) -> None:
        self._answer, self._as_packed = answer, as_packed
        length = len(answer["body"]) if as_packed else answer["plain_bytes"]
        super().__init__(None, answer["status"], {**headers, "Content-Length": str(length)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Head and pieces; the server waits between them until the reader has taken enough."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in () if scope["method"] == "HEAD" else self._pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pieces(self) -> Iterator[bytes]:
        body = self._answer["body"]
        if self._as_packed or not self._answer["packed"]:
            yield from (body[at : at + PIECE] for at in range(0, len(body), PIECE))
            return
        unpacking = decompressobj(wbits=31)
        for at in range(0, len(body), PACKED_PIECE):
            yield unpacking.decompress(body[at : at + PACKED_PIECE])
        yield unpacking.flush()


def refused(request: Request, refusal: Refusal) -> Response:
    """As a page for those who look, else in the one shape errors have."""
    speech = language_of(request)
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    from whichgpu.surface.web.rendering import problem

    told = problem(refusal.error(), "html" if wants_page else "json", speech, query=request.url.query)
    headers = {"Cache-Control": "no-store", **headers_of(speech.code), **refusal.headers}
    reply = Response(told.body, refusal.status, headers)
    reply.headers["Content-Type"] = told.content
    return reply


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A small document of the server's own."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def _accepts_gzip(header: str) -> bool:
    """Whether gzip is welcome, read as RFC 9110 has it as far as anyone uses it."""
    offered = [part.strip().lower().partition(";") for part in header.split(",")]
    return any(
        name.strip() in ("gzip", "*") and q.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
        for name, _, q in offered
    )


def _has_already(header: str, tag: str) -> bool:
    tags: Sequence[str] = [part.strip().removeprefix("W/").strip('"').removesuffix("-gz") for part in header.split(",")]
    return tag in tags or header.strip() == "*"
