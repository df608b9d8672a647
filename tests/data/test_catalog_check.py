"""`catalog check` passes on the bundled tables and fails on every error injected into a copy."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tests.copies import copy_tables
from whichgpu.base.errors import DataError
from whichgpu.catalog.checks import check_catalog
from whichgpu.catalog.schema import DATA_DIR, schema
from whichgpu.catalog.store import Catalog
from whichgpu.catalog.tables import read_table

TODAY = date.today()
Rows = list[dict[str, str]]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The bundled tables, free to be spoilt."""
    return copy_tables(tmp_path / "data")


def edit(folder: Path, table: str, change: Callable[[Rows], None]) -> None:
    path = folder / f"{table}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(schema()[table]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def row(rows: Rows, column: str, key: str) -> dict[str, str]:
    return next(row for row in rows if row[column] == key)


def finding_keys(folder: Path) -> set[tuple[str, str, str]]:
    return {(finding.table, finding.key, finding.check) for finding in check_catalog(folder, TODAY).findings}


def test_bundled_catalog_has_no_unexplained_findings() -> None:
    report = check_catalog(DATA_DIR, TODAY)
    assert [(finding.table, finding.key, finding.check, finding.column) for finding in report.findings] == []
    assert report.ok
    assert report.rows["gpus"] >= 180


def _set(column: str, key: str, **cells: str) -> Callable[[Rows], None]:
    return lambda rows: row(rows, column, key).update(cells)


PLANTED: list[tuple[str, str, Callable[[Rows], None], tuple[str, str, str]]] = [
    ("GB in a MiB field", "gpus", _set("id", "a100-sxm-80gb", memory_mib="80"), ("gpus", "a100-sxm-80gb", "memory-label")),
    ("GB in the reported MiB field", "gpus", _set("id", "t4", memory_reported_mib="15"), ("gpus", "t4", "memory-reported")),
    ("both dies' memory for one", "gpus", _set("id", "k80", memory_mib="24576"), ("gpus", "k80", "memory-label")),
    (
        "total for per-GPU memory",
        "instances",
        _set("instance", "p4d.24xlarge", gpu_memory_gb="320"),
        ("instances", "aws/p4d.24xlarge", "memory-per-gpu"),
    ),
    ("a sparse peak", "gpus", _set("id", "h100-sxm", fp16_tflops="1978.9"), ("gpus", "h100-sxm", "sparse-peak")),
    ("a sparse fp8 peak", "gpus", _set("id", "l40s", fp8_tflops="1466"), ("gpus", "l40s", "sparse-peak")),
    ("a wrong peak", "gpus", _set("id", "v100-sxm-16gb", fp32_tflops="14.1"), ("gpus", "v100-sxm-16gb", "rate-arithmetic")),
    (
        "a wrong bandwidth",
        "gpus",
        _set("id", "h200-sxm", memory_bandwidth_gbs="3360"),
        ("gpus", "h200-sxm", "bandwidth-arithmetic"),
    ),
    ("a duplicate key", "gpus", lambda rows: rows.append(dict(row(rows, "id", "t4"))), ("gpus", "t4", "duplicate-key")),
    ("an unknown GPU", "instances", _set("instance", "p3.2xlarge", gpu="v100"), ("instances", "aws/p3.2xlarge", "unknown-gpu")),
    ("a date in the future", "gpus", _set("id", "t4", launch_date="2099-01-01"), ("gpus", "t4", "future-date")),
    ("a row without source", "gpus", _set("id", "t4", sources=""), ("gpus", "t4", "no-source")),
    ("an unknown source", "cpus", _set("id", "epyc-7742", sources="hearsay"), ("cpus", "epyc-7742", "unknown-source")),
    ("a word for a number", "gpus", _set("id", "t4", tdp_watts="seventy"), ("gpus", "t4", "type")),
    ("a missing name", "gpus", _set("id", "t4", name=""), ("gpus", "t4", "required")),
    ("an alias of another GPU", "gpus", _set("id", "t4", aliases="NVIDIA H200"), ("gpus", "h200-sxm", "shared-name")),
    ("a wider type faster", "gpus", _set("id", "h20-96gb", fp16_tflops="999"), ("gpus", "h20-96gb", "precision-order")),
    ("watts in kilowatts", "gpus", _set("id", "t4", tdp_watts="0.07"), ("gpus", "t4", "implausible")),
    ("more cores than SMs hold", "gpus", _set("id", "t4", cores="5120"), ("gpus", "t4", "cores-arithmetic")),
    ("a price without currency", "gpus", _set("id", "rtx-4090", launch_currency=""), ("gpus", "rtx-4090", "currency")),
    (
        "MiB in a GiB field",
        "instances",
        _set("instance", "p3.2xlarge", ram_gib="62464"),
        ("instances", "aws/p3.2xlarge", "implausible"),
    ),
    ("no GPUs", "instances", _set("instance", "p2.xlarge", gpus="0"), ("instances", "aws/p2.xlarge", "implausible")),
    (
        "seen last before first",
        "instances",
        _set("instance", "p2.xlarge", last_seen="2011"),
        ("instances", "aws/p2.xlarge", "seen-order"),
    ),
    (
        "a link the GPU has not",
        "instances",
        _set("instance", "g4dn.12xlarge", interconnect="nvlink"),
        ("instances", "aws/g4dn.12xlarge", "link"),
    ),
    (
        "more link than the GPU has",
        "instances",
        _set("instance", "p4d.24xlarge", interconnect_gbs="4800"),
        ("instances", "aws/p4d.24xlarge", "link"),
    ),
    (
        "a lone GPU meshed",
        "instances",
        _set("instance", "p3.2xlarge", topology="cube-mesh"),
        ("instances", "aws/p3.2xlarge", "topology"),
    ),
    ("threads without cores", "cpus", _set("id", "epyc-7742", threads="64000"), ("cpus", "epyc-7742", "threads")),
    ("base above boost", "cpus", _set("id", "epyc-7742", base_clock_mhz="5999"), ("cpus", "epyc-7742", "clock-order")),
    (
        "swapped coordinates",
        "regions",
        _set("region", "ap-northeast-2", latitude="127", longitude="37.6"),
        ("regions", "aws/ap-northeast-2", "implausible"),
    ),
    (
        "half a coordinate",
        "regions",
        _set("region", "ap-northeast-2", latitude=""),
        ("regions", "aws/ap-northeast-2", "coordinates"),
    ),
    (
        "a country in words",
        "regions",
        _set("region", "ap-northeast-2", country="Korea"),
        ("regions", "aws/ap-northeast-2", "country"),
    ),
    ("a PCIe of the far future", "gpus", _set("id", "t4", pcie_generation="99"), ("gpus", "t4", "implausible")),
    ("no die at all", "gpus", _set("id", "t4", dies="0"), ("gpus", "t4", "implausible")),
    ("no SM at all", "gpus", _set("id", "t4", sms="0"), ("gpus", "t4", "implausible")),
    ("an alias that is another family", "gpus", _set("id", "t4", aliases="A100"), ("gpus", "t4", "shared-name")),
    ("checked before recorded", "gpus", _set("id", "t4", checked="2020"), ("gpus", "t4", "checked-before")),
    ("a constant without a source", "architectures", _set("id", "sm_90", sources=""), ("architectures", "sm_90", "no-source")),
    ("assumed without a reason", "architectures", _set("id", "Ada", note=""), ("architectures", "Ada", "required")),
    ("an empty cell assumed", "architectures", _set("id", "Ada", assumed="sms"), ("architectures", "Ada", "unknown-word")),
    ("no such instructions", "architectures", _set("id", "Ada", instructions="mmx"), ("architectures", "Ada", "unknown-word")),
    ("no such target", "architectures", _set("id", "sm_89", id="sm_88"), ("architectures", "sm_88", "unknown-target")),
    ("no such kin", "architectures", _set("id", "sm_120", kin="sm_88"), ("architectures", "sm_120", "unknown-architecture")),
    ("no such architecture", "gpus", _set("id", "t4", architecture="Tering"), ("gpus", "t4", "unknown-architecture")),
    ("half a capability", "targets", _set("id", "sm_75", compute_capability="7"), ("targets", "sm_75", "type")),
    ("a word for a version", "targets", _set("id", "sm_75", flash_attention="x"), ("targets", "sm_75", "type")),
    ("a number past 64 bits", "gpus", _set("id", "t4", memory_mib="999999999999999999"), ("gpus", "t4", "type")),
    ("no rows", "instances", lambda rows: rows.clear(), ("instances", "", "empty-table")),
    ("a script for an address", "sources", _set("id", "intel-ark", url="javascript:x"), ("sources", "intel-ark", "address")),
    (
        "closed before opened",
        "regions",
        _set("region", "ap-northeast-2", closed="2001"),
        ("regions", "aws/ap-northeast-2", "seen-order"),
    ),
    (
        "an explanation of nothing",
        "explained",
        lambda rows: rows.append(
            {"table": "gpus", "key": "t4", "check": "rate-arithmetic", "column": "", "why": "x", "recorded": "2026-11-15"}
        ),
        ("explained", "t4", "stale-explanation"),
    ),
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("table", "change", "finding"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED])
def test_injected_error_is_found(copy: Path, table: str, change: Callable[[Rows], None], finding: tuple[str, str, str]) -> None:
    edit(copy, table, change)
    assert finding in finding_keys(copy)


def test_a_missing_table_and_a_missing_folder_are_data_errors(copy: Path, tmp_path: Path) -> None:
    (copy / "cpus.csv").unlink()
    assert finding_keys(copy) == {("cpus", "", "unreadable")}
    with pytest.raises(DataError) as caught:
        read_table(copy, "cpus")
    assert caught.value.kind == "unreadable-data"
    with pytest.raises(DataError):
        Catalog(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [b"", b'id,name\n"unclosed', b"id,name\nx\n", b"\xff\xfe\x00", b"id,id\na,b\n", b"name\nx\n"],
    ids=["empty", "unclosed quote", "short row", "not UTF-8", "column twice", "columns missing"],
)
def test_a_file_that_is_no_table_names_itself(copy: Path, content: bytes) -> None:
    (copy / "rates.csv").write_bytes(content)
    assert finding_keys(copy) == {("rates", "", "unreadable")}
    with pytest.raises(DataError, match=r"rates\.csv") as caught:
        read_table(copy, "rates")
    assert caught.value.kind == "malformed-data"
