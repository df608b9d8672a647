"""A cell of a table is of its column's type or a finding; what follows from several cells is checked against them."""

from __future__ import annotations

import resource
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog import cache, tables
from whichgpu.catalog.checks.gpus import rates
from whichgpu.catalog.engines.engine import _cuda_support, engine_support
from whichgpu.catalog.gpu import PEAKS
from whichgpu.catalog.reference_mix import build_mix_item, parse_request
from whichgpu.catalog.store import Catalog
from whichgpu.catalog.tables import Table


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (tables._plain, "two words", (" before", "after ")),
        (tables._READERS["id"], "a100-sxm-80gb", ("A100", "a b", "-a")),
        (tables._integer, "1234567890123", ("-1", "1.0", "12345678901234", "١٢")),
        (tables._READERS["number"], "12.5", ("1e5", "nan", "1,5", "--1")),
        (tables._date, "2020-05", ("2020-13", "May 2020", "1066-10-14")),
        (tables._list, "a;b", ("a;", ";b", "a; b")),
        (tables._integers, "1;2", ("1;x", "1;;2")),
    ],
)
def test_a_cell_that_is_not_of_its_type_is_refused(read: Any, good: str, bad: tuple[str, ...]) -> None:
    read(good)
    for cell in bad:
        with pytest.raises(ValueError):  # noqa: PT011 - of whatever words
            read(cell)


def test_a_table_with_findings_is_not_trusted_and_names_the_first(tmp_path: Path) -> None:
    fine = Table("gpus", tmp_path / "gpus.csv", [{"id": "t4"}])
    assert fine.trusted_rows() == [{"id": "t4"}]
    finding = SimpleNamespace(key="t4", column="sms", detail=msg("finding.required"))
    with pytest.raises(DataError, match=r"gpus\.csv") as error:
        replace(fine, findings=[finding]).trusted_rows()
    assert "t4" in str(error.value)
    assert "sms" in str(error.value)


def findings(gpu: dict[str, Any], unit: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Checks and columns of one GPU's rates."""
    peaks = {f"{name}_tflops": None for name in PEAKS}
    row = {"id": "x", "rates": "u" if unit else None, "cores": None, "sms": 10, "boost_clock_mhz": Decimal(1000)}
    row |= {"tensor_clock_mhz": None}
    blank: dict[str, Any] = {name: None for dtype in PEAKS for name in (dtype, f"{dtype}_plain")}
    units = [{"id": "u", "cores": 64} | blank | unit] if unit else []
    findings = rates({"gpus": SimpleNamespace(rows=[row | peaks | gpu]), "rates": SimpleNamespace(rows=units)})  # type: ignore[dict-item]
    return [(one.check, one.column) for one in findings]


def test_peak_without_its_unit_or_off_its_core_count_is_a_finding() -> None:
    assert findings({"fp16_tflops": Decimal(20)}, {"fp32": 128}) == [("no-unit", "fp16_tflops")]
    assert findings({"fp32_tflops": Decimal("1.28")}, {"fp32": 128}) == []
    assert findings({"fp32_tflops": Decimal("2.56")}, {"fp32": 128}) == [("sparse-peak", "fp32_tflops")]
    assert findings({"fp32_tflops": Decimal("9.9")}, {"fp32": 128}) == [("rate-arithmetic", "fp32_tflops")]
    assert findings({"fp32_tflops": Decimal("9.9"), "sms": None}, {"fp32": 128}) == []
    assert findings({"cores": 650}, {"fp32": 128}) == [("cores-arithmetic", "cores")]
    alone = {"cores": 1000, "fp32_tflops": Decimal(2)}
    assert findings(alone, None) == []
    assert findings(alone | {"fp32_tflops": Decimal(3)}, None) == [("rate-arithmetic", "fp32_tflops")]


def test_an_engine_runs_surely_once_ran_or_never_did() -> None:
    engine: Any = SimpleNamespace(min_capability="7.5", min_capability_ever="7.0", max_capability="9.0")
    support = {capability: _cuda_support(engine, capability) for capability in ("6.1", "7.0", "7.5", "9.0", "10.0", None)}
    assert support == {"6.1": "no", "7.0": "earlier", "7.5": "yes", "9.0": "yes", "10.0": "unsure", None: "unsure"}
    assert _cuda_support(SimpleNamespace(min_capability=None, min_capability_ever=None, max_capability=None), "3.7") == "yes"  # type: ignore[arg-type]
    assert engine_support(engine, SimpleNamespace(software=None)) == "unsure"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"task": "train"}',
        '{"task": "train", "model": "m", "gpu": "T4"}',
        '{"task": "train", "model": "m", "precision": "fp32"}',
        "[" * 100_000,
    ],
)
def test_a_request_of_the_mix_names_task_and_model_and_no_gpu(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever words
        parse_request(text)
    with pytest.raises(DataError, match="reference_mix") as error:
        build_mix_item({"id": "one", "request": text})
    assert "one" in str(error.value)
    assert parse_request('{"task": "train", "model": "m"}') == {"task": "train", "model": "m"}


def test_unknown_gpu_of_an_instance_is_reported_with_both_names(catalog: Catalog) -> None:
    machine = replace(catalog.instances[0], gpu="unheard-of")
    with pytest.raises(DataError, match="unheard-of") as error:
        catalog.gpu_in(machine)
    assert machine.instance in str(error.value)


def test_without_a_home_folder_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "user_folder", lambda variable, usual: None)
    built: list[int] = []

    def build() -> tuple[int, ...]:
        built.append(1)
        return (7,)

    assert cache.load_or_build("t", int, (), build) == cache.load_or_build("t", int, (), build) == (7,)
    assert len(built) == 2


def test_a_cache_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # No file of this process can grow, as on a full disk.
    try:
        assert cache.load_or_build("t", int, (), lambda: (7,)) == (7,)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
