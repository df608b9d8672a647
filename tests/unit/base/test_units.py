"""Quantities with units: parsing, refusals, formatting."""

from __future__ import annotations

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.base.units import (
    format_bandwidth,
    format_memory,
    parse_bandwidth,
    parse_bytes,
    parse_rate,
    parse_seconds,
    significant,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 * 2**30), ("80 GB", 80 * 10**9), ("24gb", 24 * 10**9), ("1.5TiB", 3 * 2**39), ("512MiB", 2**29), ("7B", 7)],
)
def test_sizes_distinguish_decimal_and_binary_prefixes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "80", "GiB", "80Gib/s", "-1GB", "1e9GB", "80 G", "nan GB", "9" * 40 + "GB", "80GB/s", "٣GB"]
)
def test_sizes_without_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert caught.value.kind == "bad-size"
    assert caught.value.hint is not None


def test_bandwidth_needs_a_second() -> None:
    assert parse_bandwidth("3.35TB/s") == 3_350_000_000_000
    for text in ("900GB", "900GB/h", "900Gbit/s", "fast"):
        with pytest.raises(UsageError):
            parse_bandwidth(text)


def test_durations_and_rates() -> None:
    assert parse_seconds("50ms") == 0.05
    assert parse_seconds("24h") == 86400
    assert parse_rate("5/s") == 5
    assert parse_rate("120/min") == 2
    for text in ("50", "ms", "5s/s", "-3h"):
        with pytest.raises(UsageError):
            parse_seconds(text)
    for text in ("5", "5/fortnight", "5req/s"):
        with pytest.raises(UsageError):
            parse_rate(text)


def test_numbers_show_three_digits_and_never_an_exponent() -> None:
    assert significant(0) == "0"
    assert significant(1979.0) == "1,980"
    assert significant(0.000123456) == "0.000123"
    assert significant(123456789) == "123,000,000"
    assert format_memory(500) == "500 B"
    assert format_memory(2048) == "2 KiB"
    assert format_bandwidth(336_500_000_000) == "336.5 GB/s"
