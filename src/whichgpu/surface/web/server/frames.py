"""Messages between the server and its workers: msgpack values, each preceded by its length in four bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

LENGTH_BYTES = 4  # Bytes before each frame that state its length.
Question = Mapping[str, Any]  # A question to a worker: its `kind`, and values by name.


class FrameTooLong(Exception):
    """Raised for a message between server and worker that is longer than allowed."""


def pack_frame(value: object) -> bytes:
    """Return a value in msgpack, preceded by its length in four bytes."""
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_frame(stream: BinaryIO) -> Any:
    """Return the next msgpack value of a pipe, or None at the pipe's end."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    return msgspec.msgpack.decode(stream.read(int.from_bytes(head, "big")))


async def receive_frame(stream: asyncio.StreamReader, max_bytes: int) -> Any:
    """Return the next msgpack value of a stream; raise `IncompleteReadError` if the other side is gone."""
    length = int.from_bytes(await stream.readexactly(LENGTH_BYTES), "big")
    if length > max_bytes:
        raise FrameTooLong
    return msgspec.msgpack.decode(await stream.readexactly(length))
