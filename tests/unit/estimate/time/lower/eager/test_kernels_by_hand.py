"""Kernels that PyTorch launches for an operator and its gradient, and the bytes each moves, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager import attention, elementwise, functional, reductions
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op

ROWS, COLUMNS = 6.0, 40.0
N = ROWS * COLUMNS


def writer(precision: str = "bf16", **more: Any) -> KernelWriter:
    return KernelWriter(numerics(precision), **more)


def moved(ops: list[Op], phase: str) -> tuple[float, float, float]:
    """Kernels, bytes read and bytes written of a phase, without those on a few numbers."""
    mine = [op for op in ops if op.phase == phase and op.sizes.get("elements") != 1024.0 and not op.flops]
    sides = [(float(op.count), float(op.read * op.count), float(op.write * op.count)) for op in mine]
    return sum(one[0] for one in sides), sum(one[1] for one in sides), sum(one[2] for one in sides)


def x(width: float = 2.0) -> MatrixSizes:
    return MatrixSizes(ROWS, COLUMNS, width)


PER_ELEMENT: list[tuple[Callable[[KernelWriter], Any], tuple[float, float, float], tuple[float, float, float]]] = [
    # kernels, bytes read and written for each element of two bytes: forward, backward
    (lambda write: functional.scale(write, x()), (1, 2, 2), (1, 2, 2)),
    (lambda write: functional.shift(write, x()), (1, 2, 2), (0, 0, 0)),
    (lambda write: functional.add(write, x(), x()), (1, 4, 2), (0, 0, 0)),
    (lambda write: functional.add(write, x(), x(4.0)), (1, 6, 4), (1, 4, 2)),
    (lambda write: functional.multiply(write, x(), x()), (1, 4, 2), (2, 8, 4)),
    (lambda write: functional.multiply(write, x(), x(4.0)), (1, 6, 4), (3, 8 + 6 + 4, 4 + 4 + 2)),
    (lambda write: functional.elementwise(write, x(), "gelu"), (1, 2, 2), (1, 4, 2)),
    (lambda write: functional.power(write, x()), (1, 2, 2), (3, 8, 6)),
    (lambda write: functional.dropout(write, x(), 0.1), (1, 2, 3), (1, 3, 2)),
    (lambda write: functional.dropout(write, x(), 0.0), (0, 0, 0), (0, 0, 0)),
    (lambda write: functional.layer_norm(write, x()), (1, 2, 2), (1, 4, 2)),
    (lambda write: attention.softmax(write, x()), (1, 2, 2), (1, 4, 2)),
    (lambda write: functional.gelu_bloom(write, x()), (9, 24, 18), (18, 2 * 26, 36)),
    # half of x, its cube times a constant, the sum, times a constant, tanh, plus one, and the product
    (lambda write: functional.gelu_tanh(write, x()), (8, 20, 16), (11, 34, 22)),
    (lambda write: functional.activation(write, "quick_gelu", x()), (3, 8, 6), (5, 18, 10)),
    (lambda write: functional.activation(write, "silu", x()), (1, 2, 2), (1, 4, 2)),
    (lambda write: write.transpose(x()), (1, 2, 2), (0, 0, 0)),
    (lambda write: write.concat(x()), (1, 2, 2), (0, 0, 0)),
    (lambda write: write.cast(x(), 4.0), (1, 2, 4), (1, 4, 2)),
    (lambda write: write.cast(x(), 2.0), (0, 0, 0), (0, 0, 0)),
    (lambda write: write.sum_gradients(x(), 3), (0, 0, 0), (2, 8, 4)),
]


@pytest.mark.parametrize("case", range(len(PER_ELEMENT)))
def test_bytes_for_each_element(case: int) -> None:
    run, forward, backward = PER_ELEMENT[case]
    write = writer()
    run(write)
    for phase, (kernels, read, written) in (("forward", forward), ("backward", backward)):
        assert moved(write.ops, phase) == (kernels, read * N, written * N)
    alone = writer(training=False)
    run(alone)
    assert moved(alone.ops, "backward") == (0, 0, 0)


def test_the_weight_of_a_norm_is_summed_over_rows() -> None:
    write = writer()
    functional.column_weight(write, x())
    assert moved(write.ops, "forward") == (1, 2 * N, 2 * N)
    assert moved(write.ops, "backward") == (3, (2 + 4 + 2) * N, (2 + 2) * N + COLUMNS * 2)
    frozen = writer(frozen=True)
    functional.column_weight(frozen, x())
    assert moved(frozen.ops, "backward") == (1, 2 * N, 2 * N)


def test_rms_norm_written_out() -> None:
    """A cast, a square, a mean, times a number a row, a cast back, times the weight."""
    write = writer()
    functional.rms_norm(write, x())
    forward = (6, (2 + 4 + 4 + 4 + 4 + 2) * N, (4 + 4 + 4 + 2 + 2) * N + ROWS * 4)
    assert moved(write.ops, "forward") == forward
    assert sum(op.count for op in write.ops if op.sizes.get("elements") == 1024.0) == 5
    wide = writer()
    functional.rms_norm(wide, x(), wide_weight=True)
    assert moved(wide.ops, "forward") == (6, (2 + 4 + 4 + 4 + 4 + 4) * N, (4 + 4 + 4 + 4 + 2) * N + ROWS * 4)
    assert sum(op.count for op in wide.ops if op.sizes.get("elements") == 1024.0) == 7


def test_rotation_of_all_or_part_of_a_head() -> None:
    write = writer()
    functional.rotary(write, x())
    assert moved(write.ops, "forward") == (5, (2 + 1 + 2 + 2 + 4) * N, (2 + 1 + 2 + 2 + 2) * N)
    part = writer()
    functional.rotary(part, x(), 0.5)
    assert moved(part.ops, "forward") == (6, 11 * N / 2 + 2 * N, 9 * N / 2 + 2 * N)


def products(ops: list[Op]) -> list[tuple[str, float, float, float, str]]:
    mine = [op for op in ops if op.kind == "gemm"]
    return [(op.role, float(op.sizes["m"]), float(op.sizes["n"]), float(op.sizes["k"]), op.phase) for op in mine]


def test_a_linear_layer_and_its_gradients() -> None:
    write = writer()
    functional.linear(write, x(), 24.0, bias=True)
    assert products(write.ops) == [
        ("forward", ROWS, 24.0, COLUMNS, "forward"), ("dgrad", ROWS, COLUMNS, 24.0, "backward"),
        ("wgrad", 24.0, COLUMNS, ROWS, "backward"),
    ]  # fmt: skip
    assert moved(write.ops, "backward") == (1, ROWS * 24 * 2, 24 * 2)
    mixed = writer("amp-bf16")
    functional.linear(mixed, x(4.0), 24.0)
    assert moved(mixed.ops, "forward") == (2, 4 * N + COLUMNS * 24 * 4, 2 * N + COLUMNS * 24 * 2)
    assert moved(mixed.ops, "backward") == (2, 2 * N + COLUMNS * 24 * 2, 4 * N + COLUMNS * 24 * 4)
    frozen = writer(frozen=True)
    functional.linear(frozen, x(), 24.0, bias=True)
    assert [role for role, *_ in products(frozen.ops)] == ["forward", "dgrad"]
    assert moved(frozen.ops, "backward") == (0, 0, 0)


def test_adapters_run_in_addition_to_frozen_layers() -> None:
    write = writer(lora_rank=4)
    functional.linear(write, x(), 24.0, role="q")
    assert [(role, m, n, k) for role, m, n, k, _ in products(write.ops)] == [
        ("forward", ROWS, 24, COLUMNS), ("dgrad", ROWS, COLUMNS, 24),
        ("forward", ROWS, 4, COLUMNS), ("dgrad", ROWS, COLUMNS, 4), ("wgrad", 4, COLUMNS, ROWS),
        ("forward", ROWS, 24, 4), ("dgrad", ROWS, 4, 24), ("wgrad", 24, 4, ROWS),
    ]  # fmt: skip
    output = ROWS * 24
    assert moved(write.ops, "forward") == (2, (2 + 4) * output, 4 * output)
    assert moved(write.ops, "backward") == (2, 2 * output + 4 * N, 2 * output + 2 * N)
    elsewhere = writer(lora_rank=4, targets=frozenset({"v"}))
    functional.linear(elsewhere, x(), 24.0, role="q")
    assert len(products(elsewhere.ops)) == 2
    quantised = writer(lora_rank=4, quantised=True, targets=frozenset({"v"}))
    functional.linear(quantised, x(), 24.0, role="q")
    unpacked = [op for op in quantised.ops if op.role == "unpack"]
    assert [op.phase for op in unpacked] == ["forward", "backward"]
    assert {float(op.write) for op in unpacked} == {2 * COLUMNS * 24}


SEEN = AttentionSizes(batch=2.0, heads=4.0, kv_heads=2.0, queries=10.0, keys=10.0, dim=8.0, value_dim=6.0, causal=False)


@pytest.mark.parametrize(
    ("changed", "pairs"),
    [({}, 100.0), ({"causal": True}, 50.0), ({"window": 4}, 40.0), ({"causal": True, "window": 4}, 40 - 8.0),
     ({"causal": True, "queries": 3.0}, 30 - 4.5), ({"window": 20}, 100.0)],
)  # fmt: skip
def test_pairs_of_queries_and_keys(changed: dict[str, Any], pairs: float) -> None:
    assert float(replace(SEEN, **changed).pairs) == pairs


def test_the_fused_kernel_reads_and_writes() -> None:
    op = SEEN.op("bf16", 2.0)
    assert op.flops == 2 * 2 * 4 * 100 * 14
    assert op.read == 2 * 4 * 10 * 8 * 2 + 2 * 2 * 10 * 14 * 2
    assert op.write == 2 * 4 * 10 * 6 * 2
    back = SEEN.op("bf16", 2.0, "attention_backward")
    assert (back.flops, back.read, back.write) == (2.5 * op.flops, op.read + 2 * op.write, op.read)
    assert SEEN.op("bf16", 2.0, kv_width=1.0).read == 2 * 4 * 10 * 8 * 2 + 2 * 2 * 10 * 14


def test_keys_of_fewer_heads_have_their_gradients_summed() -> None:
    write = writer()
    attention.flash_attention(write, SEEN, x(), x(), x())
    assert moved(write.ops, "backward") == (2, 2 * 10 * 2 * (8 + 6) * 2 * 2, 2 * 10 * 2 * (8 + 6) * 2)
    decoded = writer()
    attention.flash_attention(decoded, SEEN, x(), x(), x(), decoding=True)
    assert [(op.kind, op.role) for op in decoded.ops] == [("decode_attention", "whole")]
    dropped = writer()
    attention.flash_attention(dropped, SEEN, x(), x(), x(), 0.1)
    assert {op.role for op in dropped.ops if op.flops} == {"dropout"}


def test_attention_scores_are_two_gemms_with_two_gradients_each() -> None:
    write = writer()
    scores = attention.score_gemms(write, SEEN, 2.0)
    assert (scores.rows, scores.columns) == (2 * 4 * 10, 10)
    assert [(role, m, n, k) for role, m, n, k, _ in products(write.ops)] == [
        ("forward", 10, 10, 8), ("dgrad", 10, 8, 10), ("wgrad", 8, 10, 10),
        ("forward", 10, 6, 10), ("dgrad", 10, 10, 6), ("wgrad", 10, 6, 10),
    ]  # fmt: skip
    fused = writer()
    attention.fused_softmax_attention(fused, SEEN, x(), 0.1)
    size = 2 * 4 * 10 * 10
    assert moved(fused.ops, "forward") == (1, 2 * size, 3 * size)
    assert moved(fused.ops, "backward") == (1, 5 * size, 2 * size)


# Calls of a traced network: an image of 2 x 16 channels x 8 x 8 pixels in 16 bits.
IMAGE = (2.0, 16.0, 8.0, 8.0)
PIXELS = 2.0 * 16 * 64


def call(name: str, inputs: Any = (IMAGE,), outputs: Any = (IMAGE,), dtype: str = "bfloat16", **more: Any) -> Call:
    plain: dict[str, Any] = {"phase": "forward", "count": 1.0, "grown": (True,)}
    return Call(name, dtype=dtype, inputs=inputs, outputs=outputs, **(plain | more))


def sides(ops: list[Op]) -> tuple[float, float]:
    return sum(float(op.read) for op in ops), sum(float(op.write) for op in ops)


@pytest.mark.parametrize(
    ("rule", "inputs", "outputs", "read", "written"),
    [
        (reductions.batch_norm, (IMAGE,), (IMAGE,), 4 * PIXELS, 2 * PIXELS),
        (reductions.batch_norm_backward, (IMAGE,), (IMAGE,), 8 * PIXELS, 2 * PIXELS),
        (reductions.layer_norm, (IMAGE,), (IMAGE,), 2 * PIXELS, 2 * PIXELS),
        (reductions.layer_norm_backward, (IMAGE,), (IMAGE,), 4 * PIXELS, 2 * PIXELS),
        (reductions.group_norm, (IMAGE,), (IMAGE, (2.0, 4.0)), 4 * PIXELS, 2 * PIXELS),
        (reductions.group_norm_backward, (IMAGE, IMAGE, (2.0, 4.0)), (IMAGE,), 8 * PIXELS, 2 * PIXELS),
        (reductions.softmax_rule("softmax", 1), (IMAGE,), (IMAGE,), 2 * PIXELS, 2 * PIXELS),
        (reductions.softmax_rule("softmax_backward", 2), (IMAGE,), (IMAGE,), 4 * PIXELS, 2 * PIXELS),
        (reductions.max_pool, (IMAGE,), ((2.0, 16.0, 4.0, 4.0),), 2 * PIXELS, PIXELS / 4 * 10),
        (reductions.max_pool_backward, ((2.0, 16.0, 4.0, 4.0),), (IMAGE,), PIXELS / 4 * 10, 2 * PIXELS),
        (reductions.average_pool, (IMAGE,), ((2.0, 16.0, 4.0, 4.0),), 2 * PIXELS, PIXELS / 2),
        (reductions.average_pool_backward, ((2.0, 16.0, 4.0, 4.0),), (IMAGE,), PIXELS / 2, 2 * PIXELS),
        (elementwise.elementwise, (IMAGE, IMAGE), (IMAGE,), 4 * PIXELS, 2 * PIXELS),
        (elementwise.strided_elementwise, (IMAGE, IMAGE), (IMAGE,), 4 * PIXELS, 2 * PIXELS),
        (elementwise.copy_rule("copy"), (IMAGE,), (IMAGE,), 2 * PIXELS, 2 * PIXELS),
        (elementwise.clone, (IMAGE,), (IMAGE,), 2 * PIXELS, 2 * PIXELS),
        (elementwise.concatenate, (IMAGE, IMAGE), ((4.0, *IMAGE[1:]),), 4 * PIXELS, 4 * PIXELS),
        (elementwise.fill, (), (IMAGE,), 0, 2 * PIXELS),
        (elementwise.scatter, ((1.0, *IMAGE[1:]),), (IMAGE,), PIXELS, 3 * PIXELS),
        (elementwise.dropout, (IMAGE,), (IMAGE,), 2 * PIXELS, 3 * PIXELS),
        (elementwise.dropout_backward, (IMAGE,), (IMAGE,), 3 * PIXELS, 2 * PIXELS),
        (elementwise.broadcast_gradient, (IMAGE,), (IMAGE,), 0, 2 * PIXELS),
        (elementwise.cast, (IMAGE,), (IMAGE,), 2 * PIXELS, 2 * PIXELS),
    ],
)
def test_bytes_of_a_traced_call(rule: Any, inputs: Any, outputs: Any, read: float, written: float) -> None:
    assert sides(rule(call("x", inputs, outputs), LoweringOptions())) == (read, written)


def test_rows_and_widths_of_reductions() -> None:
    def sizes(rule: Any, *shapes: Any) -> tuple[float, float]:
        (op,) = rule(call("x", *shapes), LoweringOptions())
        return float(op.sizes["rows"]), float(op.sizes["width"])

    assert sizes(reductions.batch_norm, (IMAGE,), (IMAGE,)) == (128, 16)
    assert sizes(reductions.layer_norm, (IMAGE,), (IMAGE,)) == (256, 8)
    assert sizes(reductions.layer_norm_backward, (IMAGE,), (IMAGE,)) == (256, 8)
    assert sizes(reductions.group_norm, (IMAGE,), (IMAGE, (2.0, 4.0))) == (8, 256)
    assert sizes(reductions.group_norm_backward, (IMAGE, IMAGE, (2.0, 4.0)), (IMAGE,)) == (8, 256)
    assert sizes(reductions.softmax_rule("softmax", 1, axis=1), (IMAGE,), (IMAGE,)) == (128, 16)
    assert sizes(reductions.reduce, (IMAGE,), ((2.0, 16.0),)) == (32, 64)
    assert sizes(reductions.reduce, (IMAGE,), ((16.0,),)) == (128, 16)
    (pooled,) = reductions.reduce(call("mean", (IMAGE,), ((2.0, 16.0, 1.0, 1.0),)), LoweringOptions())
    assert (pooled.kind, pooled.role) == ("pool", "_adaptive_avg_pool2d")


def test_elements_that_set_the_pace_of_pools() -> None:
    small = (2.0, 16.0, 4.0, 4.0)
    for rule, inputs, outputs, elements in (
        (reductions.max_pool, IMAGE, small, PIXELS), (reductions.average_pool, IMAGE, small, PIXELS),
        (reductions.max_pool_backward, small, IMAGE, PIXELS), (reductions.average_pool_backward, small, IMAGE, 2 * PIXELS),
    ):  # fmt: skip
        (op,) = rule(call("x", (inputs,), (outputs,)), LoweringOptions())
        assert op.sizes["elements"] == elements


def test_batch_norm_with_statistics_from_training() -> None:
    plain = reductions.batch_norm(call("x"), LoweringOptions(training=False))
    assert [float(op.write) for op in plain] == [2 * PIXELS, 64.0, 64.0]  # and two kernels over the channels
    assert len(reductions.batch_norm(call("x"), LoweringOptions(training=False, amp=True))) == 1
    (wide,) = reductions.batch_norm(call("x", dtype="float32"), LoweringOptions(training=False))
    assert (wide.role, float(wide.write)) == ("strided", 4 * PIXELS)


def test_kernel_of_each_norm() -> None:
    def role(dtype: str, **settings: Any) -> str:
        return reductions.batch_norm(call("x", dtype=dtype), LoweringOptions(**settings))[0].role

    assert role("float32") == "cudnn"
    assert role("bfloat16") == ""
    assert role("bfloat16", nhwc=False) == "torch_nchw"
    assert role("float16", amp=True, half="fp16") == "cudnn"
    assert role("bfloat16", amp=True) == ""
    assert role("float32", nhwc=False) == "cudnn_nchw"
    assert role("float16", amp=True, half="fp16", nhwc=False) == "cudnn_nchw"
    (rows,) = reductions.batch_norm(call("x", ((32.0, 16.0),), ((32.0, 16.0),), dtype="float32"), LoweringOptions(nhwc=False))
    assert rows.role == "cudnn"  # no images


def test_planes_of_pixels_are_joined_by_copying_them() -> None:
    def joined(nhwc: bool, *shape: float) -> tuple[str, str]:
        (op,) = elementwise.concatenate(call("cat", (shape, shape), (shape,)), LoweringOptions(nhwc=nhwc))
        return op.kind, op.role

    assert joined(True, *IMAGE) == ("transpose", "concat")
    assert joined(False, *IMAGE) == ("copy", "")
    assert joined(False, 2.0, 16.0, 64.0) == ("transpose", "concat")  # tokens


def test_operands_that_do_not_let_a_kernel_be_vectorised() -> None:
    def role(**more: Any) -> tuple[str, float]:
        (op,) = elementwise.elementwise(
            call(**({"name": "add", "inputs": (IMAGE, IMAGE)} | more)), LoweringOptions(amp=more.get("dtype") == "float32")
        )
        return op.role, float(op.read)

    assert role(alike=True) == ("add", 4 * PIXELS)
    assert role(inputs=(IMAGE, (16.0,))) == ("strided", 2 * (PIXELS + 16))
    assert role(inputs=(IMAGE, ())) == ("add", 2 * (PIXELS + 1))
    assert role(alike=True, dtype="float32") == ("strided", 0.75 * 8 * PIXELS)
    assert role(alike=True, dtype="float32", phase="backward") == ("add", 8 * PIXELS)


def test_bytes_possibly_in_l2() -> None:
    def resident(settings: LoweringOptions, **more: Any) -> float:
        (op,) = elementwise.copy_rule("copy")(call(**({"name": "x"} | more)), settings)
        return float(op.sizes["resident"])

    assert resident(LoweringOptions(training=False)) == 1.0
    assert resident(LoweringOptions()) == 0.5
    assert resident(LoweringOptions(), name="x_") == 1.0
    assert resident(LoweringOptions(), grown=(False,)) == 0.0
    assert resident(LoweringOptions(), grown=()) == 0.0


def test_autocast_casts_up_or_down() -> None:
    (widened,) = elementwise.cast(call("to", dtype="float32"), LoweringOptions(amp=True))
    assert (widened.role, sides([widened])) == ("upcast", (2 * PIXELS, 4 * PIXELS))
    (narrowed,) = elementwise.cast(call("to"), LoweringOptions(amp=True))
    assert (narrowed.role, sides([narrowed])) == ("", (4 * PIXELS, 2 * PIXELS))


def test_index_add_sorts_its_indices_first() -> None:
    (op,) = elementwise.index_put(call("index_put", (IMAGE, (4.0, 10.0))), LoweringOptions())
    assert (op.count, op.read, op.write) == (8.0, 80.0, 80.0)
