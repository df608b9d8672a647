"""A measured step in the result file of a load-testing tool, and the conversion of a server's figures to a decode step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import msgspec

MIN_NUMBER, MAX_NUMBER = 1e-18, 1e18  # Around all counts, rates and times of load tests (assumed): nanoseconds of 30 years.
# Largest shares of the time in which the GPU may compute prefills. The median gap between tokens is that of a decode step as
# long as most gaps have no prefill in them; the mean over a request has all of them in it.
MAX_SHARE_OF_MEDIAN_GAP, MAX_SHARE_OF_MEAN = 0.4, 0.1


class LoadTest(msgspec.Struct, frozen=True):
    """One measured step of a result file: decode, prefill or forward, with what the file says about how it was run."""

    tool: str
    task: str
    seconds: float
    low: float
    high: float
    runs: int
    batch: int | None = None  # sequences in the step; None if only the user knows
    seq_in: int | None = None  # tokens of context (decode) or of a prompt (prefill)
    model: str | None = None
    engine: str | None = None
    gpu: str | None = None
    precision: str | None = None
    day: str | None = None
    certain: tuple[str, ...] = ()  # of engine and precision, what the file itself names
    prefill_rate: float = 0.0  # prompts per second that were computed at the same time
    prompt_tokens: int = 0  # tokens of such a prompt
    max_prefill_share: float = 1.0


class UnusableFile(Exception):
    """A result file, or a part of it, that has no step in it; the text says why."""


def is_usable(value: Any) -> TypeGuard[float]:
    """Whether a value is a positive number that a load test can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and MIN_NUMBER <= value <= MAX_NUMBER


def number(document: Mapping[str, Any], *names: str) -> float | None:
    """Return the first positive number among named values; raise `UnusableFile` for one that no load test can have."""
    for name in names:
        value = document.get(name)
        if is_usable(value):
            return float(value)
        if isinstance(value, int | float) and value:
            raise UnusableFile(f"{name} is no number that a load test can have")
    return None


def needed(document: Mapping[str, Any], *names: str) -> float:
    """Return the first positive number among named values; raise `UnusableFile` if there is none."""
    value = number(document, *names)
    if value is None:
        raise UnusableFile(f"no {names[0]}")
    return value


def served_decode_step(
    tool: str, rate: float, tokens_in: float, tokens_out: float, mean: float, median: float | None, is_gap: bool, requests: float
) -> LoadTest:
    """Return the decode step of a loaded server.

    `mean` and `median` are seconds per output token: medians over gaps between tokens if `is_gap`, else over requests. The batch
    of the step is the mean number of requests that were decoding (Little's law): their rate times the time each of them took.
    """
    if tokens_out < 2:
        raise UnusableFile("one output token per request")
    seconds = median or mean
    batch = max(1, round(rate * mean * (tokens_out - 1)))
    return LoadTest(
        tool, "decode", seconds, min(seconds, mean), max(seconds, mean), max(1, round(requests)), batch,
        round(tokens_in + tokens_out / 2), prefill_rate=rate, prompt_tokens=round(tokens_in),
        max_prefill_share=MAX_SHARE_OF_MEDIAN_GAP if is_gap and median else MAX_SHARE_OF_MEAN,
    )  # fmt: skip
