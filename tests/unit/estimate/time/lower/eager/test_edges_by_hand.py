"""Edge cases of the estimates: each a number or a kernel computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import NEUTRAL, number, stack, toy
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.layout_search import MAX_COUNTED, MAX_TIMED, screen_layouts, time_best_layouts
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.estimate.memory.training.transformer import transformer_parts
from whichgpu.estimate.time.curves import gemm as product_curve
from whichgpu.estimate.time.curves import memory as memory_curve
from whichgpu.estimate.time.lower.eager import elementwise, reductions
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.eager.moe import _gated_activation
from whichgpu.estimate.time.lower.eager.optimizer import accumulation_op, optimizer_ops
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Op, gemm
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import LatentAttention, TracedShape, Transformer
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def test_latents_in_pytorch() -> None:
    """Queries through a rank of 24, keys and values through one of 16 with 4 rotary dimensions."""
    shape = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))
    write = KernelWriter(numerics("bf16"))
    eager_layer(write, shape, LayerPass(3.0, 10.0))
    ops = [op for op in write.ops if op.kind == "gemm" and op.phase == "forward"]
    products = [(float(op.sizes["n"]), float(op.sizes["k"])) for op in ops]
    assert products[:5] == [(24, 64), (96, 24), (20, 64), (112, 16), (64, 48)]
    attended = next(op for op in write.ops if op.kind == "attention")
    assert attended.flops == 2 * 3 * 8 * 50 * (12 + 6)
    direct = KernelWriter(numerics("bf16"))
    eager_layer(direct, replace(shape, mla=LatentAttention(16, 0, 8, 4, 6)), LayerPass(3.0, 10.0))
    assert next(float(op.sizes["n"]) for op in direct.ops if op.kind == "gemm") == 96


def test_softmax_of_a_very_large_vocabulary_is_one_kernel() -> None:
    for width, passes in ((16383.0, 2), (16384.0, 1), (128256.0, 1)):
        op = Op("softmax_backward", "fp32", 0.0, 1e9, 1e9, {"width": width})
        assert number(memory_curve.seconds(stack(op), toy(), NEUTRAL)) == pytest.approx(passes * 2e-3, rel=1e-3)


def test_bandwidth_share_of_small_batched_gemms_grows_to_that_of_large_ones() -> None:
    ops = [gemm(64.0, 64.0, 8.0, "fp16", 2.0, batch=1e5), gemm(160.0, 64.0, 8.0, "fp16", 2.0, batch=1e5)]
    quick = toy(sustained_rates={"fp16": 1e18}, sm_rates={"fp16": 1e17})
    seconds = product_curve.seconds(
        stack(*ops), quick, NEUTRAL | {"gemm.bandwidth_share.small_batched": 0.2, "gemm.bandwidth_share": 0.6}
    )[0, 1, 0]
    assert seconds == pytest.approx(float(ops[1].read + ops[1].write) / (0.4 * 1e12), rel=1e-3)


def test_weights_are_never_in_the_cache_when_a_step_is_made() -> None:
    (step,) = optimizer_ops(Workload("train", "", optimizer="adamw"), 1000.0, 10.0, 4.0)
    assert step.sizes == {"elements": 1000.0, "resident": 0.0}
    assert accumulation_op(1000.0, 10.0, 4.0).sizes == {"elements": 100.0, "resident": 0.0}


def test_of_rows_added_at_places_the_last_operand_counts() -> None:
    call = Call("index_put", "forward", "bfloat16", 1.0, ((9.0, 9.0), (4.0,), (4.0, 10.0)), ((9.0, 9.0),), grown=(True,))
    (op,) = elementwise.index_put(call, LoweringOptions())
    assert (op.read, op.write, op.sizes["elements"]) == (80.0, 80.0, 40.0)


def test_row_length_is_the_last_dimension_by_default() -> None:
    call = Call("softmax", "forward", "bfloat16", 1.0, ((6.0, 5.0, 7.0),), ((6.0, 5.0, 7.0),), grown=(True,))
    (op,) = reductions.softmax_rule("softmax", 1)(call, LoweringOptions())
    assert (op.sizes["rows"], op.sizes["width"]) == (30.0, 7.0)


def test_gated_expert_activation_has_a_gradient_for_gate_and_up() -> None:
    write = KernelWriter(numerics("bf16"))
    _gated_activation(write, TINY, MatrixSizes(60.0, 32.0, 2.0))
    back = [(float(op.read), float(op.write)) for op in write.ops if op.phase == "backward"]
    size = 60 * 32 * 2.0
    assert back == [(2 * size, size), (2 * size, size), (2 * size, size), (2 * size, 2 * size)]
    plain = KernelWriter(numerics("bf16"))
    _gated_activation(plain, replace(TINY, gated=False), MatrixSizes(60.0, 32.0, 2.0))
    assert len(plain.ops) == 2


def test_scaling_to_a_smaller_image_is_noted_too() -> None:
    shape = find_model("resnet50", CATALOG)
    assert isinstance(shape, TracedShape)
    for image, warnings in ((100, ["warning.image-scaled"]), (224, []), (320, ["warning.image-scaled"])):
        workload = Workload("train", "resnet50", precision="fp32", batch=2, optimizer="sgd", image=image)
        assert [one.id for one in traced_memory(workload, shape, None).warnings] == warnings


def parts(**fields: Any) -> dict[str, int]:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 2, "seq_in": 64, "optimizer": "adamw", "engine": "pytorch"}
    return transformer_parts(Workload("train", "tiny", **(plain | fields)), replace(TINY, hidden=1024, ffn=4096, layers=8))[0]


def test_zero_divides_states_and_gathers_weights_at_stage_3() -> None:
    whole = parts()
    shared = {zero: parts(gpus=4, parallel=Parallel(dp=4, zero=zero), batch=8) for zero in (1, 2, 3)}
    for zero, sizes in shared.items():
        assert sizes["optimizer"] == pytest.approx(whole["optimizer"] / 4, rel=0.02)
        assert sizes["weights"] == pytest.approx(whole["weights"] / (4 if zero == 3 else 1), rel=0.02)
    assert shared[3]["temporary"] > shared[2]["temporary"] > 0  # a layer's weights while it runs
    tied = transformer_parts(
        Workload("train", "t", precision="bf16", batch=2, seq_in=64, optimizer="sgd", engine="pytorch"), replace(TINY, tied=True)
    )[0]
    assert tied["weights"] < parts()["weights"]


def test_a_few_of_the_best_are_settled() -> None:
    shape = Transformer("small", "llama", 1024, 8, 16, 4, 64, 4096, 32000, True, "rms", "silu", False, True, 0, 32768)
    devices = Devices.of([GPUS["h100-sxm"]], [fabric_of(GPUS["h100-sxm"])])
    workload = Workload("train", "small", precision="bf16", batch=16, seq_in=512, engine="pytorch", optimizer="adamw", gpus=4)
    layouts = screen_layouts(workload, shape, devices, 4)
    assert {one.parallel.cp for one in layouts.candidates} == {1}  # short sequences are not cut
    assert (MAX_TIMED, MAX_COUNTED) == (4, 16)
    settled = time_best_layouts(workload, shape, devices, layouts, 0)
    assert len(settled) == MAX_TIMED
    assert [one.seconds for one in settled] == sorted(one.seconds for one in settled)
    long = screen_layouts(replace(workload, seq_in=16384, batch=4), shape, devices, 4)
    assert {one.parallel.cp for one in long.candidates} >= {1, 2}
    assert np.isfinite(layouts.seconds).any()
