"""HTTP client of an OpenAI-compatible server, with the standard library alone: what it serves, and one streamed completion."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.measure.endpoint.address import VERSION_PATH, Address

TIMEOUT_SECONDS = 120.0  # Longest silence of a server (assumed: a first request may compile kernels).
MAX_ANSWER_BYTES = 64 << 20  # Longest answer that is read (assumed).
READ_BYTES = 1 << 16  # Largest piece of an answer read at once.
# Token ids of prompts: above special tokens, below the vocabulary of common models (assumed).
FIRST_TOKEN, LAST_TOKEN = 1000, 20_000
WORDS = ("time", "house", "water", "light", "stone", "river", "table", "green", "paper", "music")  # About one token each.


class CompletionForm(NamedTuple):
    """How a completion is requested: the path, whether the prompt is token ids, and whether the answer's length is forced.

    The last one (`ignore_eos`) is an extension of vLLM, SGLang and llama.cpp that strict servers refuse.
    """

    path: str
    has_ids: bool
    is_forced: bool = True


FORMS = tuple(  # The most exact first.
    CompletionForm(path, has_ids, is_forced)
    for is_forced in (True, False)
    for path, has_ids in (("/completions", True), ("/completions", False), ("/chat/completions", False))
)


class StreamedAnswer(msgspec.Struct, frozen=True):
    """One streamed completion: when it was sent, when each piece arrived (monotonic seconds), and its tokens."""

    sent: float
    arrivals: tuple[float, ...]
    tokens_in: int
    tokens_out: int

    @property
    def ttft(self) -> float:
        """Return the time to the first token in seconds."""
        return self.arrivals[0] - self.sent

    @property
    def tpot(self) -> float | None:
        """Return the mean time per output token after the first, in seconds; None for a single token."""
        return (self.arrivals[-1] - self.arrivals[0]) / (self.tokens_out - 1) if self.tokens_out > 1 else None

    @property
    def pieces_per_token(self) -> float:
        """Return how many pieces arrived per token after the first: below 1 if the server joins tokens."""
        return (len(self.arrivals) - 1) / (self.tokens_out - 1) if self.tokens_out > 1 else 1.0


class ListedModel(msgspec.Struct, frozen=True):
    """The model of a server by its own name, its engine and version if it reports them, and its longest context in tokens."""

    id: str
    owner: str | None = None
    version: str | None = None
    max_tokens: int | None = None


class RefusedForm(Exception):
    """The server does not accept requests of this form."""


class LateAnswer(Exception):
    """The last moment for an answer came before it was complete."""


class EndpointClient:
    """One connection to a server, kept open between requests; not shared by threads.

    At `last_moment` (monotonic seconds) the connection is shut down, however slowly the server still sends.
    """

    def __init__(self, address: Address, key: str | None, last_moment: float) -> None:
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        seconds = max(0.001, last_moment - time.perf_counter())
        self._connection = kind(address.host, address.port, timeout=min(TIMEOUT_SECONDS, seconds))
        self._address = address
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._socket: socket.socket | None = None
        self._is_late = False
        self._last_moment = last_moment
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Close the connection."""
        self._timer.cancel()
        self._connection.close()

    def _shut_down(self) -> None:
        """End all waiting for the server, also of a response that the connection has handed its socket to."""
        self._is_late = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> bool:
        """Connect unless there is a connection; return whether it is new."""
        if self._connection.sock is not None:
            return False
        self._connection.connect()
        self._socket = self._connection.sock
        self._check_time()  # The last moment may have come while there was no socket to shut down.
        return True

    def _check_time(self) -> None:
        if self._is_late or time.perf_counter() >= self._last_moment:
            self._connection.close()
            raise LateAnswer

    def served_model(self) -> ListedModel:
        """Return the first model that the server lists."""
        document = self._get(self._address.prefix + "/models")
        rows = document.get("data") if isinstance(document, dict) else None
        first = rows[0] if isinstance(rows, list) and rows else None
        if not isinstance(first, dict) or not isinstance(first.get("id"), str):
            raise failure(self._address, "the list of models is empty or malformed")
        owner, longest = first.get("owned_by"), first.get("max_model_len")
        return ListedModel(
            first["id"], owner if isinstance(owner, str) else None, self._version(), longest if isinstance(longest, int) else None
        )

    def _version(self) -> str | None:
        """Return the engine's version where it has a path of its own for it, as vLLM does."""
        try:
            document = self._get(self._address.prefix.removesuffix(VERSION_PATH) + "/version")
        except NoAnswer:
            return None
        version = document.get("version") if isinstance(document, dict) else None
        return version[:40] if isinstance(version, str) else None

    def _get(self, path: str) -> Any:
        try:
            self._connect()
            self._connection.request("GET", path, headers=self._headers)
            with self._connection.getresponse() as response:
                body = response.read(MAX_ANSWER_BYTES)
            self._check_time()
            if response.status != 200:
                raise failure(self._address, f"{path}: HTTP {response.status} {_excerpt(body)}")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as problem:
            self._check_time()
            self._connection.close()
            raise failure(self._address, f"{path}: {problem}") from problem

    def complete(self, form: CompletionForm, model: str, tokens_in: int, tokens_out: int, seed: int) -> StreamedAnswer:
        """Return the timing of one streamed completion of random input.

        Raise `RefusedForm` if the form is not accepted, and `LateAnswer` if the last moment came before its end.
        """
        body = json.dumps(_body(form, model, tokens_in, tokens_out, seed)).encode()
        try:
            sent, response = self._post(self._address.prefix + form.path, body)
            with response:
                if response.status != 200:
                    raise self._refusal(response.status, response.read(MAX_ANSWER_BYTES))
                pieces = list(_pieces(response))
            self._check_time()
        except (OSError, http.client.HTTPException, ValueError) as problem:  # A TLS socket that is shut down raises ValueError.
            self._check_time()
            self._connection.close()
            raise failure(self._address, str(problem) or type(problem).__name__) from problem
        return _timing(sent, pieces, tokens_in, self._address)

    def _refusal(self, status: int, reply: bytes) -> RefusedForm | NoAnswer:
        """Return the exception for a reply that is no answer."""
        why = f"HTTP {status} {_excerpt(reply)}"
        return RefusedForm(why) if status in (400, 404, 405, 422) else failure(self._address, why)

    def _post(self, path: str, body: bytes) -> tuple[float, http.client.HTTPResponse]:
        """Return when a request was sent, and its response; a connection closed since the last request is opened again."""
        is_new = self._connect()
        sent = time.perf_counter()
        try:
            self._connection.request("POST", path, body, self._headers)
            return sent, self._connection.getresponse()
        except (ConnectionError, http.client.NotConnected):  # llama.cpp closes one that was silent for five seconds.
            self._connection.close()
            if is_new or self._is_late:
                raise
        return self._post(path, body)


def failure(address: Address, why: str) -> NoAnswer:
    """Return the error of a server that cannot be measured."""
    return NoAnswer("endpoint-failed", msg("error.endpoint-failed", url=address.url, why=why[:300]), msg("hint.endpoint-failed"))


def _body(form: CompletionForm, model: str, tokens_in: int, tokens_out: int, seed: int) -> dict[str, Any]:
    """Return a request of random input, so that no prefix cache answers it, and of a fixed number of output tokens."""
    draw = random.Random(seed)
    ids = [draw.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(tokens_in)] if form.has_ids else []
    text = "" if form.has_ids else " ".join(draw.choices(WORDS, k=tokens_in))
    prompt = {"messages": [{"role": "user", "content": text}]} if form.path.startswith("/chat") else {"prompt": ids or text}
    length = {"max_tokens": tokens_out, "temperature": 0.0, **({"ignore_eos": True} if form.is_forced else {})}
    return {"model": model, **prompt, **length, "stream": True, "stream_options": {"include_usage": True}}


def _pieces(response: http.client.HTTPResponse) -> Iterator[tuple[float, bytes]]:
    """Yield the pieces of an answer with the time of their arrival; they are parsed after the last one."""
    size = 0
    while piece := response.read1(READ_BYTES):
        yield time.perf_counter(), piece
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise http.client.HTTPException("the answer does not end")


def _timing(sent: float, pieces: Sequence[tuple[float, bytes]], tokens_in: int, address: Address) -> StreamedAnswer:
    arrivals: list[float] = []
    usage: dict[str, Any] = {}
    for moment, event in _events(pieces):
        if isinstance(event.get("usage"), dict):
            usage = event["usage"]
        if event.get("error"):
            raise failure(address, _excerpt(json.dumps(event["error"]).encode()))
        if _has_token(event):
            arrivals.append(moment)
    if not arrivals:
        raise failure(address, "the answer has no output tokens; is it streamed?")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, written = (count if isinstance(count, int) and 0 < count < 10**8 else None for count in counts)
    return StreamedAnswer(sent, tuple(arrivals), read or tokens_in, written or len(arrivals))


def _events(pieces: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the server-sent events of an answer, each with the time at which its last byte arrived."""
    rest = b""
    for moment, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            try:
                event = json.loads(line[5:])
            except (ValueError, RecursionError):  # The last event is `[DONE]`.
                continue
            if isinstance(event, dict):
                yield moment, event


def _has_token(event: dict[str, Any]) -> bool:
    """Whether an event carries output: a completion's event may have no text yet, a chat's first event has only the role."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(isinstance(delta.get(name), str) and delta[name] for name in ("content", "reasoning_content", "reasoning"))
    return bool(choice.get("text")) or (choice.get("text") == "" and choice.get("finish_reason") is None)


def _excerpt(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())
