"""Measured rows of groups: the layout each source ran, and whose batch it printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from calibration.fit_groups import GroupDesign
from calibration.group_alone import key, replicas_of
from calibration.group_examples import group_examples
from evidence.group_rows import foundry, with_layout
from evidence.published import Published
from evidence.reasons import Reason
from msgspec.structs import replace

from benchmarks.accuracy_many import Scaled
from whichgpu.catalog.evidence import Measurement
from whichgpu.catalog.store import Catalog

ROW = Published(
    line=7, source="nv-dle", path="", date="2021", gpu="A100 SXM 80GB", gpus=8, task="train", framework="PyTorch", model="",
    precision="tf32", batch=None, seq_in=None, seq_out=None, metric="img/s", value=7248.0, notes="", trust="medium",
)  # fmt: skip


def result(source: str, gpu: str, gpus: int, **request: Any) -> Measurement:
    fields = {"task": "train", "model": "resnet50", "gpu": gpu, "gpus": gpus, "batch": 256, **request}
    return Measurement(source, gpu, fields, 0.03, "train", "medium", "resnet", 7)


def laid_out(row: Published, measurement: Measurement, stated: str = "") -> Measurement:
    result = with_layout(row, measurement, stated)
    assert isinstance(result, Measurement)
    return result


def test_a_batch_the_table_does_not_print_is_one_gpus() -> None:
    measurement = laid_out(ROW, result("nv-dle", "a100-sxm-80gb", 8))
    assert measurement.request["batch"] == 2048
    assert measurement.seconds == pytest.approx(8 * 0.03)
    assert measurement.request["parallel"] == {"dp": 8}


def test_a_printed_batch_is_the_whole_one() -> None:
    measurement = laid_out(replace(ROW, batch=256), result("nv-dle", "a100-sxm-80gb", 8))
    assert (measurement.request["batch"], measurement.seconds) == (256, 0.03)


def test_sixteen_v100_are_a_dgx_2_and_sixteen_a100_two_nodes() -> None:
    volta = laid_out(replace(ROW, gpu="V100 SXM 32GB", gpus=16), result("nv-dle", "v100-sxm-32gb", 16))
    assert (volta.request["interconnect"], volta.request.get("nodes")) == ("nvswitch", None)
    ampere = laid_out(replace(ROW, gpus=16), result("nv-dle", "a100-sxm-80gb", 16))
    assert (ampere.request.get("interconnect"), ampere.request["nodes"]) == (None, 2)


def test_single_process_data_parallel_is_distinguished() -> None:
    measurement = laid_out(replace(ROW, source="ryujaehun", gpus=4), result("ryujaehun", "titan-rtx", 4))
    assert measurement.request["parallel"] == {"dp": 4, "threads": True}


def test_served_rows_state_replicas_and_degrees() -> None:
    measurement = laid_out(replace(ROW, source="cloudrift"), result("cloudrift", "h200-sxm", 8), "2 replica(s) x TP2 PP2")
    assert measurement.request["parallel"] == {"dp": 2, "tp": 2, "pp": 2}


def test_one_stream_of_mlperf_uses_one_gpu() -> None:
    row = replace(ROW, source="mlperf-inf", metric="single-stream p90 ms")
    assert isinstance(with_layout(row, result("mlperf-inf", "l4", 2), ""), Reason)


def test_mosaic_tables_are_fsdp_over_nodes_of_eight() -> None:
    row = replace(
        ROW, source="llm-foundry", gpu="A100 SXM 40GB", gpus=32, model="MPT-7b", batch=576, seq_in=2048, value=119202.0,
        notes="microbatch=18 gradaccum=1 act_ckpt=True",
    )  # fmt: skip
    measurement = foundry(row)
    assert isinstance(measurement, Measurement)
    assert measurement.seconds == pytest.approx(576 * 2048 / 119202)
    assert measurement.request["parallel"] == {"dp": 32, "zero": 3}
    assert (measurement.request["nodes"], measurement.request["checkpointing"]) == (4, "full")


def test_scaling_is_weak_under_data_parallelism_and_strong_otherwise() -> None:
    replicas = Scaled(gpus=4, replicas=4, measured=(2.0, 1.8), predicted=(2.0, 1.5))
    assert replicas.efficiency == pytest.approx((0.9, 0.75))
    divided = replace(replicas, replicas=1, measured=(0.6, 1.8))
    assert divided.efficiency == pytest.approx((0.75, 0.1875))


def test_the_row_of_one_gpu_matches_by_the_batch_of_a_replica() -> None:
    many = laid_out(ROW, result("nv-dle", "a100-sxm-80gb", 8))
    one = result("nv-dle", "a100-sxm-80gb", 1)
    assert key(many, replicas_of(many)) == key(one, replicas_of(one))


@pytest.mark.parametrize("wrong", [0.8, 1.4])
def test_errors_of_the_single_gpu_estimate_do_not_change_corrections_of_links(wrong: float) -> None:
    """Eight GPUs and one alone are off by the same factor: the links need no correction."""
    catalog = Catalog()
    rows = [laid_out(replace(ROW, gpus=gpus), result("nv-dle", "a100-sxm-80gb", gpus, precision="amp-fp16")) for gpus in (4, 8)]
    plain = group_examples(rows, catalog)
    predicted = np.exp(GroupDesign(plain).predict(np.zeros(len(GroupDesign(plain).parameters))))
    rows = [replace(row, seconds=float(wrong * seconds)) for row, seconds in zip(rows, predicted, strict=True)]
    blind = GroupDesign(group_examples(rows, catalog))
    alone = group_examples(rows, catalog, singles={key(row, replicas_of(row)): 1.0 for row in rows})
    singles = {key(one.row, replicas_of(one.row)): wrong * one.alone for one in alone}
    design = GroupDesign(group_examples(rows, catalog, singles=singles))
    everything = np.ones(len(rows), dtype=bool)
    assert np.abs(design.fit(everything)).max() < 0.25 * np.abs(blind.fit(everything)).max()
    assert np.exp(design.anchored(design.fit(everything))) == pytest.approx([row.seconds for row in rows], rel=0.03)
