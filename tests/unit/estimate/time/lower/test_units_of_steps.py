"""In which units and widths a step computes, by precision and year, for language models and for traced networks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager import reductions
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.mlp import perceptron_step, recommendation_pass
from whichgpu.estimate.time.lower.layer_kinds import LayerKind, layer_kind
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.lower.traced import lowering_options
from whichgpu.workload.shapes import Dlrm, Mlp, Transformer
from whichgpu.workload.workload import Workload

TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
SINGLE, HALF, MIXED = (4, 4, 4), (2, 2, 2), (4, 4, 2)


@pytest.mark.parametrize(
    ("precision", "year", "unit", "half", "widths"),
    [
        ("fp32", None, "fp32", "bf16", SINGLE), ("tf32", None, "tf32", "bf16", SINGLE), ("bf16", None, "bf16", "bf16", HALF),
        ("fp16", None, "fp16", "fp16", HALF), ("amp-bf16", None, "bf16", "bf16", MIXED),
        ("amp-fp16", None, "fp16", "fp16", MIXED),
        ("int8", None, "fp16", "fp16", HALF), ("q4_k_m", None, "fp16", "fp16", HALF),
        ("fp32-default", 2019, "fp32", "bf16", SINGLE), ("fp32-default", 2020, "tf32", "bf16", SINGLE),
        ("fp32-default", 2021, "tf32", "bf16", SINGLE), ("fp32-default", 2022, "fp32", "bf16", SINGLE),
        ("fp32", 2020, "fp32", "bf16", SINGLE),
    ],
)  # fmt: skip
def test_units_and_widths(precision: str, year: int | None, unit: str, half: str, widths: Any) -> None:
    units = numerics(precision, year)
    assert (units.widths.parameter, units.widths.stream, units.widths.compute) == widths
    assert (units.unit, units.half) == (unit, half)
    assert (units.dtype(4.0), units.dtype(2.0)) == ("fp32", half)


def options_of(**fields: Any) -> Any:
    return lowering_options(Workload("forward", "resnet50", **fields))


def test_units_of_traced_networks() -> None:
    plain = options_of(precision="fp32")
    assert (plain.gemm32, plain.conv32, plain.amp, plain.quantised_unit) == ("fp32", "fp32", False, "")
    assert (options_of(precision="tf32").gemm32, options_of(precision="tf32").conv32) == ("tf32", "tf32")
    by_year = {year: options_of(precision="fp32-default", year=year).gemm32 for year in (2019, 2020, 2021, 2022, None)}
    assert by_year == {2019: "fp32", 2020: "tf32", 2021: "tf32", 2022: "fp32", None: "fp32"}
    assert options_of(precision="fp32-default").conv32 == "tf32"
    assert [options_of(precision=name).half for name in ("bf16", "fp16", "amp-fp16", "amp-bf16")] == [
        "bf16",
        "fp16",
        "fp16",
        "bf16",
    ]
    assert options_of(precision="bf16", engine="tensorrt").half == "fp16"
    options = [options_of(precision=name) for name in ("fp8", "int8", "nvfp4", "bf16")]
    assert [(one.quantised_unit, one.quantised_width) for one in options] == [
        ("fp8", 1.0), ("int8", 1.0), ("fp4", 0.5625), ("", 1.0),
    ]  # fmt: skip
    assert options_of(precision="amp-bf16").amp
    assert options_of(memory_format="contiguous").nhwc is False
    assert options_of(memory_format="contiguous", engine="tensorrt").nhwc is True
    assert options_of(memory_format="channels_last").nhwc is True
    assert options_of().training is False
    assert lowering_options(Workload("train", "resnet50")).training is True


def test_layers_with_full_attention() -> None:
    windowed = replace(TINY, window=128)
    assert [layer_kind(replace(windowed, global_every=every), 0) for every in (0, 1, 2)] == [
        LayerKind(128, False),
        LayerKind(0, False),
        LayerKind(128, False),
    ]
    assert [layer_kind(replace(windowed, global_every=2), index).window for index in range(4)] == [128, 0, 128, 0]
    assert layer_kind(TINY, 0) == LayerKind(0, False)


IMAGE = (2.0, 16.0, 8.0, 4.0)


def sizes(rule: Any, *shapes: Any) -> dict[str, Any]:
    inputs, outputs = shapes
    (op,) = rule(Call("x", "forward", "bfloat16", 1.0, inputs, outputs, grown=(True,)), LoweringOptions())
    return {**op.sizes, "kind": op.kind}


@pytest.mark.parametrize("rule", [reductions.batch_norm, reductions.batch_norm_backward])
def test_sizes_of_a_batch_norm(rule: Any) -> None:
    computed = sizes(rule, (IMAGE,), (IMAGE,))
    expected = {"batch": 2.0, "channels": 16.0, "pixels": 32.0, "rows": 64.0, "width": 16.0, "elements": 1024.0}
    assert {name: computed[name] for name in expected} == expected


def test_a_vector_that_is_left_is_a_bias_s_gradient() -> None:
    computed = sizes(reductions.reduce, ((16.0, 40.0),), ((16.0,),))
    assert (computed["kind"], computed["rows"], computed["width"]) == ("reduce_columns", 40.0, 16.0)
    rows = sizes(reductions.reduce, ((16.0, 40.0, 3.0),), ((16.0, 40.0),))
    assert (rows["kind"], rows["rows"], rows["width"]) == ("reduce", 640.0, 3.0)


NET = Mlp("net", (100, 40, 10))


def moved(task: Any = "forward", **fields: Any) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Kernels, bytes read and written by phase and kind, of eight samples; without products."""
    plain: dict[str, Any] = {"precision": "fp32", "engine": "pytorch", "optimizer": "sgd"}
    totals: dict[tuple[str, str], tuple[float, float, float]] = {}
    for op in perceptron_step(Workload(task, "net", **(plain | fields)), NET, 8.0):
        if not op.flops and (op.read, op.write) != (4096.0, 4096.0):
            one = totals.get((op.phase, op.kind), (0.0, 0.0, 0.0))
            sides = (float(op.count), float(op.read * op.count), float(op.write * op.count))
            totals[op.phase, op.kind] = tuple(a + b for a, b in zip(one, sides, strict=True))  # type: ignore[assignment]
    return totals


def test_a_perceptron_s_kernels() -> None:
    """One ReLU between two layers; in training the loss and the gradients of both biases."""
    assert moved() == {("forward", "elementwise"): (1, 8 * 40 * 4, 8 * 40 * 4)}
    trained = moved("train")
    assert trained["forward", "softmax"] == (1, 8 * 10 * 4, 8 * 10 * 4)
    assert trained["backward", "reduce_columns"] == (2, 8 * 50 * 4, 50 * 4)
    half = moved(precision="bf16")
    assert half["forward", "elementwise"] == (1, 8 * 40 * 2, 8 * 40 * 2)


def test_a_recommendation_model_s_kernels() -> None:
    """Two tables of vectors of 8, dense features through 13-32-8, all pairs of three vectors, then 16-1."""
    shape = Dlrm("d", 8, (100, 200), (13, 32, 8), (16, 1))
    ops = recommendation_pass(Workload("forward", "d", precision="fp32"), shape, 5.0)
    products = [(float(op.sizes["m"]), float(op.sizes["n"]), float(op.sizes["k"])) for op in ops if op.kind == "gemm"]
    assert products == [(5, 32, 13), (5, 8, 32), (3, 3, 8), (5, 16, 11), (5, 1, 16)]
    looked = [(float(op.read), float(op.write), float(op.sizes["table"])) for op in ops if op.kind == "embedding"]
    assert looked == [(5 * 8 * 4, 5 * 8 * 4, 100), (5 * 8 * 4, 5 * 8 * 4, 200)]
    copied = [(float(op.read), float(op.write)) for op in ops if op.kind == "copy"]
    assert copied == [(5 * 24 * 4, 5 * 24 * 4), (5 * 11 * 4, 5 * 11 * 4)]
    assert [float(op.read) for op in ops if op.role == "relu"] == [5 * 32 * 4, 5 * 16 * 4]
    assert {op.phase for op in ops} == {"forward"}
