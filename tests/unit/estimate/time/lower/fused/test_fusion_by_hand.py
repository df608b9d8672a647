"""What compilers and stacks fuse, worked out on a network of three calls; attention and caches of other widths."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower.eager.aten import aten_kernels
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.gemm import native_attention
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.training import eager_pass, trained_parameters, training_step
from whichgpu.estimate.time.lower.fused.fusion_rules import fuse
from whichgpu.estimate.time.lower.fused.inference import fused_pass
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel, Workload

IMAGE = (2.0, 16.0, 8.0, 8.0)
N = 2.0 * 16 * 64
WEIGHT = (16.0, 16.0, 3.0, 3.0)
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def call(name: str, *inputs: Any, outputs: Any = (IMAGE,), dtype: str = "bfloat16", **more: Any) -> Call:
    plain: dict[str, Any] = {"phase": "forward", "count": 1.0, "grown": (True,)}
    return Call(name, dtype=dtype, inputs=inputs, outputs=outputs, **(plain | more))


CONV, NORM, RELU = call("convolution", IMAGE, WEIGHT), call("native_batch_norm", IMAGE), call("relu_", IMAGE)
ADD = call("add_", IMAGE, IMAGE, alike=True)


def remaining_ops(engine: str, *calls: Call, **settings: Any) -> list[tuple[str, str, float, float]]:
    """Kind, role, bytes read and written of what is left."""
    how = LoweringOptions(**settings)
    ops = fuse([(one, aten_kernels(one, how)) for one in calls], engine_record(engine).fusion, how)
    return [(op.kind, op.role, float(op.read), float(op.write)) for op in ops]


def test_eager_pytorch_fuses_nothing() -> None:
    assert [kind for kind, *_ in remaining_ops("pytorch", CONV, NORM, RELU, ADD)] == [
        "conv",
        "batch_norm",
        "elementwise",
        "elementwise",
    ]


def test_compiler_fuses_following_elementwise_into_the_norm() -> None:
    """Sums over pixels, then the result with the ReLU and the residual inside: its second operand is read there."""
    remaining = remaining_ops("pytorch-compile", CONV, NORM, RELU, ADD)
    assert remaining[0][0] == "conv"
    assert remaining[1:] == [("reduce_columns", "", 2 * N, 8 * 16), ("elementwise", "", 2 * N + 2 * N, 2 * N)]
    evaluated = remaining_ops("pytorch-compile", CONV, NORM, RELU, training=False, amp=True)
    assert evaluated[1:] == [("elementwise", "", 2 * N, 2 * N)]


def test_a_compiler_s_own_layer_norms() -> None:
    rows = (2.0, 10.0, 32.0)
    there = call("native_layer_norm", rows, outputs=(rows,))
    back = call("native_layer_norm_backward", rows, outputs=(rows,), phase="backward")
    size = 2.0 * 640
    assert remaining_ops("pytorch-compile", there) == [("norm", "fused", size, size)]
    assert remaining_ops("pytorch-compile", back) == [("norm", "fused", 2 * size, size), ("reduce_columns", "", 2 * size, 8 * 32)]


def test_others_sizes_and_phases_stay_kernels_of_their_own() -> None:
    small = (2.0, 16.0, 4.0, 4.0)
    other = call("relu_", small, outputs=(small,))
    back = call("threshold_backward", IMAGE, IMAGE, phase="backward")
    assert [kind for kind, *_ in remaining_ops("pytorch-compile", NORM, other, back)] == [
        "reduce_columns", "elementwise", "elementwise", "elementwise",
    ]  # fmt: skip


def test_a_compiler_merges_elementwise_operators_that_no_norm_takes_in() -> None:
    """Bias, ReLU and residual sum after a convolution become one kernel; a residual is read there."""
    biased = call("convolution", IMAGE, WEIGHT, (16.0,))
    assert remaining_ops("pytorch-compile", biased, RELU, ADD)[1:] == [("elementwise", "", 2 * (2 * N), 2 * N)]
    assert [kind for kind, *_ in remaining_ops("pytorch-compile", biased)] == ["conv", "elementwise"]
    twice = remaining_ops("pytorch-compile", biased, biased, RELU)  # only one of two results has a ReLU after it
    assert [kind for kind, *_ in twice] == ["conv", "elementwise"] * 2 + ["elementwise"]
    wide = call("mul", IMAGE, IMAGE, dtype="float32", alike=True)
    assert remaining_ops("pytorch-compile", biased, wide, wide, RELU)[1:] == [("elementwise", "", 2 * (2 * N), 2 * N)]


def test_fused_kernel_reads_no_more_than_one_extra_tensor() -> None:
    sums = [ADD] * 3  # their further operands are one another's results
    assert remaining_ops("pytorch-compile", NORM, *sums)[1] == ("elementwise", "", 2 * N + 2 * N, 2 * N)


def test_engines_that_fuse_store_no_positions_of_maxima_in_inference() -> None:
    small = (2.0, 16.0, 4.0, 4.0)
    pool = call("max_pool2d_with_indices", IMAGE, outputs=(small, small))
    moved = {
        engine: [one[2:] for one in remaining_ops(engine, pool, training=False)]
        for engine in ("pytorch", "pytorch-compile", "tensorrt")
    }
    assert moved["pytorch"] == [(2 * N, (2 + 8) * N / 4)]
    assert moved["pytorch-compile"] == moved["tensorrt"] == [(2 * N, 2 * N / 4)]
    assert remaining_ops("tensorrt", pool, training=False, quantised_unit="int8")[0][2:] == (N, N / 4)
    assert remaining_ops("pytorch-compile", pool)[0][3] == (2 + 8) * N / 4  # the backward pass needs them


def bottleneck_stage(pixels: float = 8.0) -> list[Call]:
    """Convolutions of the first stage of a ResNet-50, with how often each runs."""
    narrow, wide = (2.0, 64.0, pixels, pixels), (2.0, 256.0, pixels, pixels)
    return [
        call("convolution", narrow, (64.0, 64.0, 1.0, 1.0), outputs=(narrow,)),
        call("convolution", narrow, (64.0, 64.0, 3.0, 3.0), outputs=(narrow,), count=3.0),
        call("convolution", narrow, (256.0, 64.0, 1.0, 1.0), outputs=(wide,), count=4.0),
        call("convolution", wide, (64.0, 256.0, 1.0, 1.0), outputs=(narrow,), count=2.0),
    ]


def test_tensorrt_runs_a_resnet_s_first_stage_in_int8_as_one_kernel() -> None:
    """Weights, the input once and the result once are all that moves."""
    settings: dict[str, Any] = {"training": False, "quantised_unit": "int8"}
    stage = bottleneck_stage()
    how = LoweringOptions(**settings)
    ops = fuse([(one, aten_kernels(one, how)) for one in stage], "tensorrt", how)
    weights = 64 * 64 + 3 * 9 * 64 * 64 + 4 * 64 * 256 + 2 * 64 * 256
    assert sum(float(op.read * op.count) for op in ops) == weights + 2 * 64 * 64
    assert sum(float(op.write * op.count) for op in ops) == 2 * 256 * 64
    assert (
        remaining_ops("tensorrt", *stage[1:3], **settings) != remaining_ops("tensorrt", *stage, **settings)[1:3]
    )  # not the whole stage
    for other in ({"training": False}, {**settings, "quantised_unit": "fp8"}):
        assert remaining_ops("tensorrt", *stage, **other)[0][2:] != remaining_ops("tensorrt", *stage, **settings)[0][2:]


def test_tensorrt_folds_norms_and_fuses_activations_into_gemms() -> None:
    remaining = remaining_ops("tensorrt", CONV, NORM, RELU, ADD, training=False)
    plain = remaining_ops("pytorch", CONV, training=False)
    assert remaining == [("conv", "forward", plain[0][2] + 2 * N, plain[0][3])]
    scaled = remaining_ops("tensorrt", CONV, call("mul", IMAGE, IMAGE, alike=True), training=False)
    assert len(scaled) == 2  # a gate is a kernel of its own


def test_old_stacks_have_cudnn_s_norm_with_its_activation_in_16_bits() -> None:
    for engine in ("ngc", "mxnet", "tensorflow"):
        assert [kind for kind, *_ in remaining_ops(engine, NORM, RELU, ADD)] == ["batch_norm"]
        assert remaining_ops(engine, NORM, RELU, ADD)[0][2] == 4 * N + 2 * N
        wide = [replace(one, dtype="float32") for one in (NORM, RELU, ADD)]
        assert len(remaining_ops(engine, *wide)) == 3
        assert len(remaining_ops(engine, NORM, call("silu", IMAGE))) == 2
        assert len(remaining_ops(engine, NORM, RELU, ADD, nhwc=False)) == 3  # cuDNN has it for channels last alone


def test_a_guest_shared_by_several_hosts() -> None:
    """Three norms, of which one has a sum after it: each brings a third of the other operand."""
    remaining = remaining_ops("ngc", NORM, NORM, NORM, ADD)
    assert [round(read, 3) for *_, read, _ in remaining] == [round(4 * N + 2 * N / 3, 3)] * 3
    twice = remaining_ops("ngc", replace(NORM, count=2.0), replace(ADD, count=2.0))
    assert twice[0][2] == 4 * N + 2 * N


def test_fused_casts_reduce_tensor_width() -> None:
    narrow, wide = call("_to_copy", IMAGE), call("_to_copy", IMAGE, dtype="float32")
    read, wrote = 4 * N, 2 * N
    assert remaining_ops("pytorch-compile", NORM, amp=True)[1][2:] == (2 * N, 2 * N)
    assert remaining_ops("pytorch-compile", NORM, narrow, amp=True)[1][2:] == (2 * N, wrote / 2)
    assert remaining_ops("pytorch-compile", NORM, wide, amp=True)[1][2:] == (read / 4, 2 * N)
    both = remaining_ops("pytorch-compile", NORM, NORM, narrow, amp=True)
    assert [one[3] for one in both if one[0] == "elementwise"] == [wrote * 3 / 4] * 2  # of every second one
    assert remaining_ops("pytorch-compile", NORM, narrow)[1][2:] == (2 * N, 2 * N)


def test_attention_in_one_call() -> None:
    """Four tokens of 128 numbers, two heads of 64: a product to three times as many, attention, a product."""
    query, weight, projection = (3.0, 4.0, 128.0), (384.0, 128.0), (128.0, 128.0)
    operator = call("_native_multi_head_attention", query, query, query, weight, (384.0,), projection, outputs=(query,))
    qkv, attended, out = native_attention(operator, LoweringOptions(training=False))
    assert [(op.sizes["m"], op.sizes["n"], op.sizes["k"]) for op in (qkv, out)] == [(12, 384, 128), (12, 128, 128)]
    assert attended.flops == 2 * 2 * 3 * 2 * 16 * 64
    assert (attended.read, attended.write) == (3 * 12 * 128 * 2, 12 * 128 * 2)
    assert (attended.sizes["heads"], attended.sizes["dim"], attended.sizes["queries"]) == (2, 64, 4)


def eager(precision: str, **more: Any) -> list[Op]:
    write = KernelWriter(numerics(precision))
    plain: dict[str, Any] = {"batch": 3.0, "sequence": 10.0}
    eager_layer(write, replace(TINY, kv_heads=8), LayerPass(**(plain | more)))
    return write.ops


def test_units_of_fused_attention() -> None:
    for precision, unit in (("bf16", "bf16"), ("fp16", "fp16"), ("tf32", "fp32"), ("fp32", "fp32"), ("amp-fp16", "fp16")):
        assert {op.unit for op in eager(precision) if op.kind.startswith("attention")} == {unit}


def test_crossing_sees_all_of_the_encoder_s_tokens() -> None:
    own, crossed = [op for op in eager("bf16", source=7.0) if op.kind == "attention"]
    assert own.flops == 2 * 3 * 8 * 50 * 16
    assert crossed.flops == 2 * 3 * 8 * 70 * 16
    assert (own.sizes["causal"], crossed.sizes["causal"]) == (1.0, 0.0)


def test_an_encoder_sees_all_of_its_tokens() -> None:
    """Two layers over seven tokens of three sequences; a decoder that begins with one token each."""
    both = replace(TINY, encoder_layers=2, encoder_context=7)
    workload = Workload("prefill", "tiny", precision="bf16", engine="vllm")
    attended = [op for op in fused_pass(workload, both, 3.0, 10.0, None) if op.kind == "attention"]
    assert [float(op.flops * op.count) for op in attended] == [2 * 3 * 8 * one * 16 for one in (2 * 49, 4 * 0.5, 4 * 7)]
    eager_ = [op for op in eager_pass(replace(workload, engine="pytorch"), both, 3.0, 10.0) if op.kind == "attention"]
    assert [float(op.flops * op.count) for op in eager_] == [2 * 3 * 8 * one * 16 for one in (2 * 49, 4 * 0.5, 4 * 7)]


@pytest.mark.parametrize(
    ("kv_precision", "width"), [("bf16", 2.0), ("fp8", 1.0), ("q8_0", 34 / 32), ("q4_0", 18 / 32), ("fp32", 4.0)]
)
def test_kv_cache_bytes_read_per_token(kv_precision: str, width: float) -> None:
    workload = Workload("decode", "tiny", precision="bf16", engine="vllm", kv_precision=kv_precision)
    ops = fused_pass(workload, TINY, 3.0, 1.0, 40.0)
    (read,) = {float(op.read) for op in ops if op.kind == "decode_attention"}
    assert read == pytest.approx(3 * 8 * 8 * 2 + 3 * 2 * 40 * 16 * width)


def passed(**fields: Any) -> list[Op]:
    plain: dict[str, Any] = {"precision": "bf16", "engine": "pytorch"}
    return eager_pass(Workload("forward", "tiny", **(plain | fields)), TINY, 3.0, 10.0)


def test_attention_is_fused_by_default() -> None:
    assert sum(op.count for op in passed() if op.kind == "attention") == 4
    assert sum(op.count for op in passed(attention="sdpa") if op.kind == "attention") == 4
    assert not [op for op in passed(attention="eager") if op.kind == "attention"]
    assert sum(op.count for op in passed(attention="eager") if op.kind == "softmax") == 4


def joins(ops: list[Op]) -> float:
    return sum(float(op.count) for op in ops if op.role == "concat" and op.phase == "forward")


def test_only_prompts_leave_a_cache() -> None:
    still = replace(TINY, rope=False)

    def run(task: Any) -> list[Op]:
        return eager_pass(Workload(task, "tiny", precision="bf16", engine="pytorch"), still, 3.0, 10.0)

    assert [joins(run(task)) for task in ("forward", "prefill")] == [0, 2 * 4]
    trained_ = Workload("train", "tiny", precision="bf16", engine="pytorch", seq_in=10, optimizer="sgd")
    assert joins(training_step(trained_, still, 3.0)) == 0


def stepped(**fields: Any) -> list[Op]:
    plain: dict[str, Any] = {"precision": "bf16", "engine": "pytorch", "seq_in": 10, "optimizer": "sgd"}
    return training_step(Workload("train", "tiny", **(plain | fields)), TINY, 3.0)


def test_rounds_add_their_gradients_and_zero_spreads_them() -> None:
    parameters, tensors = trained_parameters(Workload("train", "tiny"), TINY)
    assert parameters == 2 * 1000 * 64 + 4 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256 + 2 * 64) + 64
    assert tensors == 4 * (7 + 2) + 3

    def added(**fields: Any) -> tuple[float, float]:
        """Rounds beyond the first, and bytes written in each."""
        plain, more = stepped(), stepped(accumulation=3, **fields)
        (op,) = [op for op in more if op.sizes.get("resident") == 0.0 and op.phase == "backward"]
        assert not [one for one in plain if one.sizes.get("resident") == 0.0 and one.phase == "backward"]
        return float(op.count) / tensors, float(op.write) * tensors

    assert added() == pytest.approx((2.0, 2 * parameters))
    assert added(parallel=Parallel(dp=4, zero=1)) == pytest.approx((2.0, 2 * parameters))
    assert added(parallel=Parallel(dp=4, zero=2)) == pytest.approx((2.0, 2 * parameters / 4))
    for zero, share in ((0, 1), (1, 4), (3, 4)):
        (step,) = [op for op in stepped(parallel=Parallel(dp=4, zero=zero)) if op.phase == "optimizer"]
        assert float(step.write * step.count) == pytest.approx(2 * parameters / share)


def test_parameters_trained_by_adapters() -> None:
    def of(**fields: Any) -> tuple[float, float]:
        return trained_parameters(Workload("finetune", "tiny", lora_rank=4, **fields), TINY)

    every = 4 * 4 * (2 * (64 + 64) + 2 * (64 + 16) + 3 * (64 + 256))
    assert of() == (every, 2 * 4 * 7)
    assert of(lora_targets="q,v") == (4 * 4 * (128 + 80), 2 * 4 * 2)
    assert of(lora_targets="mlp") == (4 * 4 * 3 * 320, 2 * 4 * 3)
    assert of(parallel=Parallel(pp=2)) == (every / 2, 4 * 7)
    plain = replace(TINY, gated=False)
    assert trained_parameters(Workload("finetune", "tiny", lora_rank=4, lora_targets="down"), plain) == (4 * 4 * 320, 8)
    biased = replace(TINY, mlp_bias=True, norm="layer", norms=4)
    assert trained_parameters(Workload("train", "tiny"), biased)[1] == 4 * (7 + 7 + 8) + 3
    staged, tensors = trained_parameters(Workload("train", "tiny", parallel=Parallel(pp=2)), TINY)
    assert (staged, tensors) == tuple(one / 2 for one in trained_parameters(Workload("train", "tiny"), TINY))
