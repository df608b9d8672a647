"""The Model Context Protocol over standard input and output: one line per message, calls of tools one at a time."""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout
from threading import Lock
from typing import Any, BinaryIO

import msgspec

from whichgpu.base.messages import Language
from whichgpu.surface.mcp.protocol import SLOW_METHODS, ProtocolError, error_reply, is_request, parse, reply_to

MAX_LINE_BYTES = 4 << 20  # Largest message of a client; far above a request with a whole config.json (assumed).


def serve(source: BinaryIO, sink: BinaryIO, language: Language) -> None:
    """Answer a client's messages until it closes its end.

    Tools compute in a thread of their own, so that pings and cancellations are handled meanwhile.
    """
    lock = Lock()

    def send(reply: dict[str, Any]) -> None:
        with lock:
            sink.write(msgspec.json.encode(reply) + b"\n")
            sink.flush()

    pending: dict[Any, Future[None]] = {}

    def compute(message: dict[str, Any]) -> None:
        send(reply_to(message, language))

    # Standard output carries messages only.
    with redirect_stdout(sys.stderr), ThreadPoolExecutor(1) as tools:
        while line := _line(source):
            try:
                message = parse(line)
            except ProtocolError as problem:
                send(error_reply(None, problem))
                continue
            if message.get("method") == "notifications/cancelled":
                _cancel(message, pending)
            elif is_request(message) and message.get("method") in SLOW_METHODS:
                pending = {id: call for id, call in pending.items() if not call.done()}
                pending[repr(message["id"])] = tools.submit(compute, message)
            elif is_request(message):
                compute(message)


def _line(source: BinaryIO) -> bytes:
    """Return the next line that is not blank; b"" at the end; a line over the limit is cut, so that it is refused as not JSON."""
    while line := source.readline(MAX_LINE_BYTES):
        if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
            while (rest := source.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            return line
        if line.strip():
            return line
    return b""


def _cancel(message: dict[str, Any], pending: dict[Any, Future[None]]) -> None:
    """Drop a call that has not started; the reply to a running one is sent all the same, as the protocol permits."""
    params = message.get("params")
    if isinstance(params, dict) and (call := pending.get(repr(params.get("requestId")))):
        call.cancel()
