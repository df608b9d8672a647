"""The ends of a model, layers trained with fused kernels, convolutions and what engines fuse: kernels and bytes by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower import host_calls
from whichgpu.estimate.time.lower.eager import convolution
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.embedding_and_head import (
    audio_stem,
    cross_entropy,
    embedding,
    embedding_lookup,
    output_head,
)
from whichgpu.estimate.time.lower.eager.embedding_and_head import convolution as whole_convolution
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.mlp import perceptron_step, recommendation_pass
from whichgpu.estimate.time.lower.fused import fusion_rules
from whichgpu.estimate.time.lower.fused.training import fused_loss, fused_training_layer
from whichgpu.estimate.time.lower.layer_kinds import encoder_layers_per_stage, layer_kind, layer_kinds
from whichgpu.estimate.time.lower.live_trace import _line, _lines
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Dlrm, Experts, Mlp, Patches, Transformer
from whichgpu.workload.workload import Parallel, Workload

H, F, Q, K, ROWS = 64.0, 256.0, 64.0, 16.0, 30.0
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
STREAM = ROWS * H * 2


def writer(precision: str = "bf16", **more: Any) -> KernelWriter:
    return KernelWriter(numerics(precision), **more)


def moved(ops: list[Op], phase: str = "forward", *kinds: str) -> list[tuple[float, float]]:
    """Bytes read and written by each kernel that is no product."""
    mine = [op for op in ops if op.phase == phase and not op.flops and op.sizes.get("elements") != 1024.0]
    return [(float(op.read * op.count), float(op.write * op.count)) for op in mine if not kinds or op.kind in kinds]


def total(ops: list[Op], phase: str) -> tuple[int, float, float]:
    sides = moved(ops, phase)
    return len(sides), sum(read for read, _ in sides), sum(written for _, written in sides)


def products(ops: list[Op], phase: str = "forward") -> list[tuple[float, float, float]]:
    return [tuple(float(op.sizes[name]) for name in "mnk") for op in ops if op.kind == "gemm" and op.phase == phase]  # type: ignore[misc]


def fused(shape: Transformer = TINY, precision: str = "bf16", **run: Any) -> list[Op]:
    write = writer(precision)
    plain: dict[str, Any] = {"batch": 3.0, "sequence": 10.0, "attention": "flash"}
    fused_training_layer(write, shape, LayerPass(**(plain | run)))
    return write.ops


def test_fused_norm_sums_gradients_of_all_consumers() -> None:
    assert moved(fused(), "forward", "norm") == [(2 * STREAM, 2 * STREAM)] * 2
    assert moved(fused(), "backward", "norm_backward") == [(5 * STREAM, STREAM), (4 * STREAM, STREAM)]
    joined = replace(TINY, model_type="phi3")  # one product for queries, keys and values, one for gate and up
    assert moved(fused(joined), "backward", "norm_backward") == [(3 * STREAM, STREAM)] * 2
    plain = replace(TINY, gated=False)
    assert moved(fused(plain), "backward", "norm_backward") == [(5 * STREAM, STREAM), (3 * STREAM, STREAM)]
    assert len(moved(fused(replace(TINY, norms=4)), "forward", "norm")) == 4
    assert len(moved(fused(replace(TINY, parallel_block=True, norms=1)), "forward", "norm")) == 1
    assert len(moved(fused(replace(TINY, parallel_block=True)), "forward", "norm")) == 2


def test_runs_of_elementwise_operators_are_one_kernel_each() -> None:
    queries, keys, inner = ROWS * Q * 2, ROWS * K * 2, ROWS * F * 2
    assert moved(fused(), "forward", "elementwise") == [(queries, queries), (keys, keys), (2 * inner, inner)]
    assert moved(fused(), "backward", "elementwise")[:2] == [(queries, queries), (keys, keys)]
    assert moved(fused(), "backward", "elementwise")[-1] == (3 * inner, 2 * inner)
    normed = replace(TINY, qk_norm=True)
    assert moved(fused(normed), "backward", "elementwise")[:2] == [(2 * queries, queries), (2 * keys, keys)]
    bare = replace(TINY, rope=False, gated=False)
    assert moved(fused(bare), "forward", "elementwise") == [(inner, inner)]
    assert moved(fused(bare), "backward", "elementwise")[-1] == (2 * inner, inner)


def test_gemms_of_a_fused_layer() -> None:
    assert products(fused()) == [(ROWS, Q, H), (ROWS, K, H), (ROWS, K, H), (ROWS, H, Q), (ROWS, F, H), (ROWS, F, H), (ROWS, H, F)]
    joined = replace(TINY, model_type="gpt2", gated=False)
    assert products(fused(joined)) == [(ROWS, Q + 2 * K, H), (ROWS, H, Q), (ROWS, F, H), (ROWS, H, F)]
    crossed = products(fused(source=7.0))
    assert crossed[4:8] == [(ROWS, Q, H), (21.0, K, H), (21.0, K, H), (ROWS, H, Q)]
    flash, masked = (next(op for op in fused(attention=kind) if op.kind == "attention") for kind in ("flash", "sdpa"))
    assert masked.flops == 2 * flash.flops  # a mask in memory skips nothing
    assert [op.kind for op in fused(attention="eager") if op.kind == "softmax"] == ["softmax"]


def test_a_fused_loss_reads_logits_once_and_once_more() -> None:
    write = writer()
    fused_loss(write, replace(TINY, vocab=1001), ROWS)
    logits = ROWS * 1001 * 2
    assert moved(write.ops, "forward", "softmax") == [(logits, 8 * ROWS)]
    assert moved(write.ops, "backward", "softmax_backward") == [(logits, logits)]
    assert products(write.ops) == [(ROWS, 1001.0, H)]
    assert products(write.ops, "backward") == [(ROWS, H, 1008.0), (1008.0, H, ROWS)]  # padded to eights
    frozen = writer(frozen=True)
    fused_loss(frozen, TINY, ROWS)
    assert products(frozen.ops, "backward") == [(ROWS, H, 1000.0)]
    bert = writer()
    fused_loss(bert, replace(TINY, lm_transform=True, head_bias=True), ROWS)
    assert products(bert.ops) == [(ROWS, H, H), (ROWS, 1000.0, H)]
    assert len(moved(bert.ops, "forward", "norm")) == 2
    assert moved(bert.ops, "backward", "reduce_columns") == [(ROWS * 2000, 2000)]


def test_identical_layers_are_counted_by_kind() -> None:
    plain = replace(TINY, layers=6)
    assert [(kind.window, kind.mixture, count) for kind, count in layer_kinds(plain, Parallel())] == [(0, False, 6)]
    windowed = replace(plain, window=16, global_every=3)
    assert [layer_kind(windowed, index).window for index in range(6)] == [16, 16, 0, 16, 16, 0]
    assert [layer_kind(replace(windowed, global_every=0), index).window for index in range(2)] == [16, 16]
    mixed = replace(plain, experts=Experts(4, 1, 8, dense_layers=1, every=2))
    assert [layer_kind(mixed, index).mixture for index in range(6)] == [False, True, False, True, False, True]
    assert sum(count for _, count in layer_kinds(plain, Parallel(pp=2))) == 3
    assert [encoder_layers_per_stage(replace(plain, encoder_layers=5), Parallel(pp=pp)) for pp in (1, 2)] == [5, 3]


def test_tables_are_looked_up_and_added() -> None:
    write = writer()
    embedding(write, TINY, ROWS)
    assert moved(write.ops) == [(STREAM, STREAM)]
    assert moved(write.ops, "backward") == [(STREAM, STREAM + 1000 * H * 2)]
    rich = writer()
    embedding(rich, replace(TINY, positions=100, token_types=2, embedding_norm=True, dropout=0.1), ROWS)
    assert moved(rich.ops) == [
        (STREAM, STREAM), (STREAM, STREAM), (2 * STREAM, STREAM), (STREAM, STREAM), (2 * STREAM, STREAM), (STREAM, STREAM),
        (STREAM, 1.5 * STREAM),
    ]  # fmt: skip
    gemma = writer()
    embedding(gemma, replace(TINY, model_type="gemma2"), ROWS)
    assert moved(gemma.ops) == [(STREAM, STREAM)] * 2
    narrow = writer()
    embedding(narrow, replace(TINY, embedding=32), ROWS)
    assert products(narrow.ops) == [(ROWS, H, 32.0)]
    frozen = writer(frozen=True)
    embedding_lookup(frozen, MatrixSizes(ROWS, H, 2.0), 1000.0)
    assert moved(frozen.ops, "backward") == []


def test_an_image_is_cut_into_squares() -> None:
    write = writer()
    shape = replace(TINY, patches=Patches(32, 16))
    embedding(write, shape, 2 * 5.0)  # two images of four squares and a class token
    conv = next(op for op in write.ops if op.kind == "conv")
    assert conv.flops == 2 * (2 * 4) * H * 3 * 256
    assert conv.read == 2 * 2 * 2 * 256 * 3 * 2 + 3 * 256 * H * 2
    assert conv.write == 8 * H * 2
    assert {name: float(conv.sizes[name]) for name in ("height", "width", "kernel", "stride", "cin")} == {
        "height": 2, "width": 2, "kernel": 256, "stride": 16, "cin": 3,
    }  # fmt: skip
    assert moved(write.ops) == [(8 * H * 2, 8 * H * 2), (10 * H * 2, 10 * H * 2)]


def test_whisper_hears_through_two_convolutions() -> None:
    """80 mels; 14 places, then 7 of them: the second steps by two."""
    shape = replace(TINY, encoder_context=7, encoder_layers=1, other=int(3 * H * (80 + H) + 7 * H + 2 * H))
    write = writer()
    audio_stem(write, shape, 3.0)
    first, second = [op for op in write.ops if op.kind == "conv"]
    assert first.flops == pytest.approx(2 * 3 * 14 * H * 80 * 3)
    assert second.flops == 2 * 3 * 7 * H * H * 3
    assert first.read == pytest.approx(3 * 14 * 80 * 2 + 80 * 3 * H * 2)
    assert second.read == 3 * 7 * 2 * H * 2 + H * 3 * H * 2


def test_a_convolution_s_weights_and_bias_have_gradients() -> None:
    write = writer()
    whole_convolution(write, MatrixSizes(18.0, 32.0, 2.0), 2.0, 3.0, 3.0, 4.0, 9.0, 2.0)
    back = next(op for op in write.ops if op.kind == "conv_wgrad")
    entering, weight = 2 * 9 * 4 * 4 * 2, 4 * 9 * 32 * 2
    assert (back.read, back.write) == (entering + 18 * 32 * 2, weight)
    assert moved(write.ops, "backward") == [(18 * 32 * 2, 32 * 2)]


def test_the_head_and_the_loss() -> None:
    write = writer()
    output_head(write, replace(TINY, norm="layer"), ROWS)
    assert products(write.ops) == [(ROWS, 1000.0, H)]
    assert len(moved(write.ops, "forward", "norm")) == 1
    encoder = writer()
    output_head(encoder, replace(TINY, norm="layer", causal=False), ROWS)
    assert not moved(encoder.ops, "forward", "norm")
    bert = writer()
    output_head(bert, replace(TINY, norm="layer", causal=False, lm_transform=True), ROWS)
    assert products(bert.ops) == [(ROWS, H, H), (ROWS, 1000.0, H)]
    tied = writer()
    output_head(tied, replace(TINY, norm="layer", tied=True), ROWS)
    assert moved(tied.ops, "backward", "elementwise") == [(2 * 1000 * H * 2, 1000 * H * 2)]
    capped = writer()
    output_head(capped, replace(TINY, norm="layer", model_type="gemma2"), ROWS)
    assert len(moved(capped.ops, "forward", "elementwise")) == 3
    logits = MatrixSizes(ROWS, 1000.0, 2.0)
    wide = writer()
    cross_entropy(wide, TINY, logits)
    size = ROWS * 1000
    assert moved(wide.ops) == [(2 * size, 4 * size), (4 * size, 4 * size)]
    assert moved(wide.ops, "backward") == [(4 * size, 2 * size), (8 * size, 4 * size), (0, 4 * size)]
    own = writer()
    cross_entropy(own, replace(TINY, model_type="bert"), logits)
    assert moved(own.ops) == [(2 * size, 2 * size)]
    assert sum(op.count for op in own.ops if op.sizes.get("elements") == 1024.0) == 6


def back(**changed: Any) -> tuple[int, float]:
    write = writer()
    eager_layer(write, replace(TINY, norm="layer", **changed), LayerPass(3.0, 10.0))
    added = [
        op
        for op in write.ops
        if op.phase == "backward" and op.kind == "elementwise" and not op.role and op.sizes["elements"] == ROWS * H
    ]
    return len([op for op in added if op.read == 2 * STREAM]), sum(float(op.read) for op in added)


def test_gradients_of_shared_tensors_are_accumulated() -> None:
    """The stream twice, the normed input of queries, keys and values twice more, that of gate and up once more."""
    assert back(rope=False)[0] == 1 + 2 + 1 + 1
    assert back(rope=False, gated=False, activation="relu")[0] == 1 + 2 + 1
    assert back(rope=False, parallel_block=True, norms=1)[0] == 1 + 2 + 1 + 1
    assert back(rope=False, parallel_block=True, norms=2)[0] == 1 + 2 + 1 + 1
    assert back(rope=False, model_type="bert", gated=False, activation="relu")[0] == 1 + 2 + 1


# A convolution of 2 x 16 channels x 8 x 8 pixels with 3 x 3 filters to 32 channels of 4 x 4.
BEFORE, AFTER, WEIGHT = (2.0, 16.0, 8.0, 8.0), (2.0, 32.0, 4.0, 4.0), (32.0, 16.0, 3.0, 3.0)


def conv(name: str = "convolution", inputs: Any = (BEFORE, WEIGHT), outputs: Any = (AFTER,), **attributes: Any) -> Call:
    return Call(name, "forward", "bfloat16", 1.0, inputs, outputs, {"stride": [2, 2]} | attributes, grown=(True,))


def test_a_traced_convolution_by_hand() -> None:
    (op,) = convolution.forward(conv(), LoweringOptions())
    before, after, weight = 2 * 16 * 64 * 2, 2 * 32 * 16 * 2, 32 * 16 * 9 * 2
    assert op.flops == 2 * (2 * 32 * 16) * 9 * 16
    assert (op.read, op.write) == (before + weight, after)
    names = ("batch", "height", "width", "cin", "cout", "kernel", "stride", "groups")
    assert {name: float(op.sizes[name]) for name in names} == {
        "batch": 2, "height": 4, "width": 4, "cin": 16, "cout": 32, "kernel": 9, "stride": 2, "groups": 1,
    }  # fmt: skip
    assert op.sizes["resident"] == before / (before + after + weight)
    (evaluated,) = convolution.forward(conv(), LoweringOptions(training=False))
    assert evaluated.sizes["resident"] == (before + after) / (before + after + weight)
    _, biased = convolution.forward(conv(inputs=(BEFORE, WEIGHT, (32.0,))), LoweringOptions())
    assert (biased.kind, biased.role, biased.read) == ("elementwise", "strided", after)
    (turned,) = convolution.forward(conv(inputs=(AFTER, WEIGHT), outputs=(BEFORE,), transposed=True), LoweringOptions())
    assert (turned.kind, turned.write) == ("conv_dgrad", before)


def test_gradients_of_a_traced_convolution() -> None:
    call = conv("convolution_backward", (AFTER, BEFORE, WEIGHT), (BEFORE,), mask=[True, True, True])
    dgrad, wgrad, bias = convolution.backward(call, LoweringOptions())
    before, after, weight = 2 * 16 * 64 * 2, 2 * 32 * 16 * 2, 32 * 16 * 9 * 2
    assert (dgrad.kind, dgrad.read, dgrad.write) == ("conv_dgrad", after + weight, before)
    assert (wgrad.kind, wgrad.read, wgrad.write) == ("conv_wgrad", before + after, weight)
    assert (bias.kind, bias.read, bias.write, bias.sizes["rows"]) == ("reduce_columns", after, 64, 32)
    assert dgrad.sizes["resident"] == wgrad.sizes["resident"] == after / (before + after + weight)
    first = conv("convolution_backward", (AFTER, BEFORE, WEIGHT), (BEFORE,), mask=[False, True, False])
    assert [op.kind for op in convolution.backward(first, LoweringOptions())] == ["conv_wgrad"]


@pytest.mark.parametrize(("groups", "cin", "kernels"), [(1, 16.0, 1), (2, 16.0, 1), (16, 16.0, 1), (2, 96.0, 3), (2, 64.0, 1)])
def test_large_conv_groups_run_one_by_one_between_copies(groups: int, cin: float, kernels: int) -> None:
    image, weight = (2.0, cin, 8.0, 8.0), (32.0, cin / groups, 3.0, 3.0)
    ops = convolution.forward(conv(inputs=(image, weight), groups=groups), LoweringOptions())
    assert len(ops) == kernels
    assert sum(float(op.flops * op.count) for op in ops) == pytest.approx(2 * 1024 * 9 * cin / groups)
    if kernels > 1:
        assert [op.count for op in ops] == [groups] * 3
        assert [float(op.read) for op in ops[1:]] == [2 * cin / 2 * 64 * 2, 2 * 16 * 16 * 2]


def test_host_cost_of_a_call() -> None:
    plain = conv()
    assert host_calls.host_call_weight(plain) == 1.0
    assert host_calls.host_call_weight(replace(plain, outputs=())) == 0.05
    assert host_calls.host_call_weight(replace(plain, name="_to_copy")) == 0.6
    assert host_calls.host_call_weight(replace(plain, dtype="int64")) == 0.25
    assert host_calls.host_call_weight(replace(plain, name="add", phase="backward")) == 0.25
    assert host_calls.host_call_weight(replace(plain, name="add")) == 1.0
    shares = host_calls.view_overhead([replace(plain, count=2.0), replace(plain, outputs=(), count=10.0)])
    assert shares == {"forward": pytest.approx(2.5 / 2), "backward": 1.0}
    first, second = host_calls.charge_host_cost(plain, [Op("conv", "bf16", count=4.0), Op("conv", "bf16")], {"forward": 1.25})
    assert (first.calls * first.count, second.calls) == (1.25, 1.0)


def test_guests_vanish_into_hosts_of_their_size() -> None:
    """TensorRT: a sum of two tensors after a convolution leaves one operand to read."""
    call = conv()
    added = replace(call, name="add", inputs=(AFTER, AFTER), outputs=(AFTER,))
    lowered = [(call, convolution.forward(call, LoweringOptions())), (added, [Op("elementwise", "bf16", 0.0, 8192.0, 4096.0)])]
    plain, joined = (
        fusion_rules.fuse(lowered, engine_record(engine).fusion, LoweringOptions()) for engine in ("pytorch", "tensorrt")
    )
    assert len(plain) == 2
    assert len(joined) == 1
    assert joined[0].read == plain[0].read + 2 * 32 * 16 * 2
    elsewhere = replace(added, outputs=(BEFORE,))
    assert len(fusion_rules.fuse([lowered[0], (elsewhere, lowered[1][1])], "tensorrt", LoweringOptions())) == 2
    later = replace(added, phase="backward")
    assert len(fusion_rules.fuse([lowered[0], (later, lowered[1][1])], "tensorrt", LoweringOptions())) == 2
    norm = replace(call, name="native_batch_norm", inputs=(AFTER,), outputs=(AFTER,))
    folded = fusion_rules.fuse([lowered[0], (norm, [Op("batch_norm", "bf16", 0.0, 1.0, 1.0)])], "tensorrt", LoweringOptions())
    assert [op.kind for op in folded] == ["conv"]


def test_casts_reduce_bytes_written_or_read() -> None:
    norm = replace(conv(), name="native_layer_norm", inputs=(AFTER,), outputs=(AFTER,))
    kernel = Op("norm", "fp32", 0.0, 100.0, 60.0)
    for dtype, read, written in (("bfloat16", 100.0, 30.0), ("float32", 50.0, 60.0)):
        cast = replace(norm, name="_to_copy", dtype=dtype)
        (op,) = fusion_rules.fuse(
            [(norm, [kernel]), (cast, [kernel])], engine_record("pytorch-compile").fusion, LoweringOptions(amp=True)
        )
        assert (op.read, op.write) == (read, written)


def test_lines_through_two_batches() -> None:
    assert _line([10, 13]) == (4, 3)
    assert _line([7]) == (7, 0)
    assert _lines([[(2, 5)], [(3, 5)]]) == (((0, 1), (5, 0)),)


def test_a_perceptron_and_a_recommendation_model() -> None:
    ops = perceptron_step(Workload("train", "net", precision="fp32", optimizer="sgd"), Mlp("net", (100, 50, 10)), 8.0)
    assert products(ops) == [(8.0, 50.0, 100.0), (8.0, 10.0, 50.0)]
    assert products(ops, "backward") == [(50.0, 100.0, 8.0), (8.0, 50.0, 10.0), (10.0, 50.0, 8.0)]  # none of the inputs
    assert moved(ops, "forward", "elementwise") == [(8 * 50 * 4, 8 * 50 * 4)]  # between layers alone
    (step,) = [op for op in ops if op.phase == "optimizer"]
    assert step.read == (100 * 50 + 50 + 50 * 10 + 10) * 2 * 4
    assert step.calls == pytest.approx(4 * 0.27)
    operators = recommendation_pass(
        Workload("forward", "d", precision="fp32"), Dlrm("d", 8, (100, 100), (13, 32, 8), (16, 1)), 5.0
    )
    assert moved(operators, "forward", "embedding") == [(5 * 8 * 4, 5 * 8 * 4)] * 2
    assert products(operators) == [(5.0, 32.0, 13.0), (5.0, 8.0, 32.0), (3.0, 3.0, 8.0), (5.0, 16.0, 11.0), (5.0, 1.0, 16.0)]
    assert moved(operators, "forward", "copy") == [(5 * 24 * 4, 5 * 24 * 4), (5 * 11 * 4, 5 * 11 * 4)]
