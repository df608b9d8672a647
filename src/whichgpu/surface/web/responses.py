"""HTTP responses: answers with an entity tag, compressed if accepted, and refusals, all with the same error body."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import decompressobj

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whichgpu.base.errors import NoAnswer, WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.surface.web.reader_language import headers_of, language_of

REVALIDATE = "private, no-cache"
# Bytes of an answer sent at a time, and of a compressed answer unpacked at a time.
PIECE_BYTES, PACKED_PIECE_BYTES = 1 << 16, 1 << 13
RETRIED_KINDS = ("many-questions", "busy", "lost")  # Refusals of a page whose question may be asked again.
FOREVER = "private, max-age=31536000, immutable"


class HttpRefusal(Exception):
    """Raised to refuse an HTTP request: status, kind of error, values of its messages, and headers."""

    def __init__(self, status: int, kind: str, headers: Mapping[str, str] | None = None, **values: object) -> None:
        super().__init__(status, kind)
        self.status, self.kind, self.headers, self.values = status, kind, dict(headers or {}), values

    def error(self) -> WhichGpuError:
        """Return the refused HTTP request as an error of this package, with message and hint."""
        kind = NoAnswer if self.status == 422 else WhichGpuError
        return kind(self.kind, msg(f"error.web-{self.kind}", **self.values), msg(f"hint.web-{self.kind}", **self.values))


def answer_response(request: Request, answer: Mapping[str, Any], cache_control: str = REVALIDATE) -> Response:
    """Return the HTTP response with a worker's answer; status 304 if the client has the same answer already."""
    accepts = _accepts_gzip(request.headers.get("accept-encoding", ""))
    is_packed = answer["packed"] and accepts
    tag = f'"{answer["tag"]}{"-gz" if is_packed else ""}"'
    headers = {**answer["headers"], "Vary": "Accept-Encoding, Accept-Language", "Cache-Control": cache_control}
    if answer["status"] == 200:
        headers["ETag"] = tag
        if has_already(request, answer["tag"]):
            return Response(None, 304, headers)
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    headers["Content-Type"] = answer["content"]
    return PiecewiseResponse(answer, is_packed, headers)


class PiecewiseResponse(Response):
    """An answer sent as fast as the client reads it, so that a slow client makes the server hold one piece only."""

    def __init__(self, answer: Mapping[str, Any], as_packed: bool, headers: Mapping[str, str]) -> None:
        self._answer, self._as_packed = answer, as_packed
        length = len(answer["body"]) if as_packed else answer["plain_bytes"]
        super().__init__(None, answer["status"], {**headers, "Content-Length": str(length)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, then the body in pieces; uvicorn waits between them until the client has read enough."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in () if scope["method"] == "HEAD" else self._pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pieces(self) -> Iterator[bytes]:
        body = self._answer["body"]
        if self._as_packed or not self._answer["packed"]:
            yield from (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
            return
        unpacking = decompressobj(wbits=31)
        for at in range(0, len(body), PACKED_PIECE_BYTES):
            yield unpacking.decompress(body[at : at + PACKED_PIECE_BYTES])
        yield unpacking.flush()


def refusal_response(request: Request, refusal: HttpRefusal) -> Response:
    """Return the response to a refused request: a page for browsers, else JSON."""
    language = language_of(request)
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    from whichgpu.surface.web.rendering import error_page

    retry = request.url.path if refusal.kind in RETRIED_KINDS and request.method == "GET" else ""
    reply = error_page(refusal.error(), "html" if wants_page else "json", language, query=request.url.query, retry=retry)
    headers = {"Cache-Control": "no-store", **headers_of(language.code), **refusal.headers}
    response = Response(reply.body, refusal.status, headers)
    response.headers["Content-Type"] = reply.content_type
    return response


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an HTTP response with a value as JSON, for small documents such as the state of a job."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def _accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header accepts gzip (RFC 9110; weights between encodings are ignored)."""
    offered = (part.strip().lower().partition(";") for part in header.split(","))
    return any(
        name.strip() in ("gzip", "*") and q.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
        for name, _, q in offered
    )


def has_already(request: Request, tag: str) -> bool:
    """Whether a client has the answer with this entity tag, by its If-None-Match header."""
    header = request.headers.get("if-none-match", "")
    tags = [part.strip().removeprefix("W/").strip('"').removesuffix("-gz") for part in header.split(",")]
    return tag in tags or header.strip() == "*"


def wants_csv(request: Request) -> bool:
    """Whether an Accept header prefers CSV to JSON (RFC 9110)."""
    weights = {"text/csv": 0.0, "application/json": 0.0}
    for part in request.headers.get("accept", "").split(","):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        if kind in weights:
            with contextlib.suppress(ValueError):
                weights[kind] = float(weight)
    return weights["text/csv"] > weights["application/json"]
