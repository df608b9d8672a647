"""Traced models lowered to operators: FLOPs and bytes as the framework runs them, forward, backward and step."""

from __future__ import annotations

import numpy as np
import pytest

from whichgpu.estimate.time.lower.traced import lower_traced
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.tables import table_names
from whichgpu.workload.workload import Workload

BATCH = 8
GMACS = {
    "resnet50": 4.09,
    "vgg16": 15.47,
    "densenet121": 2.83,
    "mobilenet_v3_large": 0.217,
    "vit_b_16": 17.56,
    "convnext_tiny": 4.46,
}


def lowered(model: str, task: str = "forward", **options: object) -> tuple[Op, ...]:
    workload = Workload(task, model, **({"precision": "bf16", "batch": BATCH} | options))  # type: ignore[arg-type]
    return lower_traced(workload, TracedShape(model, model, 0)).ops


def flops(ops: tuple[Op, ...], *kinds: str) -> float:
    return sum(float(op.flops * op.count) for op in ops if not kinds or op.kind in kinds)


def moved(ops: tuple[Op, ...], *kinds: str) -> float:
    return sum(float((op.read + op.write) * op.count) for op in ops if not kinds or op.kind in kinds)


@pytest.mark.parametrize(("model", "gmacs"), GMACS.items())
def test_forward_flops_are_two_for_each_published_multiply_and_add(model: str, gmacs: float) -> None:
    """Torchvision states its models' multiply-adds as GFLOPS in the documentation of their weights."""
    assert flops(lowered(model)) / BATCH == pytest.approx(2e9 * gmacs, rel=0.01)


def test_backward_has_twice_the_forward_flops_but_for_the_first_layer_s_input() -> None:
    ops = lowered("resnet50", "train")
    forward = sum(float(op.flops * op.count) for op in ops if op.phase == "forward")
    backward = sum(float(op.flops * op.count) for op in ops if op.phase == "backward")
    first = 2.0 * BATCH * 112 * 112 * 64 * 3 * 49
    assert backward == pytest.approx(2 * forward - first)


def test_every_convolution_has_its_gradients_once() -> None:
    ops = lowered("resnet50", "train")
    count = {kind: sum(float(op.count) for op in ops if op.kind == kind) for kind in ("conv", "conv_dgrad", "conv_wgrad")}
    assert count == {"conv": 53, "conv_dgrad": 52, "conv_wgrad": 53}


def test_batch_normalisation_is_elementwise_without_training() -> None:
    assert not any(op.kind.startswith("batch_norm") for op in lowered("resnet50"))
    assert sum(float(op.count) for op in lowered("resnet50", "train") if op.kind == "batch_norm") == 53


@pytest.mark.long
def test_all_tables_lower_to_known_kinds_with_finite_sizes() -> None:
    for name in table_names():
        for op in lowered(name, "train", precision="amp-bf16"):
            assert op.kind in CLASS_BY_KIND, op
            numbers = [op.flops, op.read, op.write, op.count, op.calls, *op.sizes.values()]
            assert all(np.isfinite(number) and number >= 0 for number in numbers), op


def test_array_of_batches_equals_single_batches() -> None:
    batches = np.array([1.0, 8.0, 96.0])
    for model in ("resnet50", "swin_t"):
        workload = Workload("train", model, precision="amp-bf16")
        together = lower_traced(workload, TracedShape(model, model, 0), batches).ops
        for place, batch in enumerate(batches):
            alone = lower_traced(workload, TracedShape(model, model, 0), float(batch)).ops
            for one, many in zip(alone, together, strict=True):
                for field in ("flops", "read", "write", "count"):
                    assert np.broadcast_to(getattr(many, field), 3)[place] == pytest.approx(getattr(one, field))
                assert all(np.broadcast_to(many.sizes[name], 3)[place] == pytest.approx(size) for name, size in one.sizes.items())
                assert (one.kind, one.unit, one.phase, one.role) == (many.kind, many.unit, many.phase, many.role)


def test_memory_format_is_passed_to_convolutions_only() -> None:
    last, first = (lowered("resnet50", "train", memory_format=name) for name in ("channels_last", "contiguous"))
    assert {op.sizes["nhwc"] for op in last if op.kind == "conv"} == {1.0}
    assert {op.sizes["nhwc"] for op in first if op.kind == "conv"} == {0.0}
    assert flops(last) == flops(first)


def test_mixed_precision_casts_every_weight_once_and_every_gradient_back() -> None:
    mixed, half = (lowered("resnet50", "train", precision=name) for name in ("amp-bf16", "bf16"))
    casts = moved(mixed, "copy") - moved(half, "copy")
    weights = 25.5e6  # of ResNet-50; batch normalisation's are not cast
    images = BATCH * 3 * 224 * 224 * 6
    assert casts == pytest.approx(2 * 6 * weights + images, rel=0.02)


@pytest.mark.parametrize(
    ("precision", "conv", "gemm"),
    [
        ("fp32", "fp32", "fp32"),
        ("tf32", "tf32", "tf32"),
        ("fp32-default", "tf32", "fp32"),
        ("amp-fp16", "fp16", "fp16"),
        ("int8", "int8", "int8"),
    ],
)
def test_the_unit_follows_the_precision(precision: str, conv: str, gemm: str) -> None:
    ops = lowered("vit_b_16", precision=precision)
    assert {op.unit for op in ops if op.kind == "conv"} == {conv}
    assert {op.unit for op in ops if op.kind == "gemm"} == {gemm}


def test_optimizer_moves_its_bytes_a_parameter_and_can_be_left_out() -> None:
    for optimizer, times in (("adamw", 7), ("sgd-momentum", 8), ("sgd", 3)):
        step = [op for op in lowered("resnet50", "train", precision="fp32", optimizer=optimizer) if op.phase == "optimizer"]
        assert moved(tuple(step)) == pytest.approx(times * 4 * 25_557_032)
    assert not [op for op in lowered("resnet50", "train", include_optimizer_step=False) if op.phase == "optimizer"]


def test_captured_graphs_have_the_same_kernels_and_no_calls() -> None:
    eager, graph = lowered("resnet50"), lowered("resnet50", engine="cuda-graphs")
    assert [op.kind for op in eager] == [op.kind for op in graph]
    assert sum(op.calls * float(op.count) for op in eager) > 170
    assert not any(op.calls for op in graph)


def test_engines_that_fuse_run_fewer_kernels_and_move_fewer_bytes_for_the_same_flops() -> None:
    for engine in ("pytorch-compile", "tensorrt"):
        plain, fused = lowered("resnet50"), lowered("resnet50", engine=engine)
        assert flops(fused) == flops(plain)
        assert moved(fused) < 0.75 * moved(plain)
        assert sum(float(op.count) for op in fused) < 0.7 * sum(float(op.count) for op in plain)


def test_a_larger_image_grows_with_its_area_but_for_the_classifier() -> None:
    small, large = lowered("resnet50"), lowered("resnet50", image=448)
    assert flops(large, "conv") == pytest.approx(4 * flops(small, "conv"))
    assert flops(large, "gemm") == flops(small, "gemm")
    assert flops(lowered("vit_b_16", image=448), "attention") == pytest.approx(16 * flops(lowered("vit_b_16"), "attention"))
    workload = Workload("forward", "resnet50", precision="bf16", image=448)
    assert lower_traced(workload, TracedShape("resnet50", "resnet50", 0)).notes


def test_attention_without_gradients_uses_the_fast_path_without_copies() -> None:
    """torch.nn.MultiheadAttention in evaluation: one product, attention, one product."""
    plain = lowered("vit_b_16")
    assert not [op for op in plain if op.kind == "copy" and op.role == "strided"]
    trained = lowered("vit_b_16", "train")
    turned = sum(float(op.count) for op in trained if op.kind == "copy" and op.role == "strided" and op.phase == "forward")
    assert turned == 24 + 24  # two a layer around attention, one before each normalisation but the first


def test_large_conv_groups_run_sequentially() -> None:
    """cuDNN takes groups of up to 32 channels at once; RegNetY-8GF has 56."""
    narrow = [op for op in lowered("resnext50_32x4d") if op.kind == "conv" and op.sizes["groups"] > 1]
    assert {op.sizes["groups"] for op in narrow} == {32.0}
    wide = lowered("regnet_y_8gf")
    assert not [op for op in wide if op.kind == "conv" and op.sizes["groups"] > 1]
    assert flops(wide) / BATCH == pytest.approx(2e9 * 8.47, rel=0.01)


def test_gradients_of_joined_tensors_are_slices() -> None:
    ops = lowered("densenet121", "train")
    assert any(op.role == "strided" and op.phase == "backward" for op in ops)
    assert sum(float(op.count) for op in ops if op.kind == "transpose" and op.role == "concat") == 62


def test_accumulation_repeats_all_but_the_optimizer() -> None:
    once, thrice = (lowered("resnet18", "train", accumulation=times, micro_batch=BATCH) for times in (1, 3))
    assert flops(thrice) == pytest.approx(3 * flops(once))
    assert [op for op in once if op.phase == "optimizer"] == [op for op in thrice if op.phase == "optimizer"]


def test_l2_may_hold_activations_without_gradients_and_never_weights() -> None:
    for op in lowered("resnet50", precision="fp32"):
        assert 0.0 <= float(op.sizes.get("resident", 0.0)) <= 1.0
        assert op.kind != "elementwise" or op.sizes.get("resident", 1.0) == 1.0
    step = lowered("resnet50", "train", precision="amp-bf16")
    gradients = [op for op in step if op.role == "upcast" and op.phase == "backward"]
    assert gradients
    assert all(op.sizes["resident"] == 0.0 for op in gradients)


def test_host_calls_are_one_for_each_operator_and_next_to_none_for_views() -> None:
    ops = lowered("resnet50")
    calls = sum(op.calls * float(op.count) for op in ops)
    assert calls == pytest.approx(53 + 53 + 49 + 16 + 3, abs=4)  # convolutions, normalisations, ReLU, sums, pools and classifier
