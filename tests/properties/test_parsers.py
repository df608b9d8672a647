"""Properties of the parsers: what is written can be read back, and nothing typed makes them fail otherwise than politely."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.base.dates import first_day, is_date, last_day, parse_as_of
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.money import Money, parse_money
from whichgpu.base.names import nearest, split_count
from whichgpu.base.units import parse_bandwidth, parse_bytes, parse_rate, parse_seconds, significant
from whichgpu.catalog.find import find_cpus, find_gpus, find_instances, find_regions
from whichgpu.catalog.select import GpuFilter, parse_capability, parse_span
from whichgpu.catalog.store import Catalog

CATALOG = Catalog()


@given(st.integers(0, 10**15), st.sampled_from(["B", "KiB", "MiB", "GiB", "kB", "MB", "GB"]))
def test_a_size_written_is_the_size_read(count: int, unit: str) -> None:
    scale = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}[unit]
    assert parse_bytes(f"{count}{unit}") == count * scale


@given(st.decimals(0, 10**9, places=3), st.sampled_from(["USD", "KRW", "EUR"]))
def test_money_written_is_money_read(amount: Decimal, currency: str) -> None:
    assert parse_money(str(Money(amount, currency)))[0] == Money(amount, currency)


@given(st.dates(date(1990, 1, 1), date(2100, 12, 31)))
def test_a_day_written_is_the_day_read(day: date) -> None:
    assert first_day(day.isoformat()) == last_day(day.isoformat()) == day
    assert parse_as_of(day.isoformat(), day + timedelta(days=1)) == day
    assert first_day(day.isoformat()[:7]) <= day <= last_day(day.isoformat()[:7])


@pytest.mark.parametrize(
    "parse", [parse_bytes, parse_bandwidth, parse_seconds, parse_rate, parse_money, parse_capability, parse_span]
)
@given(text=st.text(max_size=60))
def test_any_text_is_read_or_politely_refused(parse: object, text: str) -> None:
    assert callable(parse)
    try:
        parse(text)
    except UsageError as error:
        assert error.hint is not None


@given(st.text(max_size=40))
def test_any_name_is_found_or_politely_refused(text: str) -> None:
    for find in (find_gpus, find_instances, find_cpus, find_regions):
        try:
            assert find(CATALOG, text)
        except WhichGpuError as error:
            assert error.exit_code == 2
    is_date(text)
    split_count(text)
    nearest(text, ["A100", "H100"])


@given(st.sampled_from(CATALOG.gpus))
def test_a_gpu_is_found_by_its_own_id_name_and_aliases(gpu: object) -> None:
    from whichgpu.catalog.gpu import Gpu

    assert isinstance(gpu, Gpu)
    for text in (gpu.id, gpu.name, f"{gpu.vendor} {gpu.name}", *gpu.aliases):
        assert find_gpus(CATALOG, text) == (gpu,)
        assert find_gpus(CATALOG, f"8x{text}") == (gpu,)
    assert gpu in find_gpus(CATALOG, gpu.family)


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_asking_for_more_memory_never_finds_more(one: int, other: int) -> None:
    less, more = sorted((one, other))
    wide = {gpu.id for gpu in CATALOG.gpus if GpuFilter(min_memory=less).matches(gpu)}
    narrow = {gpu.id for gpu in CATALOG.gpus if GpuFilter(min_memory=more).matches(gpu)}
    assert narrow <= wide


@given(st.floats(1e-12, 1e18, allow_nan=False))
def test_three_digits_are_within_half_a_percent(value: float) -> None:
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=0.005)
