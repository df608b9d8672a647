"""No measured row is faster than physics: all rows of the evidence table against their floors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from calibration.measured_floors import collective_floor, exceptions, row_floors, too_fast, unexplained
from msgspec.structs import replace

from whichgpu.api.workloads.estimate import estimate
from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.gpus import build_gpu_columns

CATALOG = Catalog()
CAUSES = {"bad row", "byte count", "clock", "L2", "lowering", "peak", "routing"}
MAX_EXCEPTIONS = 91  # rows that beat their floors for a known reason; the number may only shrink


def fastest_of_each_kind(rows: Sequence[Measurement]) -> list[Measurement]:
    """Return all rows but most forward passes and training steps, which take the longest to lower.

    Of those it keeps the largest batch, nearest to its floor, for each source, GPU, family of models and precision, and all
    rows of the groups in which some are known to beat their floors, so that their number is still checked.
    """
    groups = {(one.source, one.gpu, one.family) for one in exceptions()}
    rest, largest = [], dict[tuple[Any, ...], Measurement]()
    for row in rows:
        if row.kind not in ("forward", "train") or (row.source, row.gpu, row.family) in groups:
            rest.append(row)
            continue
        alike = row.source, row.gpu, row.kind, row.family, row.request.get("precision")
        if alike not in largest or batch_size(row) > batch_size(largest[alike]):
            largest[alike] = row
    return [*rest, *largest.values()]


def batch_size(row: Measurement) -> tuple[int, float]:
    return row.request.get("batch") or 1, -row.seconds


def test_no_row_beats_its_floor_without_a_known_reason() -> None:
    rows = fastest_of_each_kind(measurements())
    floors = list(row_floors(rows, CATALOG))
    assert len(floors) > 0.97 * len(rows) > 0.75 * len(measurements())
    assert unexplained(floors) == []


@pytest.mark.long
def test_no_row_at_all_beats_its_floor_without_a_known_reason() -> None:
    floors = list(row_floors(measurements(), CATALOG))
    assert len(floors) > 0.97 * len(measurements())
    assert unexplained(floors) == []


def test_exceptions_have_a_cause_and_a_reason_and_only_shrink() -> None:
    listed = exceptions()
    assert len({(one.source, one.gpu, one.family) for one in listed}) == len(listed)
    assert {one.cause for one in listed} <= CAUSES
    assert all(one.reason.endswith(".") and one.rows > 0 for one in listed)
    assert sum(one.rows for one in listed) <= MAX_EXCEPTIONS


def operator(kind: str, gpu: str, **sizes: Any) -> Measurement:
    request = {"kind": kind, "engine": "nccl", **sizes}
    return Measurement("aiconfigurator-collectives", gpu, request, 1e-3, "op", "high", "collectives", 1)


@pytest.mark.parametrize(
    ("gpu", "kind", "sent"),
    [
        ("a100-sxm-80gb", "all_reduce", 2 * 7 / 8),  # a ring sends all but its own part twice
        ("h100-sxm", "all_reduce", 1.0),  # the switch reduces
        ("h100-sxm", "all_gather", 7 / 8),
        ("h100-sxm", "all_to_all", 7 / 8),
    ],
)
def test_floors_of_collectives(gpu: str, kind: str, sent: float) -> None:
    link = CATALOG.gpu_by_id[gpu].link
    assert link
    assert link.bandwidth
    row = operator(kind, gpu, gpus=8, bytes=8e8)
    assert collective_floor(row, CATALOG.gpu_by_id[gpu]) == pytest.approx(8e8 * sent / (link.bandwidth / 2))


def test_a_gemm_faster_than_the_tensor_cores_is_found() -> None:
    row = next(row for row in measurements() if row.source == "stas00" and row.gpu == "h100-sxm")
    sizes = {"m": 8192, "n": 8192, "k": 8192}
    flops = 2 * 8192**3
    peak = CATALOG.gpu_by_id["h100-sxm"].peaks["bf16"]
    slow = replace(row, request={**row.request, **sizes, "dtype": "bf16"}, seconds=1.01 * flops / peak)
    fast = replace(slow, seconds=flops / peak / 1.05)
    floors = list(row_floors([slow, fast], CATALOG))
    assert floors[0].ratio == pytest.approx(1 / 1.01)
    assert [one.row for one in too_fast(floors)] == [fast]
    assert floors[1].seconds == pytest.approx(flops / peak)
    assert len(unexplained(floors)) > 1  # this row, and the known ones that are not among the two


@pytest.mark.parametrize("engine", ["pytorch", "pytorch-compile", "ngc"])
@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm", "h100-pcie", "h200-sxm", "b200", "mi300x"])
def test_corrections_put_no_training_step_above_the_sustained_rate(gpu: str, engine: str) -> None:
    """Llama-2-7B on one node: six FLOPs per parameter and token at less than the published maximum of plain GEMMs."""
    if engine == "ngc" and gpu == "mi300x":
        pytest.skip("NVIDIA's stacks do not run there")
    tokens = 64 * 4096
    answer = estimate("train", "llama-2-7b", gpu=gpu, gpus=8, batch=64, seq_in=4096, precision="bf16", engine=engine)
    assert answer.time
    rate = 6 * 6.607e9 * tokens / 8 / answer.time.value  # without the embedding table, which is not multiplied
    columns = build_gpu_columns([CATALOG.gpu_by_id[gpu]])
    assert rate < float(columns.sustained_peaks["bf16"].item())
    if engine == "pytorch-compile":
        # Published on A100: 4,550 tokens/s a GPU, 58% of peak so counted (PyTorch blog, "Maximizing training throughput", 2024).
        assert rate < 0.6 * CATALOG.gpu_by_id[gpu].peaks["bf16"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm", "b200", "mi300x", "l40s"])
def test_corrections_put_no_prefill_above_the_sustained_rate(gpu: str, engine: str) -> None:
    if engine == "tensorrt-llm" and gpu == "mi300x":
        pytest.skip("TensorRT-LLM does not run there")
    answer = estimate("prefill", "llama-2-7b", gpu=gpu, batch=8, seq_in=2048, precision="bf16", engine=engine)
    assert answer.time
    rate = 2 * 6.476e9 * 8 * 2048 / answer.time.value
    assert rate < float(build_gpu_columns([CATALOG.gpu_by_id[gpu]]).sustained_peaks["bf16"].item())
