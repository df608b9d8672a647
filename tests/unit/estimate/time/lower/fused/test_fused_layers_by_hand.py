"""Layers of a tiny model with fused kernels, as serving engines run them: GEMMs, kernels and bytes counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.tiny_transformer import ENCODER_DECODER, ROWS, TINY, F, H, K, Q, bytes_moved, gemm_sizes, tiny_workload
from whichgpu.catalog.engines.record import KernelTraits
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower.fused.inference import chunked_pass, fused_pass
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.lower.fused.layers import InferencePass, fused_layer
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Experts, LatentAttention, Patches, Transformer

PROMPT = InferencePass(3.0, 10.0, 10.0, decoding=False)
TOKEN = InferencePass(3.0, 1.0, 40.0, decoding=True)


COMPILED, SERVING = (engine_record(name).kernels for name in ("pytorch-compile", "vllm"))


def run(
    shape: Transformer = TINY,
    step: InferencePass = PROMPT,
    run_settings: KernelTraits = SERVING,
    precision: str = "bf16",
    **more: Any,
) -> list[Op]:
    kernels = FusedKernels(weight_storage(shape, precision, "bf16"), run_settings)
    fused_layer(kernels, shape, step, **more)
    return kernels.ops


def test_a_layer_has_four_gemms() -> None:
    assert gemm_sizes(run()) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, 2 * F, H), (ROWS, H, F)]
    assert gemm_sizes(run(replace(TINY, gated=False))) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, F, H), (ROWS, H, F)]
    assert gemm_sizes(run(step=TOKEN)) == [(3.0, Q + 2 * K, H), (3.0, H, Q), (3.0, 2 * F, H), (3.0, H, F)]


def test_norms_are_fused_with_the_residual_additions() -> None:
    stream = ROWS * H * 2
    assert bytes_moved(run(), "norm") == [(2 * stream, 2 * stream)] * 2
    assert bytes_moved(run(run_settings=COMPILED), "norm") == [(stream, stream), (1.5 * stream, 1.5 * stream)]
    assert (3 * stream, stream) in bytes_moved(
        run(run_settings=COMPILED), "elementwise"
    )  # the residual addition of a block compiled alone
    assert len(bytes_moved(run(replace(TINY, norms=4)), "norm")) == 4
    assert len(bytes_moved(run(replace(TINY, parallel_block=True, norms=1)), "norm")) == 1
    assert len(bytes_moved(run(replace(TINY, parallel_block=True)), "norm")) == 2
    apart, fused = (engine_record("vllm", year).kernels for year in (2024, 2026))
    assert (ROWS * 10 * 8 * 2, ROWS * 10 * 8 * 2) in bytes_moved(run(replace(TINY, qk_norm=True), run_settings=apart), "norm")
    assert len(bytes_moved(run(replace(TINY, qk_norm=True), run_settings=fused), "norm")) == 2


def test_rotary_embedding_and_writes_to_the_kv_cache() -> None:
    read = ROWS * (Q + 2 * K) * 2
    assert bytes_moved(run(), "elementwise", "rotary") == [(read, read)]
    narrow = bytes_moved(run(step=replace(PROMPT, cache_width=1.0)), "elementwise", "rotary")
    assert narrow == [(read, ROWS * (Q * 2 + 2 * K))]
    assert next(op.count for op in run() if op.role == "rotary") == 2
    assert next(op.count for op in run(replace(TINY, rope=False)) if op.role == "rotary") == 1
    assert not bytes_moved(run(replace(TINY, rope=False), replace(PROMPT, cached=False)), "elementwise", "rotary")


def test_activations_are_fused_into_the_gemm_or_kernels_of_their_own() -> None:
    assert bytes_moved(run(), "elementwise", "gated") == [(ROWS * 2 * F * 2, ROWS * F * 2)]
    plain = replace(TINY, gated=False)
    assert (ROWS * F * 2, ROWS * F * 2) in bytes_moved(run(plain), "elementwise", "")
    assert not bytes_moved(run(plain, run_settings=engine_record("tensorrt").kernels), "elementwise", "")


def test_attention_in_prefill_and_decode() -> None:
    (prompt,) = [op for op in run() if op.kind == "attention"]
    assert prompt.flops == 2 * 3 * 8 * 50 * 16
    (token,) = [op for op in run(step=TOKEN) if op.kind == "decode_attention"]
    assert token.role == "split"
    assert token.read == 3 * 8 * 8 * 2 + 3 * 2 * 40 * 16 * 2
    assert next(op.role for op in run(step=TOKEN, run_settings=COMPILED) if op.kind == "decode_attention") == "whole"
    several = replace(TOKEN, queries=4.0)  # Drafted tokens: PyTorch verifies them in its prefill kernel.
    assert [op.kind for op in run(step=several, run_settings=COMPILED) if "attention" in op.kind] == ["attention"]
    assert [op.kind for op in run(step=several) if "attention" in op.kind] == ["decode_attention"]
    (windowed,) = [op for op in run(window=4) if op.kind == "attention"]
    assert windowed.flops == 2 * 3 * 8 * 32 * 16


def test_an_moe_layer_reads_the_distinct_experts_touched() -> None:
    shape = replace(TINY, experts=Experts(8, 2, 128, shared_ffn=32))
    ops = run(shape, mixture=True)
    visited = 8 * (1 - 0.75**30)
    (moe,) = [op for op in ops if op.kind == "moe"]
    assert moe.role == "16bit.vllm"
    assert moe.flops == 2 * 60 * H * 128 * 3
    assert moe.read - moe.write == pytest.approx(visited * 3 * H * 128 * 2)
    assert moe.write == ROWS * H * 2
    assert {name: float(size) for name, size in moe.sizes.items() if name not in ("weight", "touched")} == {
        "tokens": ROWS, "rows": 60.0, "hidden": H, "ffn": 128.0, "ups": 2.0,
    }  # fmt: skip
    assert moe.sizes["touched"] == pytest.approx(visited)
    assert gemm_sizes(ops)[2:] == [(ROWS, 8.0, H), (ROWS, 64.0, H), (ROWS, H, 32.0)]  # the router, and the shared expert
    eager = run(shape, run_settings=COMPILED, mixture=True)
    moved = 60 * H * 2
    assert gemm_sizes(eager, "grouped_gemm") == [(60.0, 256.0, H), (60.0, H, 128.0)]
    assert [float(op.read) for op in eager if op.kind == "grouped_gemm"] == pytest.approx(
        [60 * H * 2 + visited * H * 256 * 2, 60 * 128 * 2 + visited * 128 * H * 2]
    )
    assert bytes_moved(eager, "elementwise").count((moved, moved)) == 3  # gather, weighting, and addition by atomics
    assert {op.role for op in eager if op.kind == "grouped_gemm"} == {"eager"}
    assert (16 * ROWS * 8, 16 * ROWS * 8) in bytes_moved(eager, "elementwise")


MLA = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))


def test_mla_latents_are_expanded_in_prefill_and_absorbed_in_decode() -> None:
    assert gemm_sizes(run(MLA))[:4] == [(ROWS, 24 + 20, H), (ROWS, 96.0, 24.0), (ROWS, 8 * 14, 16.0), (ROWS, H, 48.0)]
    token = run(MLA, TOKEN)
    assert gemm_sizes(token)[:5] == [(3.0, 44.0, H), (3.0, 96.0, 24.0), (3.0, 16.0, 8.0), (3.0, 6.0, 16.0), (3.0, H, 48.0)]
    (attended,) = [op for op in token if op.kind == "decode_attention"]
    assert attended.read == 3 * 8 * 20 * 2 + 3 * 40 * 20 * 2  # values are a part of the keys
    direct = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=0, nope_dim=8, rope_dim=4, value_dim=6))
    assert gemm_sizes(run(direct))[0] == (ROWS, 96 + 20.0, H)


def test_a_decoder_has_cross_attention() -> None:
    crossed = gemm_sizes(run(step=replace(PROMPT, source=7.0)))
    assert crossed[2:5] == [(ROWS, Q, H), (21.0, 2 * K, H), (ROWS, H, Q)]
    assert gemm_sizes(run(step=replace(TOKEN, source=7.0)))[2:4] == [(3.0, Q, H), (3.0, H, Q)]


def linear(precision: str, run_settings: KernelTraits = SERVING, after_attention: bool = False) -> list[Op]:
    writer = FusedKernels(weight_storage(TINY, precision, "bf16"), run_settings)
    writer.linear(ROWS, H, F, "ffn_up", after_attention=after_attention)
    return writer.ops


@pytest.mark.parametrize(
    ("precision", "kind", "unit", "input_bytes", "weight"),
    [("bf16", "gemm", "bf16", 2.0, 2.0), ("fp32", "gemm", "fp32", 4.0, 4.0), ("fp8", "gemm", "fp8", 1.0, 1.0 + 8 / (H * F)),
     ("int8", "gemm", "int8", 1.0, 1 + 4 / H), ("int4", "weight_only_gemm", "bf16", 2.0, 133 / 256),
     ("nvfp4", "gemm", "fp4", 0.5625, 9 / 16 + 8 / (H * F))],
)  # fmt: skip
def test_gemms_by_weight_format(precision: str, kind: str, unit: str, input_bytes: float, weight: float) -> None:
    op = linear(precision)[-1]
    width = 4.0 if precision == "fp32" else 2.0
    assert (op.kind, op.unit, op.flops) == (kind, unit, 2 * ROWS * H * F)
    assert op.read == pytest.approx(ROWS * H * input_bytes + H * F * weight)
    assert op.write == ROWS * F * width


def test_operators_have_the_sizes_that_curves_use() -> None:
    for precision in ("bf16", "fp8", "int4"):
        sizes = linear(precision)[-1].sizes
        assert {name: float(sizes[name]) for name in ("m", "n", "k", "batch")} == {"m": ROWS, "n": F, "k": H, "batch": 1.0}
    quantised = linear("fp8", engine_record("vllm", 2024).kernels)[0].sizes
    assert (quantised["rows"], quantised["width"]) == (ROWS, H)
    gate = next(op for op in run() if op.role == "gated")
    assert gate.sizes["elements"] == ROWS * 3 * F / 2  # the mean of elements read and written
    rotary = next(op for op in run() if op.role == "rotary")
    assert rotary.sizes["elements"] == ROWS * (Q + 2 * K) / 2  # in each of two kernels
    normed = next(op for op in run() if op.kind == "norm")
    assert (normed.sizes["rows"], normed.sizes["width"]) == (ROWS, H)


def test_inputs_are_quantised_before_or_inside_the_gemm() -> None:
    first = linear("fp8", engine_record("vllm", 2024).kernels)[0]  # before torch.compile fused it
    assert (first.role, first.read, first.write) == ("quantise", ROWS * H * 2, ROWS * H)
    inside = engine_record("tensorrt-llm").kernels
    assert len(linear("fp8", inside)) == 1
    assert len(linear("fp8", inside, after_attention=True)) == 2
    assert len(linear("int4")) == 1
    gguf = linear("q4_k_m", engine_record("llama.cpp").kernels)
    assert [op.kind for op in gguf] == ["reduce", "weight_only_gemm"]
    assert gguf[1].role == "gguf"


def test_a_pass_has_an_embedding_layers_and_a_head() -> None:
    ops = fused_pass(tiny_workload(), TINY, 3.0, 10.0, None)
    assert sum(float(op.flops * op.count) for op in ops if op.kind == "gemm") == pytest.approx(
        2 * ROWS * 4 * (H * (Q + 2 * K) + Q * H + 3 * H * F) + 2 * 3 * H * 1000
    )
    (sampled,) = [op for op in ops if op.role == "sample"]
    assert (sampled.count, sampled.read * sampled.count, sampled.write * sampled.count) == (3.0, 3 * 3 * 1000 * 2, 24.0)
    assert bytes_moved(ops, "embedding") == [(ROWS * H * 2, ROWS * H * 2)]
    whole = fused_pass(tiny_workload("forward"), TINY, 3.0, 10.0, None)
    assert gemm_sizes(whole)[-1] == (ROWS, 1000.0, H)
    assert not [op for op in whole if op.role == "sample"]
    assert {op.calls for op in ops} == {0.0}
    assert {op.calls for op in fused_pass(tiny_workload(engine="pytorch-compile"), TINY, 3.0, 10.0, None)} == {1.0}
    transformer = replace(TINY, causal=False, patches=Patches(224, 16), head=False)
    assert gemm_sizes(fused_pass(tiny_workload("forward"), transformer, 3.0, 10.0, None))[0] == (ROWS, H, 768.0)
    learned = replace(TINY, positions=100)
    assert len(bytes_moved(fused_pass(tiny_workload(), learned, 3.0, 10.0, None), "norm")) == len(bytes_moved(ops, "norm")) + 1


def test_prefill_runs_the_encoder_and_one_token_of_the_decoder() -> None:
    """Two encoder layers over 7 tokens of each of three sequences, then four decoder layers over one token each."""
    own = H * (Q + 2 * K) + Q * H + 3 * H * F
    crossed = 3 * H * Q + 21 * H * 2 * K + 3 * Q * H
    ops = fused_pass(tiny_workload(), ENCODER_DECODER, 3.0, 10.0, None)
    flops = sum(float(op.flops * op.count) for op in ops if op.kind == "gemm")
    assert flops == pytest.approx(2 * (2 * 21 * own + 4 * (3 * own + crossed) + 3 * H * 1000))
    assert bytes_moved(ops, "embedding") == [(21 * H * 2, 21 * H * 2), (3 * H * 2, 3 * H * 2)]
    token = fused_pass(tiny_workload("decode"), ENCODER_DECODER, 3.0, 1.0, 40.0)
    flops = sum(float(op.flops * op.count) for op in token if op.kind == "gemm")
    assert flops == pytest.approx(2 * (4 * (3 * own + 3 * H * Q + 3 * Q * H) + 3 * H * 1000))
    keys = {float(op.sizes["keys"]) for op in token if op.kind == "decode_attention"}
    assert keys == {40.0, 7.0}
    whole = fused_pass(tiny_workload("forward"), replace(ENCODER_DECODER, encoder_context=0), 3.0, 10.0, None)
    flops = sum(float(op.flops * op.count) for op in whole if op.kind == "gemm")
    assert flops == pytest.approx(2 * (2 * 30 * own + 4 * (30 * own + 30 * H * Q + 30 * H * 2 * K + 30 * Q * H) + 30 * H * 1000))


def test_long_prefills_run_in_steps_of_a_chunk() -> None:
    """vLLM takes 8,192 tokens a step: 20 prompts of 1,024 are two whole steps and half a one, launched three times."""
    mixture = replace(TINY, experts=Experts(16, 2, 32))
    work = tiny_workload(year=2026)
    ops, step = (run(work, mixture, batch, 1024.0, None) for run, batch in ((chunked_pass, 20.0), (fused_pass, 8.0)))
    assert [float(op.count) for op in ops] == [2.5 * float(op.count) for op in step]
    assert [float(op.flops) for op in ops] == pytest.approx([float(op.flops) for op in step])
    assert sum(op.calls * op.count for op in ops) == pytest.approx(3 * sum(op.calls * op.count for op in step))
    assert chunked_pass(work, mixture, 8.0, 1024.0, None) == step
    assert chunked_pass(work, mixture, 20.0, 1.0, 9000.0) == fused_pass(work, mixture, 20.0, 1.0, 9000.0)
    both = chunked_pass(work, mixture, np.array([4.0, 20.0]), 1024.0, None)
    assert [np.broadcast_to(op.count * op.flops, 2)[1] for op in both] == pytest.approx([op.count * op.flops for op in ops])
