"""Reader of a request's body with limits of size and time; a compressed body is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from whichgpu.surface.web.responses import HttpRefusal


async def body_parts(request: Request, max_bytes: int, seconds: float) -> AsyncIterator[bytes]:
    """Yield parts of an HTTP request's body as they arrive; raise `HttpRefusal` beyond `max_bytes` or `seconds`."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HttpRefusal(415, "encoding")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > max_bytes:
        raise HttpRefusal(413, "too-large", None, most=_size(max_bytes))
    received, end = 0, asyncio.get_running_loop().time() + seconds
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(end):
                part = await anext(stream, None)
        except TimeoutError:
            raise HttpRefusal(408, "slow-body", None, seconds=f"{seconds:g}") from None
        except ClientDisconnect:
            raise HttpRefusal(400, "bad-request") from None
        if part is None:
            return
        received += len(part)
        if received > max_bytes:
            raise HttpRefusal(413, "too-large", None, most=_size(max_bytes))
        if part:
            yield part


async def json_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Return the body of an HTTP request; raise `HttpRefusal` if it is not JSON, longer than `max_bytes` or too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpRefusal(415, "not-json")
    return b"".join([part async for part in body_parts(request, max_bytes, seconds)])


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
