"""Fast reader of traces: parses many lines at once into columns, or returns None if any line needs the line-by-line reader.

Any unusual line is left to the line-by-line reader, so that the result does not depend on which of them is used.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DATE_DASHES = 2  # of a date such as 2026-11-17; numpy reads a number without any as a year
DATE_CHARACTERS = 40  # Longest timestamp parsed here; ISO 8601 with nanoseconds and an offset has 35 characters.
UTC = (b"+00:00", b"Z")


class Batch(msgspec.Struct, frozen=True):
    """Columns parsed from lines of a request trace, one item per line; `times` in the trace's own unit, None if it has none."""

    times: Floats | None
    prompts: Floats
    outputs: Floats
    hashes: Sequence[array[int]] = ()


def csv_batches(
    header: Sequence[str], time: str, prompt: str, output: str, dated: bool
) -> Callable[[Sequence[str]], Batch | None]:
    """Return a function that parses many CSV lines of a request trace to columns; it returns None if a line is unusual."""
    places = [header.index(name) for name in (time, prompt, output) if name]
    kinds: list[Any] = ["f8", "f8"] if not time else [f"S{DATE_CHARACTERS}" if dated else "f8", "f8", "f8"]
    dtype = np.dtype([(str(at), kind) for at, kind in enumerate(kinds)])
    commas = len(header) - 1

    def read(lines: Sequence[str]) -> Batch | None:
        if not _even(lines, commas):
            return None
        try:
            rows = np.loadtxt(lines, dtype, delimiter=",", usecols=places, comments=None, ndmin=1)
        except (ValueError, OverflowError):
            return None
        if len(rows) != len(lines):
            return None
        *first, prompts, outputs = (rows[name] for name in dtype.names or ())
        times = None if not first else _seconds(first[0]) if dated else first[0]
        if first and times is None:
            return None
        return Batch(times, prompts, outputs)

    return read


def _even(lines: Sequence[str], commas: int) -> bool:
    """Whether every CSV line has as many commas as the header."""
    text = np.frombuffer(("\n".join(lines) + "\n").encode("utf-8", "replace"), dtype=np.uint8)
    ends, places = np.flatnonzero(text == ord("\n")), np.flatnonzero(text == ord(","))
    if len(ends) != len(lines) or len(places) != commas * len(lines):
        return False
    return not commas or bool((places[commas - 1 :: commas] < ends).all() and (places[commas::commas] > ends[:-1]).all())


def _seconds(dates: NDArray[np.bytes_]) -> Floats | None:
    """Convert dates in UTC to seconds since 1970; None if any has another zone or format, for the line-by-line reader."""
    if np.char.str_len(dates).max() >= DATE_CHARACTERS or np.char.count(dates, b"-").min() < DATE_DASHES:
        return None
    for zone in UTC:
        if bytes(dates[0]).endswith(zone):
            if not np.char.endswith(dates, zone).all():
                return None
            dates = np.char.replace(dates, zone, b"")
            break
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            times = dates.astype("datetime64[us]")
    except (ValueError, Warning):
        return None
    if np.isnat(times).any():
        return None
    seconds: Floats = times.astype(np.int64) / 1e6
    return seconds


def json_batches(time: str, prompt: str, output: str, hashes: str) -> Callable[[Sequence[str]], Batch | None]:
    """Return a function that parses many JSON lines of a request trace to columns; it returns None if a line is unusual."""
    import msgspec

    names = {"prompt": prompt, "output": output} | ({"time": time} if time else {}) | ({"hashes": hashes} if hashes else {})
    fields = [(name, list[int] if name == "hashes" else float) for name in names]
    decoder = msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names, gc=False))

    def read(lines: Sequence[str]) -> Batch | None:
        try:
            rows: list[Any] = decoder.decode_lines("\n".join(lines))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if len(rows) != len(lines):
            return None
        columns = {name: np.fromiter(map(attrgetter(name), rows), float, len(rows)) for name in names if name != "hashes"}
        try:
            blocks = [array("q", row.hashes) for row in rows] if hashes else []
        except OverflowError:
            return None
        return Batch(columns.get("time"), columns["prompt"], columns["output"], blocks)

    return read


def whole_tokens(values: Floats, low: int, high: int) -> bool:
    """Whether all values are whole numbers of tokens from `low` to `high`."""
    return bool(np.isfinite(values).all() and values.min() >= low and values.max() <= high and (values == np.floor(values)).all())


def in_order(times: Floats, before: float | None, low: float, high: float) -> bool:
    """Whether arrival times are within bounds and do not decrease, starting from `before`, the time before them."""
    if not np.isfinite(times).all() or times.min() < low or times.max() > high:
        return False
    return bool((np.diff(times) >= 0).all() and (before is None or times[0] >= before))
