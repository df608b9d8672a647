"""The evidence table: read back as written, every row with a known source, every request valid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from whichgpu.catalog.evidence import (
    Measurement,
    evidence_sources,
    measurements,
    operators,
    steps,
    table_bytes,
)
from whichgpu.catalog.store import Catalog
from whichgpu.workload.spelling import from_object

STEP = Measurement(
    "argonne",
    "l4",
    {"task": "batch", "model": {"model_type": "llama"}, "gpu": "l4", "gpus": 1},
    0.25,
    "generate",
    "high",
    "llama",
    7,
)
GEMM = Measurement("vidur", "a40", {"kind": "gemm", "dtype": "fp16", "m": 8, "n": 4.5, "batch": 1}, 1e-5, "op", "high", "gemm", 9)


def test_rows_read_back_as_written(tmp_path: Path) -> None:
    rows = (STEP, GEMM, replace(STEP, throughput_only=True, stochastic_depth="kept", pageable_copy_bytes=12.0, date="2024-05"))
    table = tmp_path / "evidence.csv.xz"
    table.write_bytes(table_bytes(rows))
    assert measurements(table) == rows


def test_every_row_has_a_source_a_place_and_a_time() -> None:
    source_ids, gpus = evidence_sources(), Catalog().gpu_by_id
    rows = measurements()
    assert len(rows) > 15_000
    for row in rows:
        assert row.source in source_ids
        assert source_ids[row.source].licence
        assert row.path
        assert row.date
        assert row.seconds > 0
        assert row.gpu in gpus
    assert {source.licence for source in source_ids.values()} >= {"own measurement", "none stated", "Apache-2.0"}


def test_every_step_is_a_valid_request() -> None:
    single, several = steps(measurements()), steps(measurements(), several_gpus=True)
    for row in (*single[::9], *several[::9]):
        from_object(dict(row.request))
    assert {row.request["gpus"] for row in single} == {1}
    assert min(row.request["gpus"] for row in several) == 2
    assert max(Counter((row.source, row.row, row.kind) for row in single).values()) == 1
    assert all(row.request["kind"] for row in operators(measurements()))
