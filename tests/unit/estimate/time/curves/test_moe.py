"""Fused MoE kernels: floors, monotony in tokens, formats of weights, and measured times."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.curve_rows import UNTUNED_MOE, samples

from whichgpu.catalog.evidence import measurements
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import operator_seconds, operator_totals
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.lower.routing import distinct_experts
from whichgpu.estimate.time.operators import Number, Op

CATALOG = Catalog()
GPUS = ["v100-sxm2-32gb", "a100-sxm-80gb", "l40s", "h100-sxm", "h200-sxm", "b200", "b300", "rtx-pro-6000-server", "mi300x"]
COLUMNS = build_gpu_columns([CATALOG.gpu_by_id[gpu] for gpu in GPUS if gpu in CATALOG.gpu_by_id])
# Unit, bytes per weight.
FORMATS = {
    "16bit": ("bf16", 2.0),
    "fp8_block": ("fp8", 1.0),
    "fp8": ("fp8", 1.0),
    "nvfp4": ("fp4", 0.5625),
    "mxfp4": ("fp4", 0.53),
    "dequantised": ("bf16", 0.53),
}
ENGINES = ["vllm", "sglang", "tensorrt-llm"]
SHAPES = [(7168.0, 2048.0, 8, 256), (4096.0, 14336.0, 2, 8), (2048.0, 768.0, 8, 128), (2880.0, 360.0, 4, 32)]
TOKENS = np.array([1.0, 2.0, 7.0, 32.0, 100.0, 512.0, 2048.0, 8192.0, 65536.0])


def moe(weights: str, tokens: Number, shape: tuple[float, float, int, int], engine: str = "vllm") -> Op:
    hidden, ffn, topk, experts = shape
    unit, width = FORMATS[weights]
    touched = distinct_experts(tokens, topk, experts)
    weight, moved = touched * 3 * hidden * ffn * width, 2.0 * tokens * hidden
    sizes = {
        "tokens": tokens, "rows": tokens * topk, "touched": touched, "hidden": hidden, "ffn": ffn, "ups": 2.0, "weight": weight,
    }  # fmt: skip
    return Op("moe", unit, 6.0 * tokens * topk * hidden * ffn, weight + moved, moved, sizes, role=f"{weights}.{engine}")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("weights", FORMATS)
def test_more_tokens_take_no_less_time_and_no_less_than_the_floor(
    weights: str, engine: str, shape: tuple[float, float, int, int]
) -> None:
    timed = operator_seconds([moe(weights, TOKENS, shape, engine)], COLUMNS)
    assert (timed.seconds >= timed.floors).all()
    assert (np.diff(timed.seconds, axis=2) >= 0).all()
    assert ((timed.streamed >= 0) & (timed.streamed <= 1)).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("narrow", "wide"), [("fp8", "16bit"), ("fp8_block", "16bit"), ("nvfp4", "fp8")])
def test_narrower_weights_with_units_of_their_own_are_no_slower(
    narrow: str, wide: str, engine: str, shape: tuple[float, float, int, int]
) -> None:
    native = (COLUMNS.native[FORMATS[narrow][0]] > 0).ravel()
    narrower, wider = (
        operator_totals([moe(weights, TOKENS, shape, engine)], COLUMNS).seconds.sum(axis=0) for weights in (narrow, wide)
    )
    assert (narrower <= wider * (1.0 + 1e-9))[native].all()


def test_4_bit_weights_on_b200_are_faster_with_units_of_their_own() -> None:
    b200 = build_gpu_columns([CATALOG.gpu_by_id["b200"]])
    for shape in SHAPES[:3]:
        native, dequantised = (operator_seconds([moe(name, TOKENS, shape)], b200).seconds for name in ("nvfp4", "dequantised"))
        assert (native < dequantised).all()
    fp8, bf16 = (operator_seconds([moe(name, np.array([8192.0]), SHAPES[0])], b200).seconds for name in ("fp8", "16bit"))
    assert 1.4 < (bf16 / fp8).item() < 2.4  # measured 1.3 to 2.3 by engine


def test_time_of_newer_chips_is_no_longer() -> None:
    order = [CATALOG.gpu_by_id[gpu] for gpu in ("h100-sxm", "h200-sxm", "b200", "b300")]
    for weights in FORMATS:
        seconds = operator_seconds([moe(weights, TOKENS, shape) for shape in SHAPES], build_gpu_columns(order)).seconds
        assert (np.diff(seconds, axis=0) <= 1e-12).all(), weights


def test_measured_kernels_are_within_the_stated_error() -> None:
    chosen = [sample for sample in samples(measurements()) if sample.curve == "moe" and sample.kind != UNTUNED_MOE][::10]
    off = [
        operator_seconds(sample.ops, build_gpu_columns([CATALOG.gpu_by_id[sample.gpu]])).seconds.item() / sample.seconds - 1.0
        for sample in chosen
    ]
    assert len(chosen) > 200
    assert np.median(np.abs(off)) < 0.13
    assert abs(np.median(off)) < 0.05
