"""Read and validate one line of a trace; errors name the line."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Literal

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg

MAX_TOKENS = 10_000_000  # Largest number of input or output tokens of one request (assumed).
MAX_SECONDS = 100 * 365.25 * 86400.0  # Latest arrival time accepted, a hundred years (set by judgement).

USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")

Clock = Literal["date", "milliseconds", "seconds", "any", "none"]  # How times are stated; `any`: dates or numbers of seconds.


class Columns(msgspec.Struct, frozen=True):
    """Column names of one format of request traces; `hash_tokens` is how many tokens each block hash in `hashes` covers."""

    time: str
    prompt: str
    output: str
    clock: Clock
    hashes: str = ""
    hash_tokens: int = 0


def json_row(name: str, number: int, line: str) -> Mapping[str, Any]:
    """Parse a JSON line of a request trace to a mapping; errors name the file and line number."""

    def paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        check_once(name, number, [key for key, _ in pairs])
        return dict(pairs)

    try:
        row = json.loads(line, object_pairs_hook=paired)
    except (ValueError, RecursionError) as problem:
        raise wrong(name, number, msg("trace.not-json", why=str(problem))) from problem
    if not isinstance(row, dict):
        raise wrong(name, number, msg("trace.not-json", why=type(row).__name__))
    return with_usage(row)


def with_usage(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with the token counts of its `usage`, as in a logged reply of an OpenAI-compatible server or its gateway.

    >>> with_usage({"created": 1, "usage": {"prompt_tokens": 7, "completion_tokens": 2}})["completion_tokens"]
    2
    """
    reply = next((row[key] for key in ("response", "body") if isinstance(row.get(key), Mapping) and "usage" in row[key]), row)
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return row
    return {name: count for name, count in usage.items() if name in USAGE_FIELDS} | dict(row)


def csv_row(name: str, number: int, line: str, header: Sequence[str]) -> Mapping[str, Any]:
    """Parse a CSV line of a request trace to a mapping by the header's names; errors name the file and line number."""
    cells = cells_of(name, number, line)
    if len(cells) != len(header):
        raise wrong(name, number, msg("trace.cells", found=len(cells), wanted=len(header)))
    return dict(zip(header, cells, strict=True))


def check_once(name: str, number: int, columns: Sequence[str]) -> None:
    """Raise if a column occurs twice in the header of a request trace."""
    twice = tuple(dict.fromkeys(column for column in columns if column and columns.count(column) > 1))
    if twice:
        raise wrong(name, number, msg("trace.columns-twice", columns=twice))


def cells_of(name: str, number: int, line: str) -> list[str]:
    """Return the cells of a CSV line of a request trace."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as problem:
        raise wrong(name, number, msg("trace.not-csv", why=str(problem))) from problem


def time_of(name: str, number: int, shape: Columns, row: Mapping[str, Any]) -> float:
    """Return the arrival time of the request in a trace's row, in seconds."""
    value = row.get(shape.time)
    if shape.clock == "date" or (shape.clock == "any" and not _is_number(value)):
        try:
            moment = datetime.fromisoformat(str(value).strip())
            # A time without a zone is read as UTC, which has no daylight saving changes.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, OSError) as problem:
            raise wrong(name, number, msg("trace.bad-time", column=shape.time, value=_quoted(value))) from problem
    seconds = _number(name, number, shape.time, value) / (1000.0 if shape.clock == "milliseconds" else 1.0)
    if seconds < 0:
        raise wrong(name, number, msg("trace.negative", column=shape.time, value=_quoted(value)))
    if seconds > MAX_SECONDS:
        raise wrong(name, number, msg("trace.too-large", column=shape.time, value=_quoted(value), most=f"{MAX_SECONDS:.3g} s"))
    return seconds


def tokens_of(name: str, number: int, column: str, row: Mapping[str, Any], minimum: int) -> int:
    """Return a whole number of tokens, at least `minimum`, from a column of a request trace's row."""
    value = row.get(column)
    count = _number(name, number, column, value)
    if count < 0:
        raise wrong(name, number, msg("trace.negative", column=column, value=_quoted(value)))
    if count > MAX_TOKENS:
        raise wrong(name, number, msg("trace.too-large", column=column, value=_quoted(value), most=f"{MAX_TOKENS:,}"))
    if count != int(count) or count < minimum:
        raise wrong(name, number, msg("trace.not-tokens", column=column, value=_quoted(value), least=minimum))
    return int(count)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _number(name: str, number: int, column: str, value: Any) -> float:
    """Return a finite number from a JSON value or text of a request trace; errors name the line and column."""
    try:
        parsed = float("nan") if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = float("nan")
    if not isfinite(parsed):
        raise wrong(name, number, msg("trace.not-number", column=column, value=_quoted(value)))
    return parsed


def hashes_of(name: str, number: int, column: str, row: Mapping[str, Any]) -> array[int]:
    """Return the hashes that identify the KV blocks of a request's input, from a trace's row."""
    value = row.get(column)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise wrong(name, number, msg("trace.not-blocks", column=column))
    try:
        return array("q", value)
    except (TypeError, ValueError, OverflowError) as problem:
        raise wrong(name, number, msg("trace.not-blocks", column=column)) from problem


def wrong(name: str, number: int, what: Message) -> UsageError:
    """Return the error for one line of a request trace, with what is wrong in it."""
    return UsageError("bad-trace", msg("error.bad-trace", name=name, line=number, what=what), msg("hint.trace"))


def _quoted(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"
