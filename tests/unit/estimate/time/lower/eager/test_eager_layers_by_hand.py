"""Layers of a tiny model as eager PyTorch runs them, with gradients and optimizer: GEMMs and bytes counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.tiny_transformer import ENCODER_DECODER, ROWS, TINY, F, H, K, Q, gemm_sizes, tiny_workload
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.moe import grouped_gemm
from whichgpu.estimate.time.lower.eager.optimizer import accumulation_op, optimizer_ops
from whichgpu.estimate.time.lower.eager.training import eager_pass, training_step
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Workload


def eager(shape: Transformer = TINY, precision: str = "bf16", **more: Any) -> list[Op]:
    write = KernelWriter(numerics(precision))
    plain: dict[str, Any] = {"batch": 3.0, "sequence": 10.0}
    eager_layer(write, shape, LayerPass(**(plain | more)))
    return write.ops


def test_an_eager_layer_and_its_gradients() -> None:
    forward = [op for op in eager() if op.phase == "forward" and op.kind == "gemm"]
    assert gemm_sizes(forward) == [
        (ROWS, Q, H),
        (ROWS, K, H),
        (ROWS, K, H),
        (ROWS, H, Q),
        (ROWS, F, H),
        (ROWS, F, H),
        (ROWS, H, F),
    ]
    flops = {phase: sum(float(op.flops * op.count) for op in eager() if op.phase == phase and CLASS_BY_KIND[op.kind] == "gemm")
             for phase in ("forward", "backward")}  # fmt: skip
    assert flops["backward"] == 2 * flops["forward"] == 4 * ROWS * (H * (2 * Q + 2 * K) + 3 * H * F)
    joined = [op for op in eager(replace(TINY, model_type="phi3")) if op.phase == "forward"]
    assert gemm_sizes(joined) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, 2 * F, H), (ROWS, H, F)]


def biases(shape: Transformer) -> int:
    return sum(op.kind == "reduce_columns" for op in eager(replace(shape, norm="layer")))


def test_gradients_of_biases_are_sums_over_rows() -> None:
    assert biases(TINY) == 0
    assert biases(replace(TINY, qkv_bias=True)) == 3
    assert biases(replace(TINY, qkv_bias=True, key_bias=False)) == 2  # Whisper's keys have none
    assert biases(replace(TINY, out_bias=True)) == 1
    assert biases(replace(TINY, mlp_bias=True)) == 3
    assert biases(replace(TINY, mlp_bias=True, gated=False)) == 2


def test_model_families_differ_in_norms_and_blocks() -> None:
    def norms(**changed: Any) -> int:
        return sum(op.kind == "norm" for op in eager(replace(TINY, norm="layer", **changed)))

    assert norms() == 2
    assert norms(norms=4) == 4
    assert norms(parallel_block=True, norms=1) == 1
    assert norms(parallel_block=True) == 2
    assert norms(model_type="bert") == 2
    crossed = [op for op in eager(replace(TINY, norm="layer"), source=7.0) if op.phase == "forward"]
    assert sum(op.kind == "norm" for op in crossed) == 3
    assert gemm_sizes(crossed)[4:8] == [(ROWS, Q, H), (21.0, K, H), (21.0, K, H), (ROWS, H, Q)]


def test_transformers_concatenates_the_kv_cache_in_each_step() -> None:
    ops = eager(sequence=1.0, context=40.0, cached=True, decoding=True, causal=False)
    joined = [
        (float(op.read), float(op.write))
        for op in ops
        if op.role == "concat" and op.phase == "forward" and op.sizes["elements"] == 3 * 41 * K
    ]
    assert joined == [(3 * 41 * K * 2, 3 * 41 * K * 2)] * 2
    (token,) = [op for op in ops if op.kind == "decode_attention"]
    assert token.sizes["keys"] == 41


def test_dropout_adds_two_kernels_and_grouped_keys_in_fp32_have_no_fused_attention() -> None:
    assert sum(op.kind == "dropout" for op in eager(replace(TINY, dropout=0.1))) == 2
    assert sum(op.kind == "attention" for op in eager()) == 1
    assert sum(op.kind == "softmax" for op in eager(precision="fp32")) == 1  # SDPA has no such kernel
    assert sum(op.kind == "softmax" for op in eager(replace(TINY, kv_heads=8), precision="fp32")) == 0
    assert sum(op.kind == "softmax" for op in eager(attention="eager")) == 1


def test_a_grouped_gemm_and_its_gradients() -> None:
    write = KernelWriter(numerics("bf16"))
    grouped_gemm(write, MatrixSizes(60.0, H, 2.0), 128.0, 5.0, 8)
    there, back, weights = write.ops
    assert (there.flops, there.read, there.write) == (2 * 60 * H * 128, 60 * H * 2 + 5 * H * 128 * 2, 60 * 128 * 2)
    assert (back.read, back.write) == (60 * 128 * 2 + 5 * H * 128 * 2, 60 * H * 2)
    assert (weights.read, weights.write) == (60 * (H + 128) * 2, 8 * H * 128 * 2)
    assert gemm_sizes([weights], "grouped_gemm") == [(8 * 128.0, H, 60 / 8)]


@pytest.mark.parametrize(
    ("name", "fused", "reads", "writes", "count"),
    [("adamw", True, 4, 3, 1), ("adam", True, 4, 3, 1), ("adamw", False, 14, 8, 9), ("adam", False, 13, 7, 8),
     ("sgd", True, 2, 1, 1), ("sgd-momentum", True, 5, 3, 3), ("adafactor", False, 9, 4, 12), (None, True, 5, 3, 3)],
)  # fmt: skip
def test_bytes_read_and_written_by_optimizers(name: str | None, fused: bool, reads: int, writes: int, count: int) -> None:
    (op,) = optimizer_ops(Workload("train", "", optimizer=name, optimizer_fused=fused), 1000.0, 10.0, 4.0)
    assert (op.read * op.count, op.write * op.count, op.count) == pytest.approx((4000 * reads, 4000 * writes, count))
    assert op.calls * op.count == pytest.approx(2.7)
    assert op.unit == "fp32"


def test_8bit_states_and_steps_without_optimizer() -> None:
    (op,) = optimizer_ops(Workload("train", "", optimizer="adamw-8bit"), 1000.0, 10.0, 2.0)
    assert (op.read, op.write, op.unit) == (1000 * (2 * 2 + 2), 1000 * (2 + 2), "bf16")
    assert optimizer_ops(Workload("train", "", include_optimizer_step=False), 1000.0, 10.0, 4.0) == []
    more = accumulation_op(1000.0, 10.0, 4.0)
    assert (more.count, more.read, more.write) == (10.0, 800.0, 400.0)


def eager_flops(task: Task, shape: Transformer, context: float | None = None) -> float:
    ops = eager_pass(tiny_workload(task, engine="pytorch"), shape, 3.0, 10.0, context)
    return sum(float(op.flops * op.count) for op in ops if op.kind == "gemm")


def test_eager_pytorch_runs_the_same_gemms() -> None:
    own = H * (Q + 2 * K) + Q * H + 3 * H * F
    assert eager_flops("forward", TINY) == pytest.approx(2 * (4 * 30 * own + 30 * H * 1000))
    assert eager_flops("prefill", TINY) == pytest.approx(2 * (4 * 30 * own + 3 * H * 1000))
    assert eager_flops("decode", TINY, 40.0) == pytest.approx(2 * (4 * 3 * own + 3 * H * 1000))
    crossed = 3 * H * Q + 21 * H * 2 * K + 3 * Q * H
    assert eager_flops("prefill", ENCODER_DECODER) == pytest.approx(2 * (2 * 21 * own + 4 * (3 * own + crossed) + 3 * H * 1000))
    attended = [
        op
        for op in eager_pass(tiny_workload("decode", engine="pytorch"), ENCODER_DECODER, 3.0, 10.0, 40.0)
        if op.kind == "decode_attention"
    ]
    assert {float(op.sizes["keys"]) for op in attended} == {41.0, 7.0}
    assert eager_flops("decode", ENCODER_DECODER, 40.0) == pytest.approx(2 * (4 * (3 * own + crossed) + 3 * H * 1000))


def test_gradient_accumulation_repeats_passes_but_not_the_optimizer() -> None:
    def flops(**fields: Any) -> float:
        plain: dict[str, Any] = {"precision": "bf16", "engine": "pytorch", "seq_in": 10, "optimizer": "sgd"}
        workload = Workload("train", "tiny", **(plain | fields))
        return sum(float(op.flops * op.count) for op in training_step(workload, TINY, 3.0) if op.kind == "gemm")

    own = H * (Q + 2 * K) + Q * H + 3 * H * F
    once = 6 * (4 * 30 * own + 30 * H * 1000)
    assert flops() == pytest.approx(once)
    assert flops(accumulation=3) == pytest.approx(3 * once)
    # checkpointed layers run again, all but their last GEMM
    assert flops(checkpointing="full") == pytest.approx(once + 2 * 4 * 30 * (own - H * F))
    assert flops(checkpointing="selective") == pytest.approx(once)
    steps = [op for op in training_step(Workload("train", "tiny", precision="bf16", engine="pytorch", seq_in=10, optimizer="sgd",
                                                 accumulation=3), TINY, 3.0) if op.phase == "optimizer"]  # fmt: skip
    assert [op.count for op in steps] == [1.0]
