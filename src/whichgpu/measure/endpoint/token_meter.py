"""Tokens that a running engine makes while GPUs are watched, read from its `/metrics`."""

from __future__ import annotations

import http.client

import msgspec

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.measure.endpoint.address import VERSION_PATH, Address
from whichgpu.measure.endpoint.client import failure
from whichgpu.workload.traces.server_metrics import TokenTotals, token_totals

PATH = "/metrics"  # of vLLM and of SGLang, which has it with --enable-metrics
TIMEOUT_SECONDS = 5.0  # Longest wait for the metrics: readings go on without them (assumed).
MAX_BYTES = 16 << 20  # Longest text of metrics that is read (assumed).


class EngineTokens(msgspec.Struct, frozen=True):
    """Tokens since the watch began, and whether the engine answered the last time."""

    engine: str
    input_tokens: float
    output_tokens: float
    is_answering: bool


class TokenMeter:
    """Adds up an engine's tokens from reading to reading, also over restarts of the engine, which begin at zero."""

    def __init__(self, address: Address) -> None:
        """Read the counters once; raise an error if the server has none."""
        self._address = address
        self._last = read_totals(address)
        self._tokens = EngineTokens(self._last.engine, 0.0, 0.0, True)

    def read(self) -> EngineTokens:
        """Return the tokens until now; those of the reading before if the engine does not answer."""
        last = self._last
        try:
            totals = read_totals(self._address)
        except (NoAnswer, UsageError):
            return msgspec.structs.replace(self._tokens, is_answering=False)
        added = [
            now - before if now >= before else now
            for now, before in ((totals.input_tokens, last.input_tokens), (totals.output_tokens, last.output_tokens))
        ]
        before = self._tokens
        self._last = totals
        self._tokens = EngineTokens(before.engine, before.input_tokens + added[0], before.output_tokens + added[1], True)
        return self._tokens


def read_totals(address: Address) -> TokenTotals:
    """Return the counters of a server; raise an error if it does not answer or has no such counters."""
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=TIMEOUT_SECONDS)
    path = address.prefix.removesuffix(VERSION_PATH) + PATH
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as problem:
        raise failure(address, f"{path}: {problem}") from problem
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise failure(address, f"{path}: HTTP {response.status}")
    return token_totals(path, body.decode("utf-8", "replace").splitlines())
