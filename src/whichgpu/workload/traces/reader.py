"""Reader of request traces in published formats: one request per line, streamed and validated line by line.

Five formats are recognised by their columns (`SHAPES`), as CSV with a header or as JSON lines:

    TIMESTAMP, ContextTokens, GeneratedTokens            Azure's traces; dates
    timestamp, input_length, output_length, hash_ids     Mooncake's; milliseconds, blocks of 512 tokens known by number
    Timestamp, Request tokens, Response tokens           BurstGPT's; seconds; a failed request has one output token
    arrival_timestamp, prompt_size, token_size           those of Splitwise's simulator; seconds
    num_prefill_tokens, num_decode_tokens                lengths only (Vidur); the request rate gives the times

and the plain format `time, prompt, output` (seconds). Its columns may have other common names (`COLUMN_ALIASES`), such as
`prompt_tokens, output_tokens`, with or without a time. Logged replies of OpenAI-compatible servers, one per line, are read too: a
time and the counts in `usage`; `/metrics` of vLLM and SGLang, for lengths; and access logs, for times. Only numbers are stored, a
few bytes per request.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import numpy as np

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.traces.access_log import is_access_log, logged_times
from whichgpu.workload.traces.batches import Batch, csv_batches, in_order, json_batches, whole_tokens
from whichgpu.workload.traces.lines import (
    MAX_SECONDS,
    MAX_TOKENS,
    Columns,
    cells_of,
    check_once,
    csv_row,
    hashes_of,
    json_row,
    time_of,
    tokens_of,
    wrong,
)
from whichgpu.workload.traces.server_metrics import is_metrics, metric_lengths

MAX_REQUESTS = 5_000_000  # Largest number of requests in a trace; they take about 150 MB.
MAX_LINE_CHARACTERS = 1 << 20  # Longest line accepted (set by judgement).
CHUNK = 1 << 21  # Characters of a file that are read at a time.
# A chunk that cannot be parsed at once is retried in pieces of RETRY_LINES lines, and after MAX_RETRIES failures line by line.
RETRY_LINES, MAX_RETRIES = 512, 8
CHECKED_CHARACTERS = 1 << 16  # Characters that `check_trace` reads to reject a wrong file early.
GZIP = b"\x1f\x8b"  # The first bytes of a file packed by gzip.
UNREADABLE = (OSError, EOFError, zlib.error)  # What reading a file raises that is missing, locked, cut off or damaged.
MAX_CACHED_TRACES = 16  # Largest number of cached traces; all together have at most MAX_REQUESTS requests.
TraceProgress = Callable[[float], None]

SHAPES: tuple[Columns, ...] = (
    Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens", "date"),
    Columns("timestamp", "input_length", "output_length", "milliseconds", "hash_ids", 512),
    Columns("Timestamp", "Request tokens", "Response tokens", "seconds"),  # github.com/HPMLL/BurstGPT
    Columns("arrival_timestamp", "prompt_size", "token_size", "seconds"),  # github.com/Mutinifni/splitwise-sim
    Columns("", "num_prefill_tokens", "num_decode_tokens", "none"),
    Columns("time", "prompt", "output", "seconds"),
    Columns("arrived_at", "num_prefill_tokens", "num_decode_tokens", "seconds"),
)
# Accepted names of the plain format's columns; a `timestamp` may hold dates or seconds, depending on its values.
COLUMN_ALIASES: dict[str, tuple[str, ...]] = {
    "time": (
        *("time", "arrival_time", "arrived_at", "time_s", "seconds", "timestamp"),
        *("start_time", "starttime", "created", "created_at", "@timestamp"),  # logs of servers and gateways
    ),
    "prompt": (
        *("prompt", "prompt_tokens", "input_tokens", "tokens_in", "prompt_length", "input_length", "prompt_len", "input_len"),
    ),
    "output": (
        *("output", "output_tokens", "tokens_out", "completion_tokens", "generated_tokens", "response_tokens", "decode_tokens"),
        *("output_length", "completion_length", "output_len"),
    ),
}


class Trace(msgspec.Struct):
    """A request trace in order of arrival; `times` are seconds since the first request, empty if it has only lengths.

    Without `prompts` and `outputs` it has only times, and the request gives the lengths.
    """

    name: str
    times: array[float] = msgspec.field(default_factory=lambda: array("d"))
    prompts: array[int] = msgspec.field(default_factory=lambda: array("q"))
    outputs: array[int] = msgspec.field(default_factory=lambda: array("q"))
    hashes: list[array[int]] = msgspec.field(default_factory=list)
    hash_tokens: int = 0

    def __len__(self) -> int:
        return len(self.prompts) or len(self.times)

    @property
    def has_lengths(self) -> bool:
        """Whether the trace states token lengths, rather than arrival times alone."""
        return len(self.prompts) > 0

    @property
    def timed(self) -> bool:
        """Whether the trace states arrival times, rather than token lengths alone."""
        return len(self.times) > 0

    @property
    def span(self) -> float:
        """Return the seconds that the trace covers: up to the last request, plus the mean time between requests."""
        count = len(self.times)
        return self.times[-1] * count / (count - 1) if count > 1 else 0.0

    @property
    def rate(self) -> float | None:
        """Return the mean requests per second of the trace; None if it has no times or all requests arrive at once."""
        return len(self.times) / self.span if self.span > 0 else None


def read_trace(path: Path, progress: TraceProgress | None = None) -> Trace:
    """Read a file of requests (a trace); errors name the line. `progress` is called with the share of the file read."""
    try:
        with _opened(path) as stream:
            size = max(1, os.fstat(stream.fileno()).st_size)
            return _read(path.name, _chunks(path.name, stream, size, progress))
    except UNREADABLE as problem:
        raise _unreadable(path, problem) from problem


_CACHE: dict[tuple[str, int, int], Trace] = {}  # The last traces read, since a sweep or a plan reads the same one many times.


def cached_trace(path: Path, progress: TraceProgress | None = None) -> Trace:
    """Read a file of requests (a trace), cached while the file is unchanged; the result must not be modified."""
    try:
        file_state = path.stat()
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    key = (str(path.resolve()), file_state.st_mtime_ns, file_state.st_size)
    if key not in _CACHE:
        while len(_CACHE) >= MAX_CACHED_TRACES or (_CACHE and sum(map(len, _CACHE.values())) > MAX_REQUESTS):
            del _CACHE[next(iter(_CACHE))]
        _CACHE[key] = read_trace(path, progress)
    return _CACHE[key]


def check_trace(path: Path) -> None:
    """Raise early if a file is not a request trace or its first lines are invalid."""
    try:
        with _opened(path) as stream:
            text = stream.read(CHECKED_CHARACTERS)
            whole = len(text) < CHECKED_CHARACTERS
    except UNREADABLE as problem:
        raise _unreadable(path, problem) from problem
    if whole or "\n" in text:
        _read(path.name, iter([(1, (text if whole else text[: text.rindex("\n")]).split("\n"))]), whole)


def _opened(path: Path) -> TextIO:
    """Open a regular file, also one packed by gzip; raise for a pipe or device, which could block forever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as problem:  # The path is not a valid file name.
        raise OSError(errno.EINVAL, "not a name of a file", repr(path)) from problem
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if os.pread(descriptor, len(GZIP), 0) != GZIP:
        return open(descriptor, encoding="utf-8-sig", errors="replace")
    import gzip

    os.close(descriptor)
    return cast("TextIO", gzip.open(path, "rt", encoding="utf-8-sig", errors="replace"))


def _unreadable(path: Path, problem: Exception) -> UsageError:
    message = msg("error.trace-unreadable", path=str(path), why=getattr(problem, "strerror", None) or str(problem))
    return UsageError("trace-unreadable", message, msg("hint.trace-file"))


def _chunks(name: str, stream: TextIO, size: int, progress: TraceProgress | None) -> Iterator[tuple[int, list[str]]]:
    """Yield thousands of whole lines of a request trace at a time, with the number of the first; only these are in memory."""
    number, rest = 1, ""
    while text := stream.read(CHUNK):
        *lines, rest = (rest + text).split("\n")
        if len(rest) > MAX_LINE_CHARACTERS or (lines and max(map(len, lines)) > MAX_LINE_CHARACTERS):
            place = next((at for at, line in enumerate(lines) if len(line) > MAX_LINE_CHARACTERS), len(lines))
            raise wrong(name, number + place, msg("trace.long-line", most=f"{MAX_LINE_CHARACTERS:,}"))
        if lines:
            yield number, lines
        number += len(lines)
        if progress:
            progress(min(1.0, os.lseek(stream.fileno(), 0, os.SEEK_CUR) / size))
    if rest:
        yield number, [rest]


def _read(name: str, chunks: Iterator[tuple[int, list[str]]], whole: bool = True) -> Trace:
    """Read all chunks of lines of a request trace; no requests are an error unless only its start is read (`whole` is false)."""
    reader: _TraceReader | None = None
    last = 1
    for number, lines in chunks:
        start = 0
        if reader is None:
            start = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
            if start == len(lines):
                continue
            if is_metrics(lines[start]) or is_access_log(lines[start]):
                rest = chain(lines[start:], (line for _, more in chunks for line in more))
                return _read_server_file(name, number + start, rest, is_metrics(lines[start]), whole)
            reader = _TraceReader(name, number + start, lines[start])
            start += reader.headed
        reader.take(number + start, lines[start:])
        if not len(reader.trace):
            last = number + max((at for at, line in enumerate(lines) if line.strip()), default=0)
    if reader is None or not len(reader.trace):
        if whole:
            raise wrong(name, last, msg("trace.no-requests"))
        return Trace(name)
    return reader.trace


def _read_server_file(name: str, first: int, lines: Iterator[str], metrics: bool, whole: bool) -> Trace:
    """Read a server's metrics or access log; of the start of a file only that it is one of them is known."""
    if not whole:
        return Trace(name)
    if not metrics:
        return Trace(name, times=logged_times(name, first, lines))
    prompts, outputs = metric_lengths(name, first, lines)
    return Trace(name, prompts=prompts, outputs=outputs)


class _TraceReader:
    """Collects a request trace from its lines: many at once if all are regular, else line by line."""

    def __init__(self, name: str, number: int, line: str) -> None:
        self.name, self.trace = name, Trace(name)
        self.start = self.before = 0.0
        self.headed = not line.lstrip().startswith("{")
        self.header: list[str] = []
        if self.headed:
            self.header = [cell.strip() for cell in cells_of(name, number, line)]
            check_once(name, number, self.header)
            first: Mapping[str, Any] = dict.fromkeys(self.header)
        else:
            first = json_row(name, number, line)
        self.shape = shape = _shape(name, number, first)
        self.trace.hash_tokens = shape.hash_tokens if shape.hashes and shape.hashes in first else 0
        columns = (shape.time, shape.prompt, shape.output)
        if self.headed:
            dates = [True] if shape.clock == "date" else [False, True] if shape.clock == "any" else [False]
            self.batches = [csv_batches(self.header, *columns, dated) for dated in dates]
        else:
            dates = [False]
            self.batches = (
                [json_batches(*columns, shape.hashes if self.trace.hash_tokens else "")] if shape.clock != "date" else []
            )
        self.dates = dates

    def take(self, number: int, lines: list[str]) -> None:
        """Read the next lines of a request trace: all at once, else in pieces, else line by line in a piece with odd lines."""
        if self._together(lines):
            return
        failed_pieces = 0
        for start in range(0, len(lines), RETRY_LINES):
            piece = lines[start : start + RETRY_LINES]
            if failed_pieces >= MAX_RETRIES or not self._together(piece):
                failed_pieces += 1
                for at, line in enumerate(piece, number + start):
                    if line.strip():
                        self._one(at, line)

    def _together(self, lines: list[str]) -> bool:
        """Parse lines of a request trace at once if all are regular and return True; otherwise read none and return False."""
        if not lines or len(self.trace) + len(lines) > MAX_REQUESTS or (self.headed and self.trace.hash_tokens):
            return False
        for read, dated in zip(self.batches, self.dates, strict=False):
            batch = read(lines)
            if batch is not None and self._grown(batch, dated):
                return True
        return False

    def _grown(self, batch: Batch, dated: bool) -> bool:
        trace = self.trace
        if not whole_tokens(batch.prompts, 1, MAX_TOKENS) or not whole_tokens(batch.outputs, 0, MAX_TOKENS):
            return False
        if batch.times is not None:
            times = batch.times / (1000.0 if self.shape.clock == "milliseconds" else 1.0)
            low, high = (-np.inf, np.inf) if dated else (0.0, MAX_SECONDS)
            if not in_order(times, self.before if len(trace) else None, low, high):
                return False
            if not len(trace):
                self.start = float(times[0])
            self.before = float(times[-1])
            trace.times.frombytes((times - self.start).tobytes())
        trace.prompts.frombytes(batch.prompts.astype(np.int64).tobytes())
        trace.outputs.frombytes(np.maximum(batch.outputs, 1).astype(np.int64).tobytes())
        trace.hashes.extend(batch.hashes)
        return True

    def _one(self, number: int, line: str) -> None:
        """Read one line of a request trace, or raise its error."""
        name, shape, trace = self.name, self.shape, self.trace
        row = csv_row(name, number, line, self.header) if self.headed else json_row(name, number, line)
        if len(trace) >= MAX_REQUESTS:
            message = msg("error.bad-trace", name=name, line=number, what=msg("trace.too-many", most=f"{MAX_REQUESTS:,}"))
            raise UsageError("bad-trace", message, msg("hint.trace-too-many"))
        if shape.clock != "none":
            time = time_of(name, number, shape, row)
            if not trace.times:
                self.start = self.before = time
            if time < self.before:
                raise wrong(name, number, msg("trace.unordered", column=shape.time))
            self.before = time
            trace.times.append(time - self.start)
        trace.prompts.append(tokens_of(name, number, shape.prompt, row, 1))
        trace.outputs.append(max(1, tokens_of(name, number, shape.output, row, 0)))
        if trace.hash_tokens:
            trace.hashes.append(hashes_of(name, number, shape.hashes, row))


def _shape(name: str, number: int, row: Mapping[str, Any]) -> Columns:
    """Return the trace format whose columns a row has all of; of several, one with arrival times."""
    whole = [shape for shape in SHAPES if all(column in row for column in (shape.time, shape.prompt, shape.output) if column)]
    if whole := whole or _usual(row):
        return max(whole, key=lambda shape: bool(shape.time))
    near = max(SHAPES, key=lambda shape: sum(column in row for column in (shape.time, shape.prompt, shape.output) if column))
    missing = tuple(column for column in (near.time, near.prompt, near.output) if column and column not in row)
    raise wrong(name, number, msg("trace.missing-columns", columns=missing))


def _usual(row: Mapping[str, Any]) -> list[Columns]:
    """Return the plain trace format with this row's column names if they are known aliases, in any case; [] otherwise."""
    called = {column.strip().lower(): column for column in map(str, row)}
    columns = {part: next((called[other] for other in others if other in called), "") for part, others in COLUMN_ALIASES.items()}
    if not columns["prompt"] or not columns["output"]:
        return []
    return [Columns(columns["time"], columns["prompt"], columns["output"], "any" if columns["time"] else "none")]
