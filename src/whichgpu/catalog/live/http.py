"""Asking servers politely and guardedly: time-outs, retries, conditional requests, limits on size, time and redirects.

httpx respects HTTP_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE. Keys go in headers, never in addresses, and are
not sent on to another host. A body is downloaded to a temporary file, so that a large one needs no memory and a broken
one is asked for again before anything is read of it.
"""

from __future__ import annotations

import io
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.units import parse_whole_number
from whichgpu.base.version import __version__
from whichgpu.catalog.live.rows import Validators

if TYPE_CHECKING:
    import httpx

MIB = 1 << 20
MOST = 64 * MIB  # of a body once unpacked, unless a source knows it to be larger
CHUNK = 1 << 16
ATTEMPTS = 4
CONNECT = 3.0  # seconds a connection may take, to each address of a host
UNCONNECTED = 4.0  # seconds after which a host that nobody could connect to is not tried again
REDIRECTS = 5
LONGEST_WAIT = 120.0  # seconds a server may ask us to wait before we give up
LONGEST_BODY = 900.0  # seconds
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
MOVED = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Reply:
    """A body, and what makes the next request for it conditional. `body` is None where nothing has changed."""

    body: IO[bytes] | None
    validators: Validators
    modified: datetime | None = None

    def bytes(self) -> bytes:
        """The whole body, once."""
        assert self.body is not None
        with self.body as body:
            return body.read()

    def lines(self) -> Iterator[str]:
        """The body as lines of text, once; the file is let go with the last."""
        assert self.body is not None
        with io.TextIOWrapper(self.body, "utf-8", newline="") as text:
            yield from text


@dataclass(slots=True)
class Client:
    """One source's way to the network. `known` holds the validators of the last look, by address."""

    known: Mapping[str, Validators] = field(default_factory=dict)
    progress: Callable[[int, int | None], None] | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    attempts: int = ATTEMPTS
    longest_body: float = LONGEST_BODY
    timeout: float = 30.0
    _unreached: set[str] = field(default_factory=set)  # hosts that could not be connected to: not tried address by address
    _client: httpx.Client | None = None

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, most: int = MOST, conditional: bool = True) -> Reply:
        """The body at an address; where the server says it is the one we know, none."""
        asked = dict(headers or {})
        known = self.known.get(url) if conditional else None
        if known and known.etag:
            asked["If-None-Match"] = known.etag
        if known and known.modified:
            asked["If-Modified-Since"] = known.modified
        return self._patiently(url, lambda: self._once("GET", url, asked, None, most))

    def post(self, url: str, body: bytes, *, headers: Mapping[str, str] | None = None, most: int = MOST) -> Reply:
        """The answer to a question sent as JSON; the questions of our sources change nothing, so they may be repeated."""
        asked = {"Content-Type": "application/json", **(headers or {})}
        return self._patiently(url, lambda: self._once("POST", url, asked, body, most))

    def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _patiently(self, url: str, attempt: Callable[[], Reply]) -> Reply:
        """Try again what may pass, waiting longer each time and as long as the server asks."""
        import httpx

        host, began = httpx.URL(url).netloc.decode("ascii", "replace"), self.clock()
        if host in self._unreached:
            raise _failed("still-unreachable", url)
        for number in range(self.attempts):
            last = number + 1 == self.attempts
            try:
                return attempt()
            except _Again as problem:
                if last or problem.wait > LONGEST_WAIT:
                    raise _failed("status", url, status=problem.status, wait=round(problem.wait)) from problem
                wait = problem.wait
            except (httpx.TransportError, _Broken) as problem:
                unconnected = isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError)
                last = last or (unconnected and self.clock() - began > UNCONNECTED)
                if last and unconnected:
                    self._unreached.add(host)
                if last or isinstance(problem, httpx.UnsupportedProtocol):
                    raise _failed("unreachable", url, why=str(problem) or type(problem).__name__) from problem
                wait = 0.0
            self.sleep(max(wait, 0.5 * 2**number + random.uniform(0, 0.25)))
        raise AssertionError("unreachable")

    def _once(self, method: str, url: str, headers: dict[str, str], body: bytes | None, most: int) -> Reply:
        with self._sent(method, url, headers, body) as response:
            if response.status_code == 304:
                return Reply(None, self.known[url])
            if response.status_code in AGAIN:
                raise _Again(response.status_code, _retry_after(response.headers.get("Retry-After")))
            if response.status_code != 200:
                raise _failed("status", url, status=response.status_code, wait=0)
            validators = Validators(url, response.headers.get("ETag"), response.headers.get("Last-Modified"))
            modified = _date(response.headers.get("Last-Modified"))
            return Reply(self._download(response, url, most), validators, modified)

    @contextmanager
    def _sent(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> Iterator[httpx.Response]:
        """The response at the end of at most a few redirects, none to another protocol, none with our keys to another host."""
        import httpx

        where = httpx.URL(url)
        for _ in range(REDIRECTS + 1):
            request = self._opened().build_request(method, where, headers=headers, content=body)
            response = self._opened().send(request, stream=True)
            try:
                if response.status_code not in MOVED:
                    yield response
                    return
                target = where.join(response.headers.get("Location", ""))
            finally:
                response.close()
            if target.scheme not in ("http", "https") or (where.scheme == "https" and target.scheme != "https"):
                raise _failed("redirect", url, to=str(target))
            if (target.host, target.port) != (where.host, where.port):
                headers = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
            if response.status_code == 303 or (response.status_code in (301, 302) and method == "POST"):
                method, body = "GET", None
            where = target
        raise _failed("redirect", url, to=str(where))

    def _download(self, response: httpx.Response, url: str, most: int) -> IO[bytes]:
        """The body, unpacked, in a file that vanishes when let go; refused when it grows past its limits."""
        stated = response.headers.get("Content-Length", "")
        plain = stated.isascii() and stated.isdigit() and "Content-Encoding" not in response.headers
        total = parse_whole_number(stated, most) if plain else None
        if plain and total is None:
            raise _failed("too-large", url, most=most // MIB)
        began, size = self.clock(), 0
        file = tempfile.SpooledTemporaryFile(max_size=8 * MIB)  # noqa: SIM115 - handed to the caller
        try:
            for part in _unpacked(response):
                size += len(part)
                if size > most:
                    raise _failed("too-large", url, most=most // MIB)
                if self.clock() - began > self.longest_body:
                    raise _failed("too-slow", url, seconds=round(self.longest_body))
                file.write(part)
                if self.progress is not None:
                    self.progress(size, total)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def _opened(self) -> httpx.Client:
        if self._client is None:
            import httpx

            timeout = httpx.Timeout(self.timeout, connect=CONNECT)
            agent = {"User-Agent": f"whichgpu/{__version__} (prices)", "Accept-Encoding": "gzip"}
            self._client = httpx.Client(timeout=timeout, headers=agent, follow_redirects=False, trust_env=True)
        return self._client


_HARMLESS = frozenset({"content-type", "accept", "if-none-match", "if-modified-since"})


class _Broken(Exception):
    """A body that does not unpack to its end."""


def _unpacked(response: httpx.Response) -> Iterator[bytes]:
    """The body as it comes, in pieces of bounded size. httpx unpacks too, but takes a gzip that breaks off for a whole one."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "identity":
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip"):
        raise _Broken(f"unknown encoding {encoding}")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        for part in response.iter_raw():
            rest = part
            while rest:
                yield unpacker.decompress(rest, CHUNK)
                rest = unpacker.unused_data or unpacker.unconsumed_tail
                if unpacker.eof and rest:
                    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    except zlib.error as problem:
        raise _Broken(str(problem)) from problem
    if not unpacker.eof:
        raise _Broken("gzip breaks off")


class _Again(Exception):
    """The server asks to come back later."""

    def __init__(self, status: int, wait: float) -> None:
        super().__init__(status)
        self.status = status
        self.wait = wait


def _retry_after(text: str | None) -> float:
    """Seconds to wait, of a number or a date; 0 where the server does not say."""
    if text is None:
        return 0.0
    if text.isascii() and text.strip(" \t").isdigit():
        return float(text)
    when = _date(text)
    return max(0.0, (when - datetime.now(UTC)).total_seconds()) if when else 0.0


def _date(text: str | None) -> datetime | None:
    try:
        when = parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):  # the latter of a year or a zone of very many digits
        return None
    return when.replace(tzinfo=UTC) if when and when.tzinfo is None else when


def _failed(kind: str, url: str, **values: Any) -> DataError:
    import httpx

    where = httpx.URL(url).copy_with(query=None)
    return DataError(f"http-{kind}", msg(f"error.http-{kind}", url=str(where), **values), msg("hint.http"))
