"""Traces of requests as others publish them: one a line, read as a stream, checked line by line.

Three shapes are known by their columns (`SHAPES`), as CSV with a header or as JSON lines:

    TIMESTAMP, ContextTokens, GeneratedTokens            Azure's traces; dates
    timestamp, input_length, output_length, hash_ids     Mooncake's; milliseconds, blocks of 512 tokens known by number
    num_prefill_tokens, num_decode_tokens                lengths alone, as Vidur keeps them; times come from a rate

and the plain `time, prompt, output` (seconds). Columns may also be called as others usually call them (`ALSO`), such as
`prompt_tokens, output_tokens`, with or without a time. Only numbers are kept, a few bytes a request.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg

MOST_REQUESTS = 5_000_000  # about 150 MB
MOST_TOKENS = 10_000_000  # of one prompt or answer: nobody means more
MOST_SECONDS = 100 * 365.25 * 86400.0
LONGEST_LINE = 1 << 20

Clock = Literal["date", "milliseconds", "seconds", "any", "none"]  # any: dates, or numbers of seconds


@dataclass(frozen=True, slots=True)
class Columns:
    """The names a shape uses; `hash_tokens` is the length of a block of `hashes`."""

    time: str
    prompt: str
    output: str
    clock: Clock
    hashes: str = ""
    hash_tokens: int = 0


SHAPES: tuple[Columns, ...] = (
    Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens", "date"),
    Columns("timestamp", "input_length", "output_length", "milliseconds", "hash_ids", 512),
    Columns("", "num_prefill_tokens", "num_decode_tokens", "none"),
    Columns("time", "prompt", "output", "seconds"),
    Columns("arrived_at", "num_prefill_tokens", "num_decode_tokens", "seconds"),
)
# Other names of the plain shape's columns; a time that is called a timestamp is a date or seconds, as its values say.
ALSO: dict[str, tuple[str, ...]] = {
    "time": ("time", "arrival_time", "arrived_at", "time_s", "seconds", "timestamp"),
    "prompt": ("prompt", "prompt_tokens", "input_tokens", "prompt_length", "input_length", "prompt_len", "input_len"),
    "output": (
        *("output", "output_tokens", "completion_tokens", "generated_tokens", "response_tokens", "decode_tokens"),
        *("output_length", "completion_length", "output_len"),
    ),
}


@dataclass(slots=True)
class Trace:
    """Requests in order. `times` are seconds from the first, and empty where only lengths are known."""

    name: str
    times: array[float] = field(default_factory=lambda: array("d"))
    prompts: array[int] = field(default_factory=lambda: array("q"))
    outputs: array[int] = field(default_factory=lambda: array("q"))
    hashes: list[array[int]] = field(default_factory=list)
    hash_tokens: int = 0

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def timed(self) -> bool:
        """Whether it says when requests came."""
        return len(self.times) > 0

    @property
    def span(self) -> float:
        """Seconds it covers: to the last request, and a mean wait after it."""
        count = len(self.times)
        return self.times[-1] * count / (count - 1) if count > 1 else 0.0

    @property
    def rate(self) -> float | None:
        """Requests a second; None where it says no times, or all at once."""
        return len(self.times) / self.span if self.span > 0 else None


def read_trace(path: Path) -> Trace:
    """A trace file; an error that names the line where one is wrong."""
    try:
        with path.open("r", encoding="utf-8-sig", errors="replace", newline="") as stream:
            return _read(path.name, _lines(path.name, stream))
    except OSError as problem:
        message = msg("error.trace-unreadable", name=str(path), why=problem.strerror or str(problem))
        raise UsageError("trace-unreadable", message, msg("hint.trace")) from problem


def _lines(name: str, stream: Any) -> Iterator[tuple[int, str]]:
    """Numbered lines that say something."""
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise wrong(name, number, msg("trace.long-line", most=f"{LONGEST_LINE:,}"))
        if line.strip():
            yield number, line


def _read(name: str, lines: Iterator[tuple[int, str]]) -> Trace:
    first = next(lines, None)
    if first is None:
        raise wrong(name, 1, msg("trace.no-requests"))
    rows = _objects(name, first, lines) if first[1].lstrip().startswith("{") else _records(name, first, lines)
    trace, shape, start, before, last = Trace(name), None, 0.0, 0.0, first[0]
    for number, row in rows:
        last = number
        if shape is None:
            shape = _shape(name, first[0], row)
            trace.hash_tokens = shape.hash_tokens if shape.hashes and shape.hashes in row else 0
        if len(trace) >= MOST_REQUESTS:
            raise wrong(name, number, msg("trace.too-many", most=f"{MOST_REQUESTS:,}"))
        if shape.clock != "none":
            time = _time(name, number, shape, row)
            if not trace.times:
                start = before = time
            if time < before:
                raise wrong(name, number, msg("trace.unordered", column=shape.time))
            before = time
            trace.times.append(time - start)
        prompt = _tokens(name, number, shape.prompt, row, 1)
        trace.prompts.append(prompt)
        trace.outputs.append(max(1, _tokens(name, number, shape.output, row, 0)))
        if trace.hash_tokens:
            trace.hashes.append(_hashes(name, number, shape.hashes, row))
    if not len(trace):
        raise wrong(name, last, msg("trace.no-requests"))
    return trace


def _objects(name: str, first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """JSON lines."""
    for number, line in _again(first, rest):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise wrong(name, number, msg("trace.not-json", why=str(problem))) from problem
        if not isinstance(row, dict):
            raise wrong(name, number, msg("trace.not-json", why=type(row).__name__))
        yield number, row


def _records(name: str, first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Lines of CSV under a header."""
    header = [cell.strip() for cell in _cells(name, *first)]
    _shape(name, first[0], dict.fromkeys(header))
    for number, line in rest:
        cells = _cells(name, number, line)
        if len(cells) != len(header):
            raise wrong(name, number, msg("trace.cells", found=len(cells), wanted=len(header)))
        yield number, dict(zip(header, cells, strict=True))


def _cells(name: str, number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as problem:
        raise wrong(name, number, msg("trace.not-csv", why=str(problem))) from problem


def _again(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


def _shape(name: str, number: int, row: Mapping[str, Any]) -> Columns:
    """The shape whose columns are all there; of several, the one that says most."""
    whole = [shape for shape in SHAPES if all(column in row for column in (shape.time, shape.prompt, shape.output) if column)]
    if whole := whole or _usual(row):
        return max(whole, key=lambda shape: bool(shape.time))
    near = max(SHAPES, key=lambda shape: sum(column in row for column in (shape.time, shape.prompt, shape.output) if column))
    missing = tuple(column for column in (near.time, near.prompt, near.output) if column and column not in row)
    raise wrong(name, number, msg("trace.missing-columns", columns=missing))


def _usual(row: Mapping[str, Any]) -> list[Columns]:
    """The plain shape under other usual names, in whatever letters; without a time where there is none."""
    called = {column.strip().lower(): column for column in map(str, row)}
    found = {part: next((called[other] for other in others if other in called), "") for part, others in ALSO.items()}
    if not found["prompt"] or not found["output"]:
        return []
    return [Columns(found["time"], found["prompt"], found["output"], "any" if found["time"] else "none")]


def _time(name: str, number: int, shape: Columns, row: Mapping[str, Any]) -> float:
    value = row.get(shape.time)
    if shape.clock == "date" or (shape.clock == "any" and not _is_number(value)):
        try:
            return datetime.fromisoformat(str(value).strip()).timestamp()
        except (ValueError, OverflowError, OSError) as problem:
            raise wrong(name, number, msg("trace.bad-time", column=shape.time, value=_shown(value))) from problem
    seconds = _number(name, number, shape.time, value) / (1000.0 if shape.clock == "milliseconds" else 1.0)
    if seconds < 0:
        raise wrong(name, number, msg("trace.negative", column=shape.time, value=_shown(value)))
    if seconds > MOST_SECONDS:
        raise wrong(name, number, msg("trace.too-large", column=shape.time, value=_shown(value), most=f"{MOST_SECONDS:.3g} s"))
    return seconds


def _tokens(name: str, number: int, column: str, row: Mapping[str, Any], least: int) -> int:
    value = row.get(column)
    found = _number(name, number, column, value)
    if found < 0:
        raise wrong(name, number, msg("trace.negative", column=column, value=_shown(value)))
    if found > MOST_TOKENS:
        raise wrong(name, number, msg("trace.too-large", column=column, value=_shown(value), most=f"{MOST_TOKENS:,}"))
    if found != int(found) or found < least:
        raise wrong(name, number, msg("trace.not-tokens", column=column, value=_shown(value), least=least))
    return int(found)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _number(name: str, number: int, column: str, value: Any) -> float:
    """A finite number, from JSON or from text."""
    try:
        found = float("nan") if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not isfinite(found):
        raise wrong(name, number, msg("trace.not-number", column=column, value=_shown(value)))
    return found


def _hashes(name: str, number: int, column: str, row: Mapping[str, Any]) -> array[int]:
    value = row.get(column)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise wrong(name, number, msg("trace.not-blocks", column=column))
    try:
        return array("q", value)
    except (TypeError, ValueError, OverflowError) as problem:
        raise wrong(name, number, msg("trace.not-blocks", column=column)) from problem


def wrong(name: str, number: int, what: Message) -> UsageError:
    """An error of one line."""
    return UsageError("bad-trace", msg("error.bad-trace", name=name, line=number, what=what), msg("hint.trace"))


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"
