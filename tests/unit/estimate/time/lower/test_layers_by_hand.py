"""Layers of a tiny model as engines and PyTorch run them: products, kernels and bytes counted by hand; from terms to seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import elementwise
from whichgpu.catalog.engines.record import KernelTraits
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.combine import HostMode, soft_maximum, step_seconds
from whichgpu.estimate.time.grid import scheduled_sequences, throttling_slowdown
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.moe import grouped_gemm
from whichgpu.estimate.time.lower.eager.optimizer import accumulation_op, optimizer_ops
from whichgpu.estimate.time.lower.eager.training import eager_pass, training_step
from whichgpu.estimate.time.lower.fused.inference import fused_pass
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.lower.fused.layers import InferencePass, fused_layer
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op, gemm
from whichgpu.estimate.time.terms import TERMS, TimeTerms, dominant_unit_class
from whichgpu.workload.shapes import Experts, LatentAttention, Mlp, Patches, Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Workload

H, F, Q, K = 64.0, 256.0, 64.0, 16.0  # hidden, MLP, eight heads of 8, two of keys
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
ROWS = 30.0  # three sequences of ten tokens
PROMPT = InferencePass(3.0, 10.0, 10.0, decoding=False)
TOKEN = InferencePass(3.0, 1.0, 40.0, decoding=True)


def products(ops: list[Op], *kinds: str) -> list[tuple[float, float, float]]:
    """Rows, columns and inner sizes."""
    return [tuple(float(op.sizes[name]) for name in "mnk") for op in ops if op.kind in (kinds or ("gemm",))]  # type: ignore[misc]


PLAIN, SERVING = (engine_record(name).kernels for name in ("pytorch-compile", "vllm"))


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


def kernels(ops: list[Op], kind: str, role: str | None = None) -> list[tuple[float, float]]:
    return [(float(op.read * op.count), float(op.write * op.count)) for op in ops if op.kind == kind and role in (None, op.role)]


def test_a_layer_has_four_products() -> None:
    assert products(run()) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, 2 * F, H), (ROWS, H, F)]
    assert products(run(replace(TINY, gated=False))) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, F, H), (ROWS, H, F)]
    assert products(run(step=TOKEN)) == [(3.0, Q + 2 * K, H), (3.0, H, Q), (3.0, 2 * F, H), (3.0, H, F)]


def test_norms_with_the_sums_before_them() -> None:
    stream = ROWS * H * 2
    assert kernels(run(), "norm") == [(2 * stream, 2 * stream)] * 2
    assert kernels(run(run_settings=PLAIN), "norm") == [(stream, stream), (1.5 * stream, 1.5 * stream)]
    assert (3 * stream, stream) in kernels(run(run_settings=PLAIN), "elementwise")  # the sum of a block compiled alone
    assert len(kernels(run(replace(TINY, norms=4)), "norm")) == 4
    assert len(kernels(run(replace(TINY, parallel_block=True, norms=1)), "norm")) == 1
    assert len(kernels(run(replace(TINY, parallel_block=True)), "norm")) == 2
    apart, fused = (engine_record("vllm", year).kernels for year in (2024, 2026))
    assert (ROWS * 10 * 8 * 2, ROWS * 10 * 8 * 2) in kernels(run(replace(TINY, qk_norm=True), run_settings=apart), "norm")
    assert len(kernels(run(replace(TINY, qk_norm=True), run_settings=fused), "norm")) == 2


def test_positions_and_the_cache() -> None:
    read = ROWS * (Q + 2 * K) * 2
    assert kernels(run(), "elementwise", "rotary") == [(read, read)]
    narrow = kernels(run(step=replace(PROMPT, cache_width=1.0)), "elementwise", "rotary")
    assert narrow == [(read, ROWS * (Q * 2 + 2 * K))]
    assert next(op.count for op in run() if op.role == "rotary") == 2
    assert next(op.count for op in run(replace(TINY, rope=False)) if op.role == "rotary") == 1
    assert not kernels(run(replace(TINY, rope=False), replace(PROMPT, cached=False)), "elementwise", "rotary")


def test_activations_ride_or_are_kernels_of_their_own() -> None:
    assert kernels(run(), "elementwise", "gated") == [(ROWS * 2 * F * 2, ROWS * F * 2)]
    plain = replace(TINY, gated=False)
    assert (ROWS * F * 2, ROWS * F * 2) in kernels(run(plain), "elementwise", "")
    assert not kernels(run(plain, run_settings=engine_record("tensorrt").kernels), "elementwise", "")


def test_attention_of_prompts_and_tokens() -> None:
    (prompt,) = [op for op in run() if op.kind == "attention"]
    assert prompt.flops == 2 * 3 * 8 * 50 * 16
    (token,) = [op for op in run(step=TOKEN) if op.kind == "decode_attention"]
    assert token.role == "split"
    assert token.read == 3 * 8 * 8 * 2 + 3 * 2 * 40 * 16 * 2
    assert next(op.role for op in run(step=TOKEN, run_settings=PLAIN) if op.kind == "decode_attention") == "whole"
    (windowed,) = [op for op in run(window=4) if op.kind == "attention"]
    assert windowed.flops == 2 * 3 * 8 * 32 * 16


def test_a_mixture_reads_the_experts_it_visits() -> None:
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
    assert products(ops)[2:] == [(ROWS, 8.0, H), (ROWS, 64.0, H), (ROWS, H, 32.0)]  # the router, and the shared expert
    eager = run(shape, run_settings=PLAIN, mixture=True)
    moved = 60 * H * 2
    assert products(eager, "grouped_gemm") == [(60.0, 256.0, H), (60.0, H, 128.0)]
    assert [float(op.read) for op in eager if op.kind == "grouped_gemm"] == pytest.approx(
        [60 * H * 2 + visited * H * 256 * 2, 60 * 128 * 2 + visited * 128 * H * 2]
    )
    assert kernels(eager, "elementwise").count((moved, moved)) == 3  # gathered, weighted, and added by atomics
    assert {op.role for op in eager if op.kind == "grouped_gemm"} == {"eager"}
    assert (16 * ROWS * 8, 16 * ROWS * 8) in kernels(eager, "elementwise")


LATENT = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))


def test_latents_are_expanded_for_prompts_and_absorbed_for_tokens() -> None:
    assert products(run(LATENT))[:4] == [(ROWS, 24 + 20, H), (ROWS, 96.0, 24.0), (ROWS, 8 * 14, 16.0), (ROWS, H, 48.0)]
    token = run(LATENT, TOKEN)
    assert products(token)[:5] == [(3.0, 44.0, H), (3.0, 96.0, 24.0), (3.0, 16.0, 8.0), (3.0, 6.0, 16.0), (3.0, H, 48.0)]
    (attended,) = [op for op in token if op.kind == "decode_attention"]
    assert attended.read == 3 * 8 * 20 * 2 + 3 * 40 * 20 * 2  # values are a part of the keys
    direct = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=0, nope_dim=8, rope_dim=4, value_dim=6))
    assert products(run(direct))[0] == (ROWS, 96 + 20.0, H)


def test_a_decoder_asks_its_encoder() -> None:
    crossed = products(run(step=replace(PROMPT, source=7.0)))
    assert crossed[2:5] == [(ROWS, Q, H), (21.0, 2 * K, H), (ROWS, H, Q)]
    assert products(run(step=replace(TOKEN, source=7.0)))[2:4] == [(3.0, Q, H), (3.0, H, Q)]


def linear(precision: str, run_settings: KernelTraits = SERVING, after_attention: bool = False) -> list[Op]:
    found = FusedKernels(weight_storage(TINY, precision, "bf16"), run_settings)
    found.linear(ROWS, H, F, "ffn_up", after_attention=after_attention)
    return found.ops


@pytest.mark.parametrize(
    ("precision", "kind", "unit", "input_bytes", "weight"),
    [("bf16", "gemm", "bf16", 2.0, 2.0), ("fp32", "gemm", "fp32", 4.0, 4.0), ("fp8", "gemm", "fp8", 1.0, 1.0 + 8 / (H * F)),
     ("int8", "gemm", "int8", 1.0, 1 + 4 / H), ("int4", "weight_only_gemm", "bf16", 2.0, 133 / 256),
     ("nvfp4", "gemm", "fp4", 0.5625, 9 / 16 + 8 / (H * F))],
)  # fmt: skip
def test_products_by_how_weights_are_stored(precision: str, kind: str, unit: str, input_bytes: float, weight: float) -> None:
    op = linear(precision)[-1]
    width = 4.0 if precision == "fp32" else 2.0
    assert (op.kind, op.unit, op.flops) == (kind, unit, 2 * ROWS * H * F)
    assert op.read == pytest.approx(ROWS * H * input_bytes + H * F * weight)
    assert op.write == ROWS * F * width


def test_sizes_that_curves_look_at() -> None:
    for precision in ("bf16", "fp8", "int4"):
        sizes = linear(precision)[-1].sizes
        assert {name: float(sizes[name]) for name in ("m", "n", "k", "batch")} == {"m": ROWS, "n": F, "k": H, "batch": 1.0}
    quantised = linear("fp8", engine_record("vllm", 2024).kernels)[0].sizes
    assert (quantised["rows"], quantised["width"]) == (ROWS, H)
    gate = next(op for op in run() if op.role == "gated")
    assert gate.sizes["elements"] == ROWS * 3 * F / 2  # as many as the mean of what is read and written
    turned = next(op for op in run() if op.role == "rotary")
    assert turned.sizes["elements"] == ROWS * (Q + 2 * K) / 2  # in each of two kernels
    normed = next(op for op in run() if op.kind == "norm")
    assert (normed.sizes["rows"], normed.sizes["width"]) == (ROWS, H)


def test_inputs_are_quantised_before_or_inside() -> None:
    first = linear("fp8", engine_record("vllm", 2024).kernels)[0]  # before torch.compile fused it
    assert (first.role, first.read, first.write) == ("quantise", ROWS * H * 2, ROWS * H)
    inside = engine_record("tensorrt-llm").kernels
    assert len(linear("fp8", inside)) == 1
    assert len(linear("fp8", inside, after_attention=True)) == 2
    assert len(linear("int4")) == 1
    gguf = linear("q4_k_m", engine_record("llama.cpp").kernels)
    assert [op.kind for op in gguf] == ["reduce", "weight_only_gemm"]
    assert gguf[1].role == "gguf"


def asked(task: Task = "prefill", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "engine": "vllm"}
    return Workload(task, "tiny", **(plain | fields))


def test_a_pass_is_an_embedding_layers_and_a_head() -> None:
    ops = fused_pass(asked(), TINY, 3.0, 10.0, None)
    assert sum(float(op.flops * op.count) for op in ops if op.kind == "gemm") == pytest.approx(
        2 * ROWS * 4 * (H * (Q + 2 * K) + Q * H + 3 * H * F) + 2 * 3 * H * 1000
    )
    (sampled,) = [op for op in ops if op.role == "sample"]
    assert (sampled.count, sampled.read * sampled.count, sampled.write * sampled.count) == (3.0, 3 * 3 * 1000 * 2, 24.0)
    assert kernels(ops, "embedding") == [(ROWS * H * 2, ROWS * H * 2)]
    whole = fused_pass(asked("forward"), TINY, 3.0, 10.0, None)
    assert products(whole)[-1] == (ROWS, 1000.0, H)
    assert not [op for op in whole if op.role == "sample"]
    assert {op.calls for op in ops} == {0.0}
    assert {op.calls for op in fused_pass(asked(engine="pytorch-compile"), TINY, 3.0, 10.0, None)} == {1.0}
    seen = replace(TINY, causal=False, patches=Patches(224, 16), head=False)
    assert products(fused_pass(asked("forward"), seen, 3.0, 10.0, None))[0] == (ROWS, H, 768.0)
    learned = replace(TINY, positions=100)
    assert len(kernels(fused_pass(asked(), learned, 3.0, 10.0, None), "norm")) == len(kernels(ops, "norm")) + 1


def eager(shape: Transformer = TINY, precision: str = "bf16", **more: Any) -> list[Op]:
    write = KernelWriter(numerics(precision))
    plain: dict[str, Any] = {"batch": 3.0, "sequence": 10.0}
    eager_layer(write, shape, LayerPass(**(plain | more)))
    return write.ops


def test_an_eager_layer_and_its_gradients() -> None:
    forward = [op for op in eager() if op.phase == "forward" and op.kind == "gemm"]
    assert products(forward) == [(ROWS, Q, H), (ROWS, K, H), (ROWS, K, H), (ROWS, H, Q), (ROWS, F, H), (ROWS, F, H), (ROWS, H, F)]
    flops = {phase: sum(float(op.flops * op.count) for op in eager() if op.phase == phase and CLASS_BY_KIND[op.kind] == "gemm")
             for phase in ("forward", "backward")}  # fmt: skip
    assert flops["backward"] == 2 * flops["forward"] == 4 * ROWS * (H * (2 * Q + 2 * K) + 3 * H * F)
    joined = [op for op in eager(replace(TINY, model_type="phi3")) if op.phase == "forward"]
    assert products(joined) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, 2 * F, H), (ROWS, H, F)]


def biases(shape: Transformer) -> int:
    return sum(op.kind == "reduce_columns" for op in eager(replace(shape, norm="layer")))


def test_biases_have_gradients_summed_over_rows() -> None:
    assert biases(TINY) == 0
    assert biases(replace(TINY, qkv_bias=True)) == 3
    assert biases(replace(TINY, qkv_bias=True, key_bias=False)) == 2  # Whisper's keys have none
    assert biases(replace(TINY, out_bias=True)) == 1
    assert biases(replace(TINY, mlp_bias=True)) == 3
    assert biases(replace(TINY, mlp_bias=True, gated=False)) == 2


def test_families_differ_in_their_norms_and_blocks() -> None:
    def norms(**changed: Any) -> int:
        return sum(op.kind == "norm" for op in eager(replace(TINY, norm="layer", **changed)))

    assert norms() == 2
    assert norms(norms=4) == 4
    assert norms(parallel_block=True, norms=1) == 1
    assert norms(parallel_block=True) == 2
    assert norms(model_type="bert") == 2
    crossed = [op for op in eager(replace(TINY, norm="layer"), source=7.0) if op.phase == "forward"]
    assert sum(op.kind == "norm" for op in crossed) == 3
    assert products(crossed)[4:8] == [(ROWS, Q, H), (21.0, K, H), (21.0, K, H), (ROWS, H, Q)]


def test_the_cache_of_transformers_is_made_anew() -> None:
    ops = eager(sequence=1.0, context=40.0, cached=True, decoding=True, causal=False)
    joined = [
        (float(op.read), float(op.write))
        for op in ops
        if op.role == "concat" and op.phase == "forward" and op.sizes["elements"] == 3 * 41 * K
    ]
    assert joined == [(3 * 41 * K * 2, 3 * 41 * K * 2)] * 2
    (token,) = [op for op in ops if op.kind == "decode_attention"]
    assert token.sizes["keys"] == 41


def test_dropout_adds_two_kernels_and_wide_grouped_keys_are_written_out() -> None:
    assert sum(op.kind == "dropout" for op in eager(replace(TINY, dropout=0.1))) == 2
    assert sum(op.kind == "attention" for op in eager()) == 1
    assert sum(op.kind == "softmax" for op in eager(precision="fp32")) == 1  # SDPA has no such kernel
    assert sum(op.kind == "softmax" for op in eager(replace(TINY, kv_heads=8), precision="fp32")) == 0
    assert sum(op.kind == "softmax" for op in eager(attention="eager")) == 1


def test_a_grouped_product_and_its_gradients() -> None:
    write = KernelWriter(numerics("bf16"))
    grouped_gemm(write, MatrixSizes(60.0, H, 2.0), 128.0, 5.0, 8)
    there, back, weights = write.ops
    assert (there.flops, there.read, there.write) == (2 * 60 * H * 128, 60 * H * 2 + 5 * H * 128 * 2, 60 * 128 * 2)
    assert (back.read, back.write) == (60 * 128 * 2 + 5 * H * 128 * 2, 60 * H * 2)
    assert (weights.read, weights.write) == (60 * (H + 128) * 2, 8 * H * 128 * 2)
    assert products([weights], "grouped_gemm") == [(8 * 128.0, H, 60 / 8)]


@pytest.mark.parametrize(
    ("name", "fused", "reads", "writes", "count"),
    [("adamw", True, 4, 3, 1), ("adam", True, 4, 3, 1), ("adamw", False, 14, 8, 9), ("adam", False, 13, 7, 8),
     ("sgd", True, 2, 1, 1), ("sgd-momentum", True, 5, 3, 3), ("adafactor", False, 9, 4, 12), (None, True, 5, 3, 3)],
)  # fmt: skip
def test_what_an_optimizer_moves(name: str | None, fused: bool, reads: int, writes: int, count: int) -> None:
    (op,) = optimizer_ops(Workload("train", "", optimizer=name, optimizer_fused=fused), 1000.0, 10.0, 4.0)
    assert (op.read * op.count, op.write * op.count, op.count) == pytest.approx((4000 * reads, 4000 * writes, count))
    assert op.calls * op.count == pytest.approx(2.7)
    assert op.unit == "fp32"


def test_narrow_states_and_steps_left_out() -> None:
    (op,) = optimizer_ops(Workload("train", "", optimizer="adamw-8bit"), 1000.0, 10.0, 2.0)
    assert (op.read, op.write, op.unit) == (1000 * (2 * 2 + 2), 1000 * (2 + 2), "bf16")
    assert optimizer_ops(Workload("train", "", include_optimizer_step=False), 1000.0, 10.0, 4.0) == []
    more = accumulation_op(1000.0, 10.0, 4.0)
    assert (more.count, more.read, more.write) == (10.0, 800.0, 400.0)


def test_terms_add_up_to_device_host_and_wall() -> None:
    """Ten seconds of each term, twice as long by correction; floors of 30 s for attention."""
    shape = (len(TERMS), 1, 1)
    floors = np.zeros(shape)
    floors[TERMS.index("attention")] = 30.0
    terms = TimeTerms(np.full(shape, 10.0), floors, np.ones((1, 1)), np.ones((1, 1)), "half")
    told = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=False), host_speed=2.0)
    assert told.device.item() == 5 * 20 + 30
    assert told.wall.item() == 130 + 20  # a step's own and the sequences', at twice the speed
    both = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=True), host_speed=2.0)
    assert both.host.item() == 20 + 20
    assert both.wall.item() == pytest.approx((130**6 + 20**6) ** (1 / 6) + 20)
    beside = step_seconds(terms, np.full((len(TERMS), 1), 2.0), HostMode(launches=True, overlaps=True), host_speed=2.0)
    assert beside.wall.item() == pytest.approx((130**6 + 30**6) ** (1 / 6) + 10)  # the step's own seconds are not hidden
    assert soft_maximum(np.zeros(1), np.zeros(1)).item() == 0.0
    twice = terms + terms * 2.0
    assert (twice.seconds.max(), twice.floors.max(), twice.flop_seconds.item(), twice.byte_seconds.item()) == (30, 90, 3, 3)


def test_the_unit_of_most_products() -> None:
    ops = (gemm(10.0, 10.0, 10.0, "bf16", 2.0), gemm(10.0, 10.0, 15.0, "fp32", 4.0), gemm(10.0, 10.0, 10.0, "fp16", 2.0))
    assert dominant_unit_class(ops) == "half"
    assert dominant_unit_class(ops[:2]) == "single"
    assert dominant_unit_class((ops[0].times(2.0), ops[1])) == "half"
    assert dominant_unit_class(()) == "half"
    assert dominant_unit_class((gemm(10.0, 10.0, 10.0, "int8", 1.0), elementwise(10.0, 4.0, 4.0))) == "narrow"
    assert dominant_unit_class((gemm(np.array([1.0, 2.0]), 10.0, 10.0, "tf32", 4.0),)) == "tf32"


def test_steps_by_what_they_are() -> None:
    assert [asked(task).traits.step for task in ("train", "finetune", "prefill", "decode", "forward", "serve")] == [
        "train", "train", "prefill", "decode", "forward", "forward",
    ]  # fmt: skip
    assert TINY.is_generative
    assert not replace(TINY, causal=False).is_generative
    assert not replace(TINY, patches=Patches(224, 16)).is_generative
    assert not Mlp("", (8, 4)).is_generative
    assert scheduled_sequences(asked(engine="vllm"), 7.0) == 7.0
    assert scheduled_sequences(asked(engine="pytorch"), 7.0) == 0.0
    assert throttling_slowdown(np.array(0.0)).item() == 1.0
    assert throttling_slowdown(np.array(1e9)).item() > throttling_slowdown(np.array(0.01)).item() > 1.0


BOTH = replace(TINY, encoder_layers=2, encoder_context=7)


def test_an_encoder_reads_first_and_the_decoder_begins_with_one_token() -> None:
    """Two layers over 7 tokens of each of three sequences, then four over one token each that look at them."""
    own = H * (Q + 2 * K) + Q * H + 3 * H * F
    crossed = 3 * H * Q + 21 * H * 2 * K + 3 * Q * H
    ops = fused_pass(asked(), BOTH, 3.0, 10.0, None)
    flops = sum(float(op.flops * op.count) for op in ops if op.kind == "gemm")
    assert flops == pytest.approx(2 * (2 * 21 * own + 4 * (3 * own + crossed) + 3 * H * 1000))
    assert kernels(ops, "embedding") == [(21 * H * 2, 21 * H * 2), (3 * H * 2, 3 * H * 2)]
    token = fused_pass(asked("decode"), BOTH, 3.0, 1.0, 40.0)
    flops = sum(float(op.flops * op.count) for op in token if op.kind == "gemm")
    assert flops == pytest.approx(2 * (4 * (3 * own + 3 * H * Q + 3 * Q * H) + 3 * H * 1000))
    seen = {float(op.sizes["keys"]) for op in token if op.kind == "decode_attention"}
    assert seen == {40.0, 7.0}
    whole = fused_pass(asked("forward"), replace(BOTH, encoder_context=0), 3.0, 10.0, None)
    flops = sum(float(op.flops * op.count) for op in whole if op.kind == "gemm")
    assert flops == pytest.approx(2 * (2 * 30 * own + 4 * (30 * own + 30 * H * Q + 30 * H * 2 * K + 30 * Q * H) + 30 * H * 1000))


def eager_flops(task: Task, shape: Transformer, context: float | None = None) -> float:
    ops = eager_pass(asked(task, engine="pytorch"), shape, 3.0, 10.0, context)
    return sum(float(op.flops * op.count) for op in ops if op.kind == "gemm")


def test_pytorch_makes_the_same_products() -> None:
    own = H * (Q + 2 * K) + Q * H + 3 * H * F
    assert eager_flops("forward", TINY) == pytest.approx(2 * (4 * 30 * own + 30 * H * 1000))
    assert eager_flops("prefill", TINY) == pytest.approx(2 * (4 * 30 * own + 3 * H * 1000))
    assert eager_flops("decode", TINY, 40.0) == pytest.approx(2 * (4 * 3 * own + 3 * H * 1000))
    crossed = 3 * H * Q + 21 * H * 2 * K + 3 * Q * H
    assert eager_flops("prefill", BOTH) == pytest.approx(2 * (2 * 21 * own + 4 * (3 * own + crossed) + 3 * H * 1000))
    attended = [
        op for op in eager_pass(asked("decode", engine="pytorch"), BOTH, 3.0, 10.0, 40.0) if op.kind == "decode_attention"
    ]
    assert {float(op.sizes["keys"]) for op in attended} == {41.0, 7.0}
    assert eager_flops("decode", BOTH, 40.0) == pytest.approx(2 * (4 * (3 * own + crossed) + 3 * H * 1000))


def test_a_training_step_repeats_its_rounds_but_not_its_optimizer() -> None:
    def flops(**fields: Any) -> float:
        plain: dict[str, Any] = {"precision": "bf16", "engine": "pytorch", "seq_in": 10, "optimizer": "sgd"}
        workload = Workload("train", "tiny", **(plain | fields))
        return sum(float(op.flops * op.count) for op in training_step(workload, TINY, 3.0) if op.kind == "gemm")

    own = H * (Q + 2 * K) + Q * H + 3 * H * F
    once = 6 * (4 * 30 * own + 30 * H * 1000)
    assert flops() == pytest.approx(once)
    assert flops(accumulation=3) == pytest.approx(3 * once)
    # checkpointed layers run again, all but their last product
    assert flops(checkpointing="full") == pytest.approx(once + 2 * 4 * 30 * (own - H * F))
    assert flops(checkpointing="selective") == pytest.approx(once)
    steps = [op for op in training_step(Workload("train", "tiny", precision="bf16", engine="pytorch", seq_in=10, optimizer="sgd",
                                                 accumulation=3), TINY, 3.0) if op.phase == "optimizer"]  # fmt: skip
    assert [op.count for op in steps] == [1.0]
