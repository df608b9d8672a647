"""The body of a request, read within bounds of size and time. Nothing is ever unpacked: a compressed body is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from whichgpu.surface.web.responses import Refusal


async def body_parts(request: Request, most: int, seconds: float) -> AsyncIterator[bytes]:
    """Its parts as they come."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal(415, "encoding")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > most:
        raise Refusal(413, "too-large", None, most=_size(most))
    taken, end = 0, asyncio.get_running_loop().time() + seconds
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(end):
                part = await anext(stream, None)
        except TimeoutError:
            raise Refusal(408, "slow-body", None, seconds=f"{seconds:g}") from None
        except ClientDisconnect:
            raise Refusal(400, "bad-request") from None
        if part is None:
            return
        taken += len(part)
        if taken > most:
            raise Refusal(413, "too-large", None, most=_size(most))
        if part:
            yield part


async def json_body(request: Request, most: int, seconds: float) -> bytes:
    """A body that says it is JSON, whole."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "not-json")
    return b"".join([part async for part in body_parts(request, most, seconds)])


def _size(most: int) -> str:
    return f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
