"""Replies of the server itself: an answer with its tag, compressed where that is welcome, and every refusal in one shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import decompress

from starlette.requests import Request
from starlette.responses import Response

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language, language, languages, msg

REVALIDATE = "private, no-cache"
FOREVER = "private, max-age=31536000, immutable"


class Refusal(Exception):
    """The server itself says no: a status, a kind for programs, ids of the message and hint, and headers of its own."""

    def __init__(self, status: int, kind: str, headers: Mapping[str, str] | None = None, **values: object) -> None:
        super().__init__(status, kind)
        self.status, self.kind, self.headers, self.values = status, kind, dict(headers or {}), values

    def error(self) -> WhichGpuError:
        """The same as one of our errors."""
        return WhichGpuError(self.kind, msg(f"error.web-{self.kind}", **self.values), msg(f"hint.web-{self.kind}", **self.values))


def language_of(request: Request) -> Language:
    """The language asked for: by name, else the first of the browser's that there is."""
    named = request.query_params.get("lang")
    wanted = (
        [named] if named else [part.partition(";")[0] for part in request.headers.get("accept-language", "")[:200].split(",")]
    )
    for code in wanted:
        short = code.strip().lower()[:2]
        if short in languages():
            return language(short)
    return language("en")


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
    body = answer["body"]
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    elif answer["packed"]:
        body = decompress(body, wbits=31)
    reply = Response(body, answer["status"], headers)
    reply.headers["Content-Type"] = answer["content"]
    return reply


def refused(request: Request, refusal: Refusal) -> Response:
    """As a page for those who look, else in the one shape errors have."""
    speech = language_of(request)
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    from whichgpu.surface.web.drawing import problem

    told = problem(refusal.error(), "html" if wants_page else "json", speech)
    headers = {"Cache-Control": "no-store", **refusal.headers}
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
