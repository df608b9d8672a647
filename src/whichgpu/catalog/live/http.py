"""HTTP client with time-outs, retries, conditional requests, and limits on size, time and redirects.

httpx respects HTTP_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE. Keys are sent in headers only, and never to another host. A
body is downloaded to a temporary file: a large one needs no memory, a broken one is retried before it is read.
"""

from __future__ import annotations

import io
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any

import msgspec

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.units import MIB, parse_whole_number
from whichgpu.base.version import __version__

if TYPE_CHECKING:
    import httpx

MAX_BODY_BYTES = 64 * MIB  # Largest body after decompression, unless a source allows more.
CHUNK_BYTES = 1 << 16  # Bytes read from the network at a time (set by judgement).
ATTEMPTS = 4  # How often a request is sent at most, including the first time (set by judgement).
CONNECT_SECONDS = 3.0  # Seconds to wait for a connection to each address of a host.
UNREACHABLE_SECONDS = 4.0  # A host that could not be connected to within this many seconds is not tried again.
MAX_REDIRECTS = 5  # Redirects followed for one request (set by judgement).
MAX_RETRY_AFTER_SECONDS = 120.0  # A server that asks for a longer wait counts as failed (set by judgement).
MAX_BODY_SECONDS = 900.0  # Seconds to download one body (set by judgement).
RETRY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
Headers = Mapping[str, str]


class Validators(msgspec.Struct, frozen=True):
    """ETag and Last-Modified of an HTTP response, with which the next request of its URL is conditional."""

    url: str
    etag: str | None
    modified: str | None


class Download(msgspec.Struct, frozen=True):
    """A response body (None if unchanged) with the validators for the next conditional request."""

    body: IO[bytes] | None
    validators: Validators
    modified: datetime | None = None

    def bytes(self) -> bytes:
        """Read the whole response body and close it."""
        assert self.body is not None
        with self.body as body:
            return body.read()

    def lines(self) -> Iterator[str]:
        """Yield the response body as lines of text and close it."""
        assert self.body is not None
        with io.TextIOWrapper(self.body, "utf-8", newline="") as text:
            yield from text


class Client(msgspec.Struct):
    """HTTP client of one price source; `validators` are those of earlier responses by URL."""

    validators: Mapping[str, Validators] = msgspec.field(default_factory=dict)
    progress: Callable[[int, int | None], None] | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    attempts: int = ATTEMPTS
    max_body_seconds: float = MAX_BODY_SECONDS
    timeout: float = 30.0
    _unreachable: set[str] = msgspec.field(default_factory=set)  # hosts that could not be connected to and are not tried again
    _client: httpx.Client | None = None

    def get(
        self, url: str, *, headers: Headers | None = None, max_bytes: int = MAX_BODY_BYTES, conditional: bool = True
    ) -> Download:
        """GET a URL; the body is None if the server says it is unchanged."""
        sent = dict(headers or {})
        validators = self.validators.get(url) if conditional else None
        if validators and validators.etag:
            sent["If-None-Match"] = validators.etag
        if validators and validators.modified:
            sent["If-Modified-Since"] = validators.modified
        return self._with_retries(url, lambda: self._attempt("GET", url, sent, None, max_bytes))

    def post(self, url: str, body: bytes, *, headers: Headers | None = None, max_bytes: int = MAX_BODY_BYTES) -> Download:
        """POST a JSON query, which is retried like GET since the queries of sources change nothing."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        return self._with_retries(url, lambda: self._attempt("POST", url, sent, body, max_bytes))

    def close(self) -> None:
        """Close the client's HTTP connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _with_retries(self, url: str, attempt: Callable[[], Download]) -> Download:
        """Repeat a request after temporary failures, with exponential backoff and for as long as the server asks."""
        import httpx

        host, began = httpx.URL(url).netloc.decode("ascii", "replace"), self.clock()
        if host in self._unreachable:
            raise _failed("still-unreachable", url)
        for number in range(self.attempts):
            last = number + 1 == self.attempts
            try:
                return attempt()
            except _RetryLater as problem:
                if last or problem.wait > MAX_RETRY_AFTER_SECONDS:
                    raise _failed("status", url, status=problem.status, wait=round(problem.wait)) from problem
                wait = problem.wait
            except (httpx.TransportError, _BrokenBody) as problem:
                unconnected = isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError)
                last = last or (unconnected and self.clock() - began > UNREACHABLE_SECONDS)
                if last and unconnected:
                    self._unreachable.add(host)
                if last or isinstance(problem, httpx.UnsupportedProtocol):
                    raise _failed("unreachable", url, why=str(problem) or type(problem).__name__) from problem
                wait = 0.0
            self.sleep(max(wait, 0.5 * 2**number + random.uniform(0, 0.25)))
        raise AssertionError("unreachable")

    def _attempt(self, method: str, url: str, headers: dict[str, str], body: bytes | None, max_bytes: int) -> Download:
        with self._send(method, url, headers, body) as response:
            if response.status_code == 304:
                return Download(None, self.validators[url])
            if response.status_code in RETRY_STATUS:
                raise _RetryLater(response.status_code, _retry_after(response.headers.get("Retry-After")))
            if response.status_code != 200:
                raise _failed("status", url, status=response.status_code, wait=0)
            validators = Validators(url, response.headers.get("ETag"), response.headers.get("Last-Modified"))
            modified = _date(response.headers.get("Last-Modified"))
            return Download(self._download(response, url, max_bytes), validators, modified)

    @contextmanager
    def _send(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> Iterator[httpx.Response]:
        """Send a request and follow redirects, but not to another protocol, and without our keys to another host."""
        import httpx

        where = httpx.URL(url)
        for _ in range(MAX_REDIRECTS + 1):
            request = self._http().build_request(method, where, headers=headers, content=body)
            response = self._http().send(request, stream=True)
            try:
                if response.status_code not in REDIRECT_STATUS:
                    yield response
                    return
                target = where.join(response.headers.get("Location", ""))
            finally:
                response.close()
            if target.scheme not in ("http", "https") or (where.scheme == "https" and target.scheme != "https"):
                raise _failed("redirect", url, to=str(target))
            if (target.host, target.port) != (where.host, where.port):
                headers = {name: value for name, value in headers.items() if name.lower() in _FORWARDED_HEADERS}
            if response.status_code == 303 or (response.status_code in (301, 302) and method == "POST"):
                method, body = "GET", None
            where = target
        raise _failed("redirect", url, to=str(where))

    def _download(self, response: httpx.Response, url: str, max_bytes: int) -> IO[bytes]:
        """Download and unpack a response body to a temporary file; raise if it exceeds its limits of size or time."""
        stated = response.headers.get("Content-Length", "")
        plain = stated.isascii() and stated.isdigit() and "Content-Encoding" not in response.headers
        total = parse_whole_number(stated, max_bytes) if plain else None
        if plain and total is None:
            raise _failed("too-large", url, most=max_bytes // MIB)
        began, size = self.clock(), 0
        file = tempfile.SpooledTemporaryFile(max_size=8 * MIB)  # noqa: SIM115 - the caller closes it
        try:
            for part in _unpack(response):
                size += len(part)
                if size > max_bytes:
                    raise _failed("too-large", url, most=max_bytes // MIB)
                if self.clock() - began > self.max_body_seconds:
                    raise _failed("too-slow", url, seconds=round(self.max_body_seconds))
                file.write(part)
                if self.progress is not None:
                    self.progress(size, total)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def _http(self) -> httpx.Client:
        if self._client is None:
            import httpx

            timeout = httpx.Timeout(self.timeout, connect=CONNECT_SECONDS)
            agent = {"User-Agent": f"whichgpu/{__version__} (prices)", "Accept-Encoding": "gzip"}
            self._client = httpx.Client(timeout=timeout, headers=agent, follow_redirects=False, trust_env=True)
        return self._client


_FORWARDED_HEADERS = frozenset({"content-type", "accept", "if-none-match", "if-modified-since"})


class _BrokenBody(Exception):
    """Error: an HTTP body that cannot be unpacked completely."""


def _unpack(response: httpx.Response) -> Iterator[bytes]:
    """Yield an HTTP body decompressed, in chunks of bounded size; httpx would accept a truncated gzip."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "identity":
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip"):
        raise _BrokenBody(f"unknown encoding {encoding}")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        for part in response.iter_raw():
            rest = part
            while rest:
                yield unpacker.decompress(rest, CHUNK_BYTES)
                rest = unpacker.unused_data or unpacker.unconsumed_tail
                if unpacker.eof and rest:
                    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    except zlib.error as problem:
        raise _BrokenBody(str(problem)) from problem
    if not unpacker.eof:
        raise _BrokenBody("gzip breaks off")


class _RetryLater(Exception):
    """Error: the HTTP server asks to retry later."""

    def __init__(self, status: int, wait: float) -> None:
        super().__init__(status)
        self.status = status
        self.wait = wait


def _retry_after(text: str | None) -> float:
    """Return the seconds to wait from a Retry-After header (a number or a date); 0 without one."""
    if text is None:
        return 0.0
    if text.isascii() and text.strip(" \t").isdigit():
        return float(text)
    when = _date(text)
    return max(0.0, (when - datetime.now(UTC)).total_seconds()) if when else 0.0


def _date(text: str | None) -> datetime | None:
    try:
        when = parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):  # OverflowError: a year or a time zone of very many digits.
        return None
    return when.replace(tzinfo=UTC) if when and when.tzinfo is None else when


def _failed(kind: str, url: str, **values: Any) -> DataError:
    import httpx

    where = httpx.URL(url).copy_with(query=None)
    return DataError(f"http-{kind}", msg(f"error.http-{kind}", url=str(where), **values), msg("hint.http"))
