"""Layers of each family put together from their parts, engines' own numbers of kernels, and the two ends of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower.eager import attention, functional
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.eager.embedding_and_head import audio_stem, cross_entropy, embedding, output_head
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.moe import moe_block
from whichgpu.estimate.time.lower.fused.inference import fused_pass
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.lower.fused.layers import InferencePass, fused_layer
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Experts, Patches, Transformer
from whichgpu.workload.workload import Workload

TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
T, H, K, F = 30.0, 64.0, 16.0, 256.0  # three sequences of ten tokens
OVER = AttentionSizes(3.0, 8.0, 2.0, 10.0, 10.0, 8.0, 8.0, True)
Run = Callable[[KernelWriter], Any]


def rows(columns: float, width: float = 2.0) -> MatrixSizes:
    return MatrixSizes(T, columns, width)


def bill(runs: list[Run], precision: str = "bf16", **more: Any) -> dict[tuple[Any, ...], list[float]]:
    """Kernels, FLOPs and bytes by phase, kind and role, of all of these together."""
    write = KernelWriter(numerics(precision), **more)
    for run in runs:
        run(write)
    totals: dict[tuple[Any, ...], list[float]] = {}
    for op in write.ops:
        sums = totals.setdefault((op.phase, op.kind, op.role), [0.0] * 4)
        for place, one in enumerate((1.0, op.flops, op.read, op.write)):
            sums[place] += float(one) * float(op.count)
    return {key: [round(one, 6) for one in sums] for key, sums in totals.items()}


def norm(write: KernelWriter) -> None:
    functional.rms_norm(write, rows(H))


def product(*sizes: float) -> list[Run]:
    """Linear layers from one width to the next."""
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))
    return [lambda write, pair=pair: functional.linear(write, rows(pair[0]), pair[1]) for pair in pairs]  # type: ignore[misc]


def turned(share: float = 1.0) -> list[Run]:
    return [lambda write, one=one: functional.rotary(write, rows(one), share) for one in (H, K)]  # type: ignore[misc]


def attended(write: KernelWriter) -> None:
    attention.flash_attention(write, OVER, rows(H), rows(K), rows(K))


def summed(write: KernelWriter) -> None:
    functional.add(write, rows(H), rows(H))


def shared(uses: int, columns: float = H) -> Run:
    """Accumulation of the gradients of a tensor used several times."""
    return lambda write: write.sum_gradients(rows(columns), uses)


def gate(write: KernelWriter) -> None:
    functional.multiply(write, functional.activation(write, "silu", rows(F)), rows(F))


QKV = [shared(3), *product(H, H, H, K, H, K)]
MLP = [shared(2), *product(H, F, H, F), gate, *product(F, H)]
ATTENTION_AND_MLP = [shared(2), norm, *QKV, *turned(), attended, *product(H, H), summed, shared(2), norm, *MLP, summed]


def layer_kernels(shape: Transformer = TINY, precision: str = "bf16", **more: Any) -> dict[tuple[Any, ...], list[float]]:
    plain: dict[str, Any] = {"batch": 3.0, "sequence": 10.0}
    return bill([lambda write: eager_layer(write, shape, LayerPass(**(plain | more)))], precision)


def test_a_llama_layer_is_its_parts() -> None:
    assert layer_kernels() == bill(ATTENTION_AND_MLP)


def test_sandwich_norms_of_attention_and_mlp_outputs() -> None:
    assert layer_kernels(replace(TINY, norms=4)) == bill([*ATTENTION_AND_MLP, norm, norm])


def test_parallel_attention_and_mlp_block() -> None:
    once = [shared(2), norm, shared(2), *QKV, *turned(), attended, *product(H, H), *MLP, summed, summed]
    assert layer_kernels(replace(TINY, parallel_block=True, norms=1)) == bill(once)
    assert layer_kernels(replace(TINY, parallel_block=True, norms=2)) == bill([*once, norm])


@pytest.mark.parametrize(
    ("family", "share"), [("gpt_neox", 0.25), ("phi", 0.4), ("stablelm", 0.25), ("glm4", 0.5), ("glm", 0.5), ("llama", 1.0)]
)
def test_families_turn_a_part_of_each_head(family: str, share: float) -> None:
    kernels = layer_kernels(replace(TINY, model_type=family))
    plain = layer_kernels(replace(TINY, model_type=family, rope=False))
    more = bill(turned(share))
    key = ("forward", "transpose", "concat")
    assert kernels[key][2] == pytest.approx(more[key][2])
    assert ("forward", "transpose", "concat") not in plain
    after = kernels[("forward", "copy", "strided")][0] if ("forward", "copy", "strided") in kernels else 0
    assert after == (0 if family == "llama" else 1)  # what comes out lies head by head


def test_gptj_writes_its_attention_out() -> None:
    kernels = layer_kernels(replace(TINY, model_type="gptj"))
    assert not [key for key in kernels if key[1] == "attention"]
    key = ("forward", "transpose", "concat")
    assert kernels[key][2] == pytest.approx(bill(turned(0.25))[key][2])


@pytest.mark.parametrize("family", ["t5", "mt5", "umt5"])
def test_a_bias_of_positions_has_no_fused_kernel_but_crossing_has(family: str) -> None:
    shape = replace(TINY, model_type=family, rope=False, kv_heads=8)
    assert not [key for key in layer_kernels(shape) if key[1] == "attention"]
    crossed = layer_kernels(shape, source=7.0)
    assert crossed[("forward", "attention", "")][0] == 1
    assert crossed[("forward", "softmax", "")][0] == 1


def test_whisper_copies_per_head() -> None:
    kernels, plain = (layer_kernels(replace(TINY, model_type=name, rope=False)) for name in ("whisper", "llama"))
    copies = kernels[("forward", "copy", "strided")]
    assert copies[0] == 4  # queries, keys and values, and what comes out
    assert copies[2] == 2 * T * (H + K + K + H)
    assert kernels[("backward", "copy", "strided")][0] == 3
    assert kernels[("forward", "elementwise", "")][0] - plain[("forward", "elementwise", "")][0] == 1  # queries scaled


def test_a_joined_gradient() -> None:
    joined = layer_kernels(replace(TINY, model_type="phi3", rope=False))
    assert joined[("backward", "transpose", "concat")] == [2, 0, 2 * T * (H + 2 * K + 2 * F), 2 * T * (H + 2 * K + 2 * F)]


def test_norms_of_heads() -> None:
    kernels, plain = (layer_kernels(replace(TINY, qk_norm=flag)) for flag in (True, False))
    heads = bill([lambda write: functional.rms_norm(write, MatrixSizes(T * 8, 8.0, 2.0)),
                  lambda write: functional.rms_norm(write, MatrixSizes(T * 2, 8.0, 2.0))])  # fmt: skip
    for key, sums in heads.items():
        assert [a - b for a, b in zip(kernels[key], plain.get(key, [0.0] * 4), strict=True)] == pytest.approx(sums)


def test_moe_backward_pass() -> None:
    """Sorted, gathered, blanked, gated, weighted and summed, each with its gradient."""
    shape = replace(TINY, experts=Experts(8, 2, 32))
    write = KernelWriter(numerics("bf16"))
    moe_block(write, shape, rows(H), lambda *_: rows(H))
    back = [op for op in write.ops if op.phase == "backward" and not op.flops and (op.read, op.write) != (4096.0, 4096.0)]
    routed, inner, router, stream = 60 * 64, 60 * 32, 30 * 8, 30 * 64
    read = 4 * stream + (8 + 4) * router + 2 * routed  # used twice; softmax and cast; rows put back
    read += 3 * 2 * routed + 3 * 4 * inner + 2 * routed  # masked three times in copies; the gate; its parts concatenated
    read += (4 + 4 + 6 + 4 + 4 + 4) * routed + 2 * stream
    wrote = 2 * stream + (4 + 2) * router + 2 * stream + 2 * routed
    wrote += 3 * 4 * routed + 3 * 2 * inner + 2 * routed
    wrote += (4 + 4 + 4 + 4 + 4 + 2) * routed + 60 * 4 + 4 * stream
    assert (sum(float(op.read) for op in back), sum(float(op.write) for op in back)) == (read, wrote)


def kernels(engine: str, shape: Transformer = TINY, **more: Any) -> list[Op]:
    kernels = FusedKernels(weight_storage(shape, "bf16", "bf16"), engine_record(engine).kernels)
    fused_layer(kernels, shape, InferencePass(3.0, 10.0, 10.0, decoding=False), **more)
    return kernels.ops


@pytest.mark.parametrize(
    ("engine", "rotary", "sampling", "routing"),
    [("pytorch-compile", 3, 1, 18), ("vllm", 2, 3, 5), ("sglang", 2, 3, 5), ("tensorrt-llm", 1, 2, 5), ("llama.cpp", 4, 1, 8)],
)
def test_kernel_counts_of_engines(engine: str, rotary: int, sampling: int, routing: int) -> None:
    """For positions and the cache, on the logits, and to sort tokens to experts."""
    assert [op.count for op in kernels(engine) if op.role == "rotary"] == [rotary]
    workload = Workload("prefill", "tiny", precision="bf16", engine=engine)
    assert [op.count for op in fused_pass(workload, TINY, 3.0, 10.0, None) if op.role == "sample"] == [sampling]
    mixed = replace(TINY, experts=Experts(8, 2, 32))
    layer = kernels(engine, mixed, mixture=True)
    if engine in ("pytorch-compile", "llama.cpp"):
        assert max(op.count for op in layer if op.read * op.count == 16.0 * 30 * 8) == routing
        assert {op.role for op in layer if op.kind == "grouped_gemm"} == {"eager" if engine == "pytorch-compile" else "fused"}
    else:
        assert [op.role for op in layer if op.kind == "moe"] == [f"16bit.{engine}"]


def test_tables_looked_up_and_their_dense_gradients() -> None:
    def embedding_kernels(**changed: Any) -> dict[tuple[Any, ...], list[float]]:
        return bill([lambda write: embedding(write, replace(TINY, **changed), T)])

    size = T * H * 2
    assert embedding_kernels() == {("forward", "embedding", ""): [1, 0, size, size],
                      ("backward", "embedding_backward", ""): [1, 0, size, size + 1000 * H * 2]}  # fmt: skip
    more = embedding_kernels(positions=512, token_types=2)
    assert more[("backward", "embedding_backward", "")] == [3, 0, 3 * size, 3 * size + (1000 + 512 + 2) * H * 2]
    assert more[("forward", "elementwise", "strided")] == [1, 0, 2 * size, size]
    assert more[("forward", "elementwise", "")] == [1, 0, 2 * size, size]
    assert embedding_kernels(model_type="gemma")[("forward", "elementwise", "")] == [1, 0, size, size]
    assert embedding_kernels(embedding_norm=True)[("forward", "norm", "")] == [1, 0, size, size]
    low = embedding_kernels(embedding=16)
    assert low[("forward", "embedding", "")] == [1, 0, size / 4, size / 4]
    assert low[("forward", "gemm", "forward")][1] == 2 * T * 16 * H
    frozen = bill([lambda write: embedding(write, TINY, T)], frozen=True)
    assert list(frozen) == [("forward", "embedding", "")]


def test_patches_are_a_convolution() -> None:
    """Two images of 32 pixels a side in patches of 8: sixteen each, and one class token."""
    shape = replace(TINY, patches=Patches(32, 8))
    kernels = bill([lambda write: embedding(write, shape, 2.0 * 17)])
    output, pixels, weight = 2 * 16 * 64, 2 * 32 * 32 * 3, 3 * 64 * 64
    assert kernels[("forward", "conv", "forward")] == [1, 2 * output * 3 * 64, 2 * (pixels + weight), 2 * output]
    assert kernels[("backward", "conv_wgrad", "wgrad")] == [1, 2 * output * 3 * 64, 2 * (pixels + output), 2 * weight]
    assert kernels[("forward", "elementwise", "strided")] == [1, 0, 2 * output, 2 * output]  # the bias
    assert kernels[("backward", "reduce_columns", "")] == [1, 0, 2 * output, 2 * 64]
    assert kernels[("forward", "transpose", "concat")] == [1, 0, 2 * 2 * 17 * 64, 2 * 2 * 17 * 64]
    bare = bill([lambda write: embedding(write, replace(TINY, patches=Patches(32, 8, extra=0)), 2.0 * 16)])
    assert ("forward", "transpose", "concat") not in bare


def test_sounds_are_two_convolutions() -> None:
    """80 bands; 100 places, then every other one: 50."""
    other = 3 * 80 * 64 + 3 * 64 * 64 + 2 * 64 + 50 * 64
    shape = replace(TINY, model_type="whisper", encoder_layers=2, encoder_context=50, other=other)
    kernels = bill([lambda write: audio_stem(write, shape, 3.0)])
    first, second = 3 * 100 * 64, 3 * 50 * 64
    read = 3 * 100 * 80 + 3 * 80 * 64 + 3 * 100 * 64 + 3 * 64 * 64
    assert kernels[("forward", "conv", "forward")] == [2, 2 * 3 * (first * 80 + second * 64), 2 * read, 2 * (first + second)]
    assert kernels[("forward", "elementwise", "gelu")] == [2, 0, 2 * (first + second), 2 * (first + second)]
    assert kernels[("forward", "copy", "strided")] == [1, 0, 2 * second, 2 * second]


def test_heads_and_losses() -> None:
    def head_kernels(**changed: Any) -> dict[tuple[Any, ...], list[float]]:
        return bill([lambda write: output_head(write, replace(TINY, **changed), T)])

    plain = head_kernels()
    assert plain == bill([norm, *product(H, 1000)])
    tied = head_kernels(tied=True)[("backward", "elementwise", "")]
    added = [a - b for a, b in zip(tied, plain[("backward", "elementwise", "")], strict=True)]
    assert added == [1, 0, 4 * 1000 * H, 2 * 1000 * H]  # the table's two gradients
    assert head_kernels(final_norm=False) == bill(product(H, 1000))
    capped = (
        head_kernels(model_type="gemma2")[("forward", "elementwise", "")][0]
        - head_kernels(model_type="gemma")[("forward", "elementwise", "")][0]
    )
    assert capped == 3
    assert (
        head_kernels(head_bias=True)[("backward", "reduce_columns", "")][2] - plain[("backward", "reduce_columns", "")][2]
        == 2 * T * 1000
    )
    low = head_kernels(embedding=16)
    assert low[("forward", "gemm", "forward")][1] == 2 * T * (H * 16 + 16 * 1000)


@pytest.mark.parametrize(
    ("family", "precision", "copies", "softmax"),
    [("llama", "bf16", (2, 4), 4), ("llama", "fp32", None, 4), ("bert", "bf16", None, 2), ("bert", "amp-bf16", (2, 4), 2)],
)
def test_losses_widen_before_the_softmax_or_after(family: str, precision: str, copies: Any, softmax: int) -> None:
    width = 4.0 if precision == "fp32" else 2.0
    kernels = bill([lambda write: cross_entropy(write, replace(TINY, model_type=family), rows(1000, width))], precision)
    size = T * 1000
    widened = kernels.get(("forward", "copy", "upcast"))
    assert widened == (None if copies is None else [1, 0, copies[0] * size, copies[1] * size])
    assert kernels[("forward", "softmax", "")] == [1, 0, softmax * size, softmax * size]
    wide = 4 if family == "llama" or precision == "amp-bf16" else 2
    small = 3 * 4096
    assert kernels[("backward", "elementwise", "")] == [4, 0, small, wide * size + small]  # zeros for the labels' gradients
