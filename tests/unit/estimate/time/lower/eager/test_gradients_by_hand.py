"""Backward pass: kernels of gradients and the bytes they move, and which kernels cannot be vectorised, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager import attention, convolution, elementwise, functional, gemm
from whichgpu.estimate.time.lower.eager.aten import aten_kernels
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import LayerPass
from whichgpu.estimate.time.lower.fused.training import fused_loss, fused_training_layer
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Transformer

ROWS, COLUMNS = 6.0, 40.0
N = ROWS * COLUMNS
# hidden 64, four layers, eight heads of 8 with two of keys, an MLP of 256, 1000 words
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def written(run: Callable[[KernelWriter], Any], precision: str = "bf16", **more: Any) -> list[Op]:
    write = KernelWriter(numerics(precision), **more)
    run(write)
    return write.ops


def moved(ops: list[Op], phase: str = "backward") -> tuple[float, float, float]:
    """Kernels, bytes read and bytes written of a phase, without products and those on a few numbers."""
    mine = [op for op in ops if op.phase == phase and (op.read, op.write) != (4096.0, 4096.0) and not op.flops]
    sides = [(float(op.count), float(op.read * op.count), float(op.write * op.count)) for op in mine]
    return sum(one[0] for one in sides), sum(one[1] for one in sides), sum(one[2] for one in sides)


def x(width: float = 2.0) -> MatrixSizes:
    return MatrixSizes(ROWS, COLUMNS, width)


def test_an_rms_norm_s_gradient() -> None:
    """The weight's (three kernels), a cast, the row's number (two and a sum), the mean's spread, the square's, a sum, a cast."""
    ops = written(lambda write: functional.rms_norm(write, x()))
    read = (2 + 4 + 2) + 2 + (4 + 8 + 4) + 0 + (4 + 4 + 8) + 8 + 4
    wrote = (2 + 2) + 4 + (4 + 4) + 4 + 3 * 4 + 4 + 2
    assert moved(ops) == (13, read * N, wrote * N + COLUMNS * 2 + ROWS * 4)
    frozen = written(lambda write: functional.rms_norm(write, x()), frozen=True)
    assert moved(frozen) == (11, (read - 6) * N, (wrote - 2) * N + ROWS * 4)
    wide = written(lambda write: functional.rms_norm(write, x(), wide_weight=True))
    # the weight in fp32, so its three kernels move twice as much
    assert moved(wide) == (13, (read + 8) * N, (wrote + 4) * N + COLUMNS * 4 + ROWS * 4)


def test_a_rotation_s_gradient() -> None:
    """Two products, the negated half, both parts written into zeros and added, both branches added, heads transposed back."""
    whole = written(lambda write: functional.rotary(write, x()))
    cut = 2 * 1 + 4, 2 * (2 + 1) + 2
    assert moved(whole) == (10, (4 + 1 + cut[0] + 4 + 2) * N, (4 + 1 + cut[1] + 2 + 2) * N)
    half = written(lambda write: functional.rotary(write, x(), 0.5))
    assert moved(half) == (15, ((4 + 1 + cut[0] + 4) / 2 + cut[0] + 2) * N, ((4 + 1 + cut[1] + 2) / 2 + cut[1] + 2) * N)
    # under autocast cos and sin are of fp32: results are as wide, and gradients are cast back
    mixed = written(lambda write: functional.rotary(write, x()), "amp-bf16")
    assert moved(mixed, "forward") == (5, (2 + 1 + 2 + 2 + 8) * N, (4 + 1 + 2 + 4 + 4) * N)
    assert moved(mixed) == (12, (8 + 8 + 1 + cut[0] + 4 + 2) * N, (8 + 4 + 1 + cut[1] + 2 + 2) * N)


def roles(ops: list[Op], phase: str = "forward") -> list[str]:
    return [op.role for op in ops if op.phase == phase]


@pytest.mark.parametrize("other", [2.0, 4.0])
def test_operands_of_other_widths_are_not_vectorised(other: float) -> None:
    role = "" if other == 2.0 else "strided"
    for one, two in ((2.0, other), (other, 2.0)):
        assert roles(written(lambda write: functional.add(write, x(one), x(two)))) == [role]  # noqa: B023
        ops = written(lambda write: functional.multiply(write, x(one), x(two)))  # noqa: B023
        assert roles(ops) == [role]
        assert [op.role for op in ops if op.phase == "backward" and op.kind == "elementwise"] == [role] * 2


def test_operator_roles_used_by_curves() -> None:
    gelu = written(lambda write: functional.elementwise(write, x(), "gelu"))
    assert (roles(gelu), roles(gelu, "backward")) == (["gelu"], ["gelu_backward"])
    plain = written(lambda write: functional.elementwise(write, x()))
    assert (roles(plain), roles(plain, "backward")) == ([""], [""])
    weighted = written(lambda write: functional.column_weight(write, x()))
    assert (roles(weighted), roles(weighted, "backward")) == (["strided"], ["strided", "", ""])
    assert [op.role for op in written(lambda write: write.cast(x(), 4.0))] == ["upcast", ""]
    dropped = written(lambda write: functional.dropout(write, x(), 0.1))
    assert [op.kind for op in dropped] == ["dropout", "elementwise"]
    turned = written(lambda write: functional.rotary(write, x()))
    assert roles(turned) == ["strided", "strided", "concat", "strided", "strided"]


def test_adapters_under_autocast_are_cast_in_forward_and_backward() -> None:
    ops = written(lambda write: functional.linear(write, x(), 24.0, bias=True), "amp-bf16", lora_rank=4)
    output, low = ROWS * 24, (COLUMNS + 24) * 4
    base = COLUMNS * 24 + 24  # the frozen weight and bias, cast once; they have no gradient
    assert moved(ops, "forward") == (5, 4 * base + 4 * low + (2 + 4) * output, 2 * base + 2 * low + 4 * output)
    assert moved(ops) == (3, 2 * low + 2 * output + 4 * N, 4 * low + 2 * output + 2 * N)


SEEN = AttentionSizes(batch=2.0, heads=4.0, kv_heads=2.0, queries=10.0, keys=10.0, dim=8.0, value_dim=8.0, causal=False)
SCORES = 2.0 * 4 * 10 * 10


def test_attention_without_a_fused_kernel() -> None:
    """Queries, keys and values of all heads cast, scaled and transposed; scores in fp32 with a mask, a softmax, a check for
    fully masked rows; cast for the last GEMM."""
    q = MatrixSizes(20.0, 32.0, 2.0)
    ops = written(lambda write: attention.math_attention(write, SEEN, q, q, q))
    part = 20.0 * 32
    kernels_, read, wrote = moved(ops, "forward")
    assert kernels_ == 3 * 3 + 5 + 2 + 1
    assert read == 3 * (2 + 4 + 4) * part + (8 + 4 + 4 + 1 + 4) * SCORES + 4 * SCORES + 4 * part + 2 * part
    assert wrote == 3 * (4 + 4 + 4) * part + (4 + 4 + 1 + 4) * SCORES + SCORES / 10 + 2 * SCORES + 2 * part + 2 * part
    assert {op.unit for op in ops if op.flops} == {"fp32"}
    wide = MatrixSizes(20.0, 32.0, 4.0)
    single = written(lambda write: attention.math_attention(write, SEEN, wide, wide, wide), "tf32")
    assert {op.unit for op in single if op.flops} == {"tf32"}
    assert not [op for op in single if op.phase == "forward" and op.kind == "copy" and op.role != "strided"]  # no casts


def fused(shape: Transformer = TINY, precision: str = "bf16", **more: Any) -> list[Op]:
    plain: dict[str, Any] = {"batch": 3.0, "sequence": 10.0, "causal": True}
    return written(lambda write: fused_training_layer(write, shape, LayerPass(**(plain | more))), precision)


T, H, K, F = 30.0, 64, 16, 256


def test_a_compiled_layer_reads_and_writes_each_run_once() -> None:
    """Two norms with their residual sums, rotary on queries and keys, the gate; backward with all consumers of a norm."""
    ops = fused()
    norm = 2 * H * 2 * T
    turned, gate = (H + K) * 2 * T, F * 2 * T
    assert moved(ops, "forward") == (2 + 2 + 1, 2 * norm + turned + 2 * gate, 2 * norm + turned + gate)
    back = (3 + 2) * H * 2 * T + (2 + 2) * H * 2 * T  # three products read the first norm, two the second
    keys = 2 * 10 * 3 * 2 * 8 * 2  # gradients of keys and values, summed over the query heads that share them
    assert moved(ops) == (2 + 2 + 1 + 2, back + turned + 3 * gate + 4 * keys, 2 * H * 2 * T + turned + 2 * gate + keys)


def test_families_of_compiled_layers() -> None:
    def backward_norms(**changed: Any) -> list[float]:
        ops = fused(replace(TINY, **changed))
        return [float(op.read) / (H * 2 * T) for op in ops if op.kind == "norm_backward"]

    assert backward_norms() == [5, 4]
    assert backward_norms(model_type="phi3") == [3, 3]  # joined projections
    assert backward_norms(gated=False) == [5, 3]
    assert backward_norms(norms=4) == [5, 4, 3, 3]
    assert backward_norms(parallel_block=True, norms=1) == [5]
    assert backward_norms(parallel_block=True) == [5, 4]
    normed = moved(fused(replace(TINY, qk_norm=True)))[1] - moved(fused())[1]
    assert normed == (H + K) * 2 * T  # the norms' inputs once more
    unturned = moved(fused(replace(TINY, rope=False)), "forward")
    assert unturned[0] == 3
    mixed = moved(fused(precision="amp-bf16"), "forward")
    casts = 2 * H * H + 2 * H * K + 3 * H * F
    assert mixed[1] == 2 * (4 + 2) * H * T + (H + K) * 2 * T + 2 * F * 2 * T + 4 * casts


def test_gemms_and_attention_of_a_compiled_layer() -> None:
    sizes = [(op.sizes["n"], op.sizes["k"]) for op in fused() if op.kind == "gemm" and op.phase == "forward"]
    assert sizes == [(H, H), (K, H), (K, H), (H, H), (F, H), (F, H), (H, F)]
    crossed = [op for op in fused(source=7.0) if op.kind == "gemm" and op.phase == "forward"]
    assert [(op.sizes["m"], op.sizes["n"]) for op in crossed[4:8]] == [(T, H), (21, K), (21, K), (T, H)]
    for kernel, pairs in (("flash", 50), ("sdpa", 100)):  # compiled models are handed a mask, unless flash attention skips
        (op,) = [op for op in fused(attention=kernel) if op.kind == "attention"]
        assert op.flops == 2 * 3 * 8 * pairs * 16
    eager = fused(attention="eager")
    assert not [op for op in eager if op.kind == "attention"]


def test_a_compiled_loss() -> None:
    """1001 words: products that only read logits are padded to 1008."""
    shape = replace(TINY, vocab=1001)
    ops = written(lambda write: fused_loss(write, shape, 30.0))
    sizes = [(op.sizes["m"], op.sizes["n"], op.sizes["k"]) for op in ops if op.kind == "gemm"]
    assert sizes == [(30, 1001, 64), (30, 64, 1008), (1008, 64, 30)]
    loss = [(op.kind, float(op.read), float(op.write)) for op in ops if op.role == "fused" and "softmax" in op.kind]
    assert loss == [("softmax", 30 * 1001 * 2, 240), ("softmax_backward", 30 * 1001 * 2, 30 * 1001 * 2)]
    frozen = written(lambda write: fused_loss(write, replace(shape, head_bias=True), 30.0), frozen=True)
    assert [op.role for op in frozen if op.kind == "gemm"] == ["forward", "dgrad"]
    assert not [op for op in frozen if op.kind == "reduce_columns"]
    biased = written(lambda write: fused_loss(write, replace(shape, head_bias=True), 30.0))
    assert [float(op.write) for op in biased if op.kind == "reduce_columns"] == [1001 * 2]
    assert sum(op.kind == "norm" for op in written(lambda write: fused_loss(write, replace(shape, lm_transform=True), 30.0))) == 2


IMAGE = (2.0, 16.0, 8.0, 8.0)
PIXELS = 2.0 * 16 * 64


def call(name: str, inputs: Any, outputs: Any, dtype: str = "bfloat16", **more: Any) -> Call:
    plain: dict[str, Any] = {"phase": "forward", "count": 1.0, "grown": (True,)}
    return Call(name, dtype=dtype, inputs=inputs, outputs=outputs, **(plain | more))


def conv(inputs: Any, outputs: Any, settings: LoweringOptions | None = None, **attributes: Any) -> list[Op]:
    return convolution.forward(call("convolution", inputs, outputs, attributes=attributes), settings or LoweringOptions())


def test_convolutions_of_one_two_and_three_dimensions() -> None:
    def operator_sizes(before: Any, after: Any, weight: Any) -> tuple[float, ...]:
        (op,) = conv((before, weight), (after,))
        return float(op.flops), *(float(op.sizes[name]) for name in ("batch", "height", "width", "kernel"))

    assert operator_sizes(IMAGE, (2.0, 32.0, 4.0, 8.0), (32.0, 16.0, 3.0, 3.0)) == (2 * 2 * 32 * 32 * 9 * 16, 2, 4, 8, 9)
    assert operator_sizes((2.0, 16.0, 50.0), (2.0, 32.0, 50.0), (32.0, 16.0, 3.0)) == (2 * 2 * 32 * 50 * 3 * 16, 2, 1, 50, 3)
    deep = operator_sizes((2.0, 16.0, 5.0, 8.0, 8.0), (2.0, 32.0, 5.0, 8.0, 8.0), (32.0, 16.0, 3.0, 3.0, 3.0))
    assert deep == (2 * 2 * 32 * 320 * 27 * 16, 10, 8, 8, 27)


def test_bytes_and_units_of_a_convolution() -> None:
    output, weight = (2.0, 32.0, 8.0, 8.0), (32.0, 16.0, 3.0, 3.0)
    (op,) = conv((IMAGE, weight), (output,), stride=[1, 2])
    assert (op.read, op.write) == (2 * (PIXELS + 32 * 16 * 9), 2 * 2 * PIXELS)
    assert op.sizes["stride"] == 2.0
    assert op.sizes["resident"] == pytest.approx(PIXELS / (3 * PIXELS + 32 * 16 * 9))  # the image, just made
    assert (op.sizes["cin"], op.sizes["cout"], op.sizes["groups"], op.sizes["nhwc"]) == (16, 32, 1, 1)
    (still,) = conv((IMAGE, weight), (output,), LoweringOptions(training=False))
    assert still.sizes["resident"] == pytest.approx(3 * PIXELS / (3 * PIXELS + 32 * 16 * 9))
    assert still.sizes["stride"] == 1.0
    (narrow,) = conv((IMAGE, weight), (output,), LoweringOptions(quantised_unit="int8"))
    assert (narrow.unit, narrow.read) == ("int8", PIXELS + 32 * 16 * 9)
    biased = conv((IMAGE, weight, (32.0,)), (output,))
    assert [(one.role, float(one.read), float(one.write)) for one in biased[1:]] == [("strided", 4 * PIXELS, 4 * PIXELS)]


def test_gradients_of_a_convolution() -> None:
    output, weight = (2.0, 32.0, 8.0, 8.0), (32.0, 16.0, 3.0, 3.0)

    def back(mask: Any, **more: Any) -> list[Op]:
        operator = call(
            "convolution_backward", (output, IMAGE, weight), (IMAGE, weight, (32.0,)), attributes={"mask": mask, **more}
        )
        return convolution.backward(operator, LoweringOptions())

    dgrad, wgrad, bias = back((True, True, True))
    size = 2 * 32 * 16 * 9
    assert (dgrad.kind, dgrad.read, dgrad.write) == ("conv_dgrad", 4 * PIXELS + size, 2 * PIXELS)
    assert (wgrad.kind, wgrad.read, wgrad.write) == ("conv_wgrad", 6 * PIXELS, size)
    assert dgrad.flops == wgrad.flops == 2 * 2 * PIXELS * 9 * 16
    assert (bias.kind, bias.read, bias.write, bias.sizes) == ("reduce_columns", 4 * PIXELS, 64, {"rows": 128, "width": 32})
    assert [op.kind for op in back((False, True, False))] == ["conv_wgrad"]
    assert [op.kind for op in back((True, False, False))] == ["conv_dgrad"]
    turned = call(
        "convolution_backward",
        (IMAGE, output, weight),
        (output, weight),
        attributes={"mask": (True, True, False), "transposed": True},
    )
    assert [op.kind for op in convolution.backward(turned, LoweringOptions())] == ["conv", "conv_wgrad"]
    (up,) = convolution.forward(
        call("convolution", (output, weight), (IMAGE,), attributes={"transposed": True}), LoweringOptions()
    )
    assert (up.kind, up.write, up.flops) == ("conv_dgrad", 2 * PIXELS, 2 * 2 * PIXELS * 9 * 16)


def test_groups_of_odd_widths_run_one_after_another() -> None:
    weight = (32.0, 8.0, 3.0, 3.0)
    (together,) = conv((IMAGE, weight), ((2.0, 32.0, 8.0, 8.0),), groups=2)
    assert (together.sizes["groups"], together.flops) == (2.0, 2 * 2 * PIXELS * 9 * 8)
    odd = (2.0, 6.0, 8.0, 8.0)
    kernel, before, after = conv((odd, (12.0, 3.0, 3.0, 3.0)), ((2.0, 12.0, 8.0, 8.0),), groups=2)
    assert (kernel.count, kernel.sizes["cin"], kernel.sizes["cout"], kernel.sizes["groups"]) == (2.0, 3.0, 6.0, 1.0)
    assert kernel.flops == 2 * 2 * 6 * 64 * 9 * 3
    assert [(op.kind, op.count, float(op.read)) for op in (before, after)] == [
        ("copy", 2.0, 2 * 2 * 3 * 64),
        ("copy", 2.0, 2 * 2 * 6 * 64),
    ]


def test_a_parameter_that_scales_a_residual_is_of_fp32_under_autocast() -> None:
    def operator_sizes(name: str, first: Any, **more: Any) -> tuple[str, float]:
        (op,) = elementwise.elementwise(call(name, (first, IMAGE), (IMAGE,), "float32", **more), LoweringOptions(amp=True))
        return op.role, float(op.read)

    whole = 4 * (PIXELS + 16)
    assert operator_sizes("mul", (16.0, 1.0, 1.0)) == ("strided", whole / 2)
    assert operator_sizes("mul", (16.0, 1.0)) == ("strided", whole)
    assert operator_sizes("mul", (1.0, 16.0, 1.0, 1.0)) == ("strided", whole)
    assert operator_sizes("sub", (16.0, 1.0, 1.0)) == ("strided", whole)
    assert operator_sizes("mul", (16.0, 1.0, 1.0), phase="backward") == ("strided", whole)


def test_gemms_of_traced_networks() -> None:
    def operator_sizes(name: str, inputs: Any, phase: Any = "forward", growing: Any = ()) -> tuple[Any, ...]:
        (op,) = gemm.matmul(call(name, inputs, ((6.0, 24.0),), phase=phase, growing=growing), LoweringOptions())
        return op.role, *(float(op.sizes[one]) for one in ("batch", "m", "n", "k"))

    assert operator_sizes("addmm", ((24.0,), (6.0, 40.0), (40.0, 24.0))) == ("forward", 1, 6, 24, 40)
    assert operator_sizes("bmm", ((5.0, 6.0, 40.0), (5.0, 40.0, 24.0))) == ("forward", 5, 6, 24, 40)
    # a product that sums over what grows with the batch makes a weight's gradient; where that is unknown, the longer sum does
    assert operator_sizes("mm", ((6.0, 40.0), (40.0, 24.0)), "backward", ((False, True), (True, False)))[0] == "wgrad"
    assert operator_sizes("mm", ((6.0, 40.0), (40.0, 24.0)), "backward", ((True, False), (False, False)))[0] == "dgrad"
    assert operator_sizes("mm", ((6.0, 40.0), (40.0, 24.0)), "backward")[0] == "wgrad"
    assert operator_sizes("mm", ((40.0, 6.0), (6.0, 24.0)), "backward")[0] == "dgrad"
    assert operator_sizes("mm", ((40.0, 40.0), (40.0, 24.0)), "backward")[0] == "dgrad"


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_traced_networks(causal: bool) -> None:
    query, key = (2.0, 8.0, 10.0, 16.0), (2.0, 4.0, 12.0, 16.0)
    q, kv = 2 * 8 * 10 * 16 * 2, 2 * 4 * 12 * 16 * 2
    pairs = 120 / (2 if causal else 1)
    (there,) = gemm.attention(call("a", (query, key, key), (query,), attributes={"causal": causal}), LoweringOptions())
    assert (there.flops, there.read, there.write) == (2 * 2 * 2 * 8 * pairs * 16, q + 2 * kv, q)
    assert (there.sizes["keys"], there.sizes["kv_heads"], there.sizes["dim"]) == (12, 4, 16)
    back = gemm.attention_backward(
        call("a", (query, query, key, key), (query,), attributes={"causal": causal}), LoweringOptions()
    )
    assert (back[0].flops, back[0].read, back[0].write) == (2.5 * there.flops, 3 * q + 2 * kv, q + 2 * kv)


@pytest.mark.parametrize(
    ("name", "kind", "reads", "over"),
    [("_softmax", "softmax", 1, 8), ("_safe_softmax", "softmax", 1, 8), ("_softmax_backward_data", "softmax_backward", 2, 8),
     ("_log_softmax", "softmax", 1, 16), ("_log_softmax_backward_data", "softmax_backward", 2, 16)],
)  # fmt: skip
def test_softmaxes_by_name(name: str, kind: str, reads: int, over: int) -> None:
    (op,) = aten_kernels(call(name, (IMAGE,), (IMAGE,)), LoweringOptions())
    assert (op.kind, op.read, op.write, op.sizes["width"]) == (kind, reads * 2 * PIXELS, 2 * PIXELS, over)


def test_views_launch_nothing_and_unknown_operators_are_elementwise() -> None:
    assert aten_kernels(call("view", (IMAGE,), (IMAGE,)), LoweringOptions()) == []
    assert aten_kernels(call("sin", (IMAGE,), ()), LoweringOptions()) == []
    (op,) = aten_kernels(call("sin", (IMAGE,), (IMAGE,)), LoweringOptions())
    assert (op.kind, op.read, op.write) == ("elementwise", 2 * PIXELS, 2 * PIXELS)
