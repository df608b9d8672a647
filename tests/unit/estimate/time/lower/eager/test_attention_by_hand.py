"""Attention without a fused kernel, MoE in PyTorch, and limits of servers: kernels, bytes and numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import workload_and_shape
from tests.toy_gpu import NEUTRAL, stack, toy
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.quantisation import _fullest, split_weights
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, scheduler_limits
from whichgpu.estimate.time.curves import conv
from whichgpu.estimate.time.lower.eager import attention
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.eager.functional import linear
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.moe import moe_block
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Experts, Transformer
from whichgpu.workload.workload import Parallel

GPUS = Catalog().gpu_by_id
OVER = AttentionSizes(batch=2.0, heads=4.0, kv_heads=4.0, queries=10.0, keys=10.0, dim=8.0, value_dim=8.0, causal=True)
SCORES = 2 * 4 * 10 * 10.0
N = 20 * 32.0  # queries, keys or values
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def total(ops: list[Op], phase: str = "forward") -> tuple[int, float, float]:
    mine = [op for op in ops if op.phase == phase and not op.flops and op.sizes.get("elements") != 1024.0]
    return len(mine), sum(float(op.read) for op in mine), sum(float(op.write) for op in mine)


def run(kind: Any, precision: str = "bf16", share: float = 0.0) -> list[Op]:
    write = KernelWriter(numerics(precision))
    part = MatrixSizes(20.0, 32.0, write.compute)
    output = kind(write, OVER, part, part, part, share)
    assert (output.rows, output.columns, output.width) == (20.0, 32.0, write.compute)
    return write.ops


def test_scores_in_memory_operator_by_operator() -> None:
    """Three copies, a scale, the mask, a cast, the softmax, a cast back, a copy."""
    kernels, read, written = total(run(attention.eager_attention))
    assert kernels == 3 + 1 + 1 + 1 + 1 + 1 + 1
    assert read == 3 * 2 * N + (2 + 4 + 2 + 4 + 4) * SCORES + 2 * N
    assert written == 3 * 2 * N + (2 + 2 + 4 + 4 + 2) * SCORES + 2 * N
    dropped = total(run(attention.eager_attention, share=0.1))
    assert dropped == (kernels + 1, read + 2 * SCORES, written + 3 * SCORES)


def test_sdpa_without_a_fused_kernel_checks_its_rows() -> None:
    """Queries, keys and values cast, scaled and copied; the mask, the softmax, a check of each row and what it decides."""
    kernels, read, written = total(run(attention.math_attention))
    assert kernels == 3 * 3 + 1 + 1 + 3 + 2 + 1
    assert read == 3 * (2 + 4 + 4) * N + (8 + 4 + 4 + 1 + 4 + 4) * SCORES + (4 + 2) * N
    assert written == 3 * (4 + 4 + 4) * N + (4 + 4 + 1 + 4 + 2) * SCORES + 80 + (2 + 2) * N
    single = total(run(attention.math_attention, "fp32"))
    assert single[0] == 3 * 2 + 1 + 1 + 3 + 1


def test_disentangled_attention_operators() -> None:
    ops = run(attention.disentangled_attention)
    products = [
        tuple(float(op.sizes[name]) for name in ("m", "n", "k")) for op in ops if op.kind == "gemm" and op.phase == "forward"
    ]
    assert products == [(10, 10, 8), (10, 8, 10), (10, 512, 8), (10, 512, 8)]
    kernels, read, written = total(ops)
    assert kernels == 3 + 2 * 2 + 3 + 2 + 1 + 1
    assert read == 3 * 2 * N + (2 * (2 + 2) + 3 * 4 + 2 + 2 + 2) * SCORES + 2 * N
    assert written == 3 * 2 * N + (2 * (2 + 2) + 3 * 2 + 2 + 2 + 2) * SCORES + 2 * N


def test_gradients_of_attention_written_out() -> None:
    """By operator in the backward pass: softmax, casts, scales, copies; distances are scattered into zeros of 512 a row."""
    assert total(run(attention.eager_attention), "backward") == (5, 16 * SCORES + 2 * N, 12 * SCORES + 2 * N)
    assert total(run(attention.math_attention), "backward") == (10, 12 * SCORES + 28 * N, 4 * SCORES + 24 * N + 320)
    zeros = 2 * 80 * 512 * 2
    assert total(run(attention.disentangled_attention), "backward") == (13, 20 * SCORES + 8 * N, 14 * SCORES + 8 * N + zeros)


def test_moe_in_pytorch() -> None:
    shape = replace(TINY, experts=Experts(8, 2, 32, shared_ffn=16))
    write = KernelWriter(numerics("bf16"))
    x = MatrixSizes(30.0, 64.0, 2.0)
    sizes = moe_block(write, shape, x, lambda out, _shape, tensor, ffn: linear(out, tensor, ffn) and tensor)
    assert (sizes.rows, sizes.columns) == (30.0, 64.0)
    grouped = [
        (float(op.sizes["m"]), float(op.sizes["n"]), float(op.sizes["k"])) for op in write.ops if op.kind == "grouped_gemm"
    ]
    assert grouped[0] == (60.0, 64.0, 64.0)  # gate and up of 32 each
    assert (60.0, 64.0, 32.0) in grouped
    routed, inner = 60 * 64.0, 60 * 32.0
    forward = total(write.ops)
    # the router's cast and softmax; rows gathered and blanked; both products' results copied and blanked; the gate; the sum
    router = (2 + 4) * 240, (4 + 4) * 240
    gathered = 2 * routed, (2 + 2) * routed
    first = 2 * routed, (2 + 2) * routed
    gate = (2 + 4) * inner, (2 + 2) * inner
    second = 2 * routed, (2 + 2) * routed
    summed = (2 + 4 + 4) * routed + 4 * 1920, (4 + 4) * routed + (4 + 2) * 1920
    shared = 4 * 1920, 2 * 1920
    parts = (router, gathered, first, gate, second, summed, shared)
    assert forward[1] == sum(read for read, _ in parts)
    assert forward[2] == sum(written for _, written in parts)
    small = {phase: sum(op.count for op in write.ops if op.phase == phase and op.sizes.get("elements") == 1024.0)
             for phase in ("forward", "backward")}  # fmt: skip
    assert small == {"forward": 25, "backward": 50}


def test_layout_conversion_is_charged_to_transposed_convolutions_only() -> None:
    sizes = {
        "batch": 8.0,
        "height": 32.0,
        "width": 32.0,
        "cin": 256.0,
        "cout": 256.0,
        "kernel": 9.0,
        "stride": 1.0,
        "groups": 1.0,
    }
    planes, last = (Op("conv", "fp16", 1e9, 1e9, 0.0, sizes | {"nhwc": nhwc}) for nhwc in (0.0, 1.0))
    plain, turned = (
        conv.seconds(stack(planes, last), toy(), NEUTRAL | {"conv.layout_conversion_seconds.16bit": cost}) for cost in (0.0, 0.5)
    )
    assert np.allclose((turned - plain).ravel(), [0.5, 0.0])


@pytest.mark.parametrize(
    ("engine", "block"), [("vllm", 16), ("sglang", 1), ("tensorrt-llm", 32), ("llama.cpp", 256), ("pytorch", 1)]
)
def test_servers_hand_out_their_cache_in_the_engine_s_blocks(engine: str, block: int) -> None:
    workload, shape = workload_and_shape("llama-3.1-8b", engine=engine, seq_in=1000, seq_out=200)
    limits = scheduler_limits(workload, shape, GPUS["h100-sxm"])
    assert limits.block_tokens == block
    assert limits.cache_tokens % block == 0
    assert scheduler_limits(workload, shape, GPUS["h100-sxm"], LimitOverrides(block_tokens=64)).block_tokens == 64
    assert (
        scheduler_limits(
            workload, shape, GPUS["h100-sxm"], LimitOverrides(max_sequences=7, max_batched_tokens=99)
        ).max_batched_tokens
        == 99
    )


def test_the_last_stage_holds_a_tied_table_again() -> None:
    for tied in (False, True):
        shape = replace(TINY, tied=tied)
        weights = split_weights(shape, "bf16")
        assert bool(weights.head) is not tied
        layers = weights.linear + weights.keys_values + weights.replicated
        assert _fullest(weights, shape, Parallel(pp=2)) == layers // 2 + weights.embedding
        assert _fullest(weights, shape, Parallel()) == layers + weights.embedding + weights.head
