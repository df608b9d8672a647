"""What the server and its workers say to each other: msgpack values, each after its length in four bytes."""

from __future__ import annotations

import asyncio
from typing import Any, BinaryIO

import msgspec

LENGTH = 4


class TooLong(Exception):
    """A frame longer than allowed."""


def packed(value: object) -> bytes:
    """A value on its way."""
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(LENGTH, "big") + body


def read_frame(stream: BinaryIO) -> Any:
    """The next value of a pipe, or None at its end."""
    head = stream.read(LENGTH)
    if len(head) < LENGTH:
        return None
    return msgspec.msgpack.decode(stream.read(int.from_bytes(head, "big")))


async def receive(stream: asyncio.StreamReader, most: int) -> Any:
    """The next value; raises IncompleteReadError where the other side is gone."""
    length = int.from_bytes(await stream.readexactly(LENGTH), "big")
    if length > most:
        raise TooLong
    return msgspec.msgpack.decode(await stream.readexactly(length))
