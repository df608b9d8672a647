"""Single calls of a whole pass; host calls; messages on units a GPU lacks; two computations of one time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import elementwise, toy
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.layout_memory import apply_layout
from whichgpu.estimate.group.layout_times import LayoutStep, LayoutTimes
from whichgpu.estimate.group.step import Devices, evaluate_group, inference_pass, pass_breakdown
from whichgpu.estimate.time.fallbacks import has_fast_unit, precision_warnings, usual_precision
from whichgpu.estimate.time.grid import evaluate_grid, uncorrected_terms
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.eager.call import Call
from whichgpu.estimate.time.lower.eager.torch_fast_path import as_run_on_gpu, short_name
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.estimate.time.lower.host_calls import charge_host_cost, host_call_weight, view_overhead
from whichgpu.estimate.time.lower.layer_kinds import LayerKind, encoder_layers_per_stage, layer_kinds
from whichgpu.estimate.time.operators import LoweredStep, Op, gemm
from whichgpu.estimate.time.terms import BACKWARD_CALL_SECONDS, FORWARD_CALL_SECONDS, TERMS
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Experts, TracedShape, Transformer
from whichgpu.workload.tables import TableOperator
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id
H100 = GPUS["h100-sxm"]
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
IMAGE = ((0, 1), (16, 0), (8, 0), (8, 0))
OTHER = ((0, 1), (32, 0), (8, 0), (8, 0))


def table_operator(
    name: str, outputs: Any = (IMAGE,), inputs: Any = (IMAGE,), phase: str = "forward", count: int = 1
) -> TableOperator:
    return TableOperator(phase, f"aten.{name}", "bfloat16", count, inputs, outputs)


def names(*operators: TableOperator, training: bool = True, amp: bool = False) -> list[str]:
    return [short_name(one) for one in as_run_on_gpu(operators, training, amp)]


def test_a_clone_before_an_operator_in_place_keeps_its_layout() -> None:
    clone = table_operator("clone.default")
    assert names(clone, table_operator("relu_.default")) == ["copy_", "relu_"]
    assert names(clone, table_operator("relu.default")) == ["clone", "relu"]
    assert names(clone, table_operator("relu_.default", (OTHER,))) == ["clone", "relu_"]
    assert names(replace(clone, phase="backward"), table_operator("relu_.default")) == ["clone", "relu_"]
    assert names(clone, table_operator("relu_.default", phase="backward")) == ["clone", "relu_"]


def test_gradients_of_joined_tensors_are_slices() -> None:
    cat, add = table_operator("cat.default", (OTHER,), (IMAGE, IMAGE)), table_operator("add.Tensor", phase="backward")
    assert names(cat, add, table_operator("threshold_backward.default", phase="backward")) == [
        "cat",
        "add_strided",
        "threshold_backward_strided",
    ]
    assert names(cat, replace(add, phase="forward")) == ["cat", "add"]
    assert names(cat, replace(add, outputs=(OTHER,))) == ["cat", "add"]
    vectors = ((0, 1), (16, 0))
    assert names(
        table_operator("cat.default", inputs=(vectors,)), table_operator("add.Tensor", (vectors,), phase="backward")
    ) == ["cat", "add"]


def test_the_gradient_of_a_mean_is_one_value_for_many() -> None:
    assert names(table_operator("div.Scalar", phase="backward")) == ["expanded"]
    assert names(table_operator("div.Scalar")) == ["div"]
    assert names(table_operator("div.Tensor", phase="backward")) == ["div"]


TOKENS, BATCH, HIDDEN = (50, 0), (0, 1), (64, 0)
PACKED = ((3, 0), TOKENS, BATCH, HIDDEN)
ATTENDED = (
    table_operator("clone.default", (PACKED,), (PACKED,)), table_operator("add.Tensor", ((TOKENS, BATCH, (192, 0)),)),
    table_operator("clone.default", ((TOKENS, BATCH, HIDDEN),)), TableOperator("forward", "aten.view.default", "bfloat16", 10),
    table_operator("clone.default"),
)  # fmt: skip


def test_attention_in_evaluation_has_no_transposes() -> None:
    operators = as_run_on_gpu(ATTENDED, training=False, amp=False)
    assert [(short_name(one), one.count) for one in operators] == [("view", 4), ("clone", 1)]
    assert len(as_run_on_gpu(ATTENDED, training=False, amp=True)) == 5  # autocast takes the long way
    few = as_run_on_gpu((ATTENDED[0], replace(ATTENDED[3], count=1)), training=False, amp=False)
    assert [one.count for one in few] == [1]
    for other in (((2, 0), TOKENS, BATCH, HIDDEN), ((3, 0), TOKENS, (1, 0), HIDDEN), ((3, 0), (0, 1), BATCH, HIDDEN)):
        assert len(as_run_on_gpu((table_operator("clone.default", (other,)), *ATTENDED[1:]), training=False, amp=False)) == 5


def test_attention_in_training_leaves_its_result_sequence_first() -> None:
    norm = table_operator("native_layer_norm.default", count=5)
    back = table_operator("native_layer_norm_backward.default", phase="backward", count=5)
    operators = as_run_on_gpu((*ATTENDED, norm, back), training=True, amp=False)
    assert [(short_name(one), one.count, one.phase) for one in operators[5:]] == [
        ("native_layer_norm", 5, "forward"), ("clone", 4, "forward"),
        ("native_layer_norm_backward", 5, "backward"), ("clone", 6, "backward"),
    ]  # fmt: skip
    assert len(as_run_on_gpu((*ATTENDED, replace(norm, count=1)), training=True, amp=False)) == 6
    assert len(as_run_on_gpu((norm, back), training=True, amp=False)) == 2  # another kind of network


def call(name: str, outputs: Any = ((2.0,),), **more: Any) -> Call:
    plain: dict[str, Any] = {"phase": "forward", "dtype": "bfloat16", "count": 1.0}
    return Call(name, outputs=outputs, **(plain | more))


def test_host_cost_depends_on_the_call() -> None:
    assert host_call_weight(call("relu")) == 1.0
    assert host_call_weight(call("view")) == host_call_weight(call("relu", ())) == 0.05
    assert host_call_weight(call("_to_copy")) == 0.6
    assert host_call_weight(call("add", phase="backward")) == host_call_weight(call("add_strided", phase="backward")) == 0.25
    assert host_call_weight(call("add")) == 1.0
    assert host_call_weight(call("mul", phase="backward")) == 1.0
    assert host_call_weight(call("add_", dtype="int64")) == 0.25


def test_view_overhead_counts_with_the_launching_call() -> None:
    calls = [call("relu", count=2.0), call("view", count=20.0), call("_to_copy", count=5.0), call("mm", phase="backward")]
    shares = view_overhead(calls)
    assert shares == {"forward": pytest.approx((2 + 1 + 3) / (2 + 3)), "backward": 1.0}
    first, second = charge_host_cost(
        calls[0], [elementwise(1.0, 2.0, 2.0).times(4.0), elementwise(1.0, 2.0, 2.0)], {"forward": 1.5, "backward": 1.0}
    )
    assert first.calls * first.count == pytest.approx(1.5 * 2)
    assert second.calls == elementwise(1.0, 2.0, 2.0).calls
    assert charge_host_cost(calls[1], [], shares) == []
    assert view_overhead([call("view")]) == {"forward": 1.0, "backward": 1.0}


def precision_warning_ids(precision: str, **peaks: int) -> list[str]:
    gpu = replace(H100, peaks=peaks)
    return [one.id.removeprefix("warning.") for one in precision_warnings(Workload("train", "x", precision=precision), gpu)]


def test_words_about_units_a_gpu_lacks() -> None:
    assert precision_warning_ids("bf16", fp32=10, bf16=10) == []
    assert precision_warning_ids("bf16", fp32=10, bf16=9) == ["emulated"]
    assert precision_warning_ids("bf16", fp32=10, fp16=20) == ["emulated-better"]
    assert precision_warning_ids("amp-bf16", fp32=10, fp16=20) == ["emulated-better"]
    assert precision_warning_ids("fp16", fp32=10, bf16=20) == ["emulated"]
    assert precision_warning_ids("tf32", fp32=10, fp16=20) == ["emulated"]
    assert (
        precision_warning_ids("fp8", fp32=10, fp16=20)
        == precision_warning_ids("int8", fp32=10)
        == precision_warning_ids("nvfp4", fp32=10, fp8=40)
        == ["stored-only"]
    )
    assert precision_warning_ids("fp32", fp32=10) == precision_warning_ids("int4", fp32=10) == []
    assert precision_warning_ids("int8", fp32=10, fp16=20, int8=19) == ["stored-only"]
    assert precision_warning_ids("int8", fp32=10, int8=10) == []


def test_common_precision_instead_of_an_unsupported_default() -> None:
    def usual(precision: str, language: bool = False, **peaks: int) -> str:
        return usual_precision(precision, replace(H100, peaks=peaks), language)

    assert usual("bf16", fp32=10, fp16=20) == "fp16"
    assert usual("bf16", fp32=10) == "fp32"
    assert usual("bf16", language=True, fp32=10) == "bf16"
    assert usual("amp-fp16", fp32=10, bf16=20) == "fp32"
    assert usual("fp8", fp32=10) == "fp8"
    assert usual("bf16") == "bf16"  # nothing is known
    assert not has_fast_unit(replace(H100, peaks={"fp32": 10}), "fp16")


def test_identical_layers_are_counted_by_kind() -> None:
    assert layer_kinds(TINY, Parallel()) == ((LayerKind(0, False), 4),)
    assert layer_kinds(TINY, Parallel(pp=2)) == ((LayerKind(0, False), 2),)
    windowed = replace(TINY, layers=6, window=128)
    assert layer_kinds(windowed, Parallel()) == ((LayerKind(128, False), 6),)
    assert dict(layer_kinds(replace(windowed, global_every=3), Parallel())) == {LayerKind(128, False): 4, LayerKind(0, False): 2}
    mixed = replace(TINY, layers=6, experts=Experts(8, 2, 32, dense_layers=1, every=2))
    assert dict(layer_kinds(mixed, Parallel())) == {LayerKind(0, False): 3, LayerKind(0, True): 3}
    assert encoder_layers_per_stage(replace(TINY, encoder_layers=5), Parallel(pp=2)) == 3


def test_how_matrices_lie_in_memory() -> None:
    fp8 = weight_storage(TINY, "fp8", "bf16")
    linear = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256
    assert fp8.mean == pytest.approx((linear + 7 * 8) / linear)
    assert fp8.weight("ffn_up") == pytest.approx(1 + 8 / (64 * 256))
    assert fp8.weight("ffn_up", "attn_k") == pytest.approx((64 * 256 + 64 * 16 + 16) / (64 * 256 + 64 * 16))
    assert fp8.weight("nothing") == fp8.mean
    assert fp8.head == 2.0
    assert (fp8.quantises_inputs, fp8.weight_only, fp8.width) == (True, False, 2.0)
    int4 = weight_storage(TINY, "int4", "fp16")
    assert (int4.quantises_inputs, int4.weight_only, int4.unit) == (False, True, "fp16")
    plain = weight_storage(TINY, "amp-bf16", "bf16")
    assert (plain.precision, plain.width, plain.weight_only, plain.mean) == ("bf16", 2.0, False, 2.0)
    assert (weight_storage(TINY, "tf32", "bf16").unit, weight_storage(TINY, "tf32", "bf16").width) == ("tf32", 4.0)


def test_terms_of_a_step_by_hand() -> None:
    """Two kernels of a second each on the toy GPU, with calls and gaps in addition; GEMMs slow down as they last."""
    product = gemm(1e4, 1e4, 5e4, "fp16", 2.0)  # 10^13 FLOPs on 10^13 a second
    ops = (product.with_calls(3.0), replace(elementwise(1.0, 2.0, 2.0).times(4.0), phase="backward").with_calls(2.0))
    terms = uncorrected_terms(LoweredStep(ops), toy(), 7.0)
    seconds = {name: float(terms.seconds[place, 0, 0]) for place, name in enumerate(TERMS)}
    once = uncorrected_terms(LoweredStep((product.with_calls(1.0),)), toy())
    assert seconds["gap"] == pytest.approx(5 * float(once.seconds[TERMS.index("gap"), 0, 0]))
    assert (seconds["forward_calls"], seconds["backward_calls"]) == pytest.approx(
        (3 * FORWARD_CALL_SECONDS, 8 * BACKWARD_CALL_SECONDS)
    )
    more = uncorrected_terms(LoweredStep(ops), toy(), 14.0)
    last = len(TERMS) - 1
    assert float(more.seconds[last, 0, 0]) == pytest.approx(2 * seconds[TERMS[last]])
    split = uncorrected_terms(LoweredStep((product.times(4.0),)), toy(), repeats=4)
    long = uncorrected_terms(LoweredStep((product.times(4.0),)), toy())
    assert float(split.seconds[0, 0, 0]) < float(long.seconds[0, 0, 0])  # rounds are not one long product


SMALL = Transformer("small", "llama", 1024, 8, 16, 4, 64, 4096, 32000, True, "rms", "silu", False, True, 0, 4096)
DEVICES = Devices.of([H100], [fabric_of(H100)])


@pytest.mark.parametrize("parallel", [Parallel(), Parallel(tp=2), Parallel(pp=2)], ids=str)
def test_passes_of_tokens_are_the_steps_of_a_server(parallel: Parallel) -> None:
    workload = Workload("serve", "small", precision="bf16", engine="vllm", seq_in=64, seq_out=16, parallel=parallel,
                     gpus=parallel.tp * parallel.pp)  # fmt: skip
    steps = EngineSteps(workload, SMALL, H100, devices=DEVICES)

    def wall(batch: float, tokens: float, context: float | None) -> float:
        return float(
            pass_breakdown(workload, inference_pass(workload, SMALL, DEVICES, batch, tokens, context), DEVICES).wall[0, 0]
        )

    assert wall(4.0, 64.0, None) == pytest.approx(float(steps.prefill(4.0, 64.0)))
    assert wall(4.0, 1.0, 200.0) == pytest.approx(float(steps.decode(4.0, 200.0)))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("gpu", "rounds", "micro"),
    [("h100-sxm", 1, 1), ("h100-sxm", 4, 1), ("h100-sxm", 2, 256), ("l40s", 1, 1), ("l40s", 4, 1)],
)
def test_screened_replicas_equal_evaluated_replicas(gpu: str, zero: int, rounds: int, micro: int) -> None:
    """So little work that the messages show, on links so slow that they outlast it; and the most there is."""
    devices = Devices.of([GPUS[gpu]], [fabric_of(GPUS[gpu])])
    batch = 8 * rounds * micro
    workload = Workload("train", "small", precision="bf16", batch=batch, seq_in=64, engine="ngc", optimizer="adamw", gpus=8)
    parallel = Parallel(dp=8, zero=zero)
    step = LayoutStep(parallel, "none", np.array([float(micro)]), np.array([float(rounds)]))
    seconds = LayoutTimes(workload, SMALL, devices, 8, 1).seconds([step])[0]
    whole = evaluate_group(apply_layout(workload, parallel, micro, rounds, "none"), SMALL, devices).breakdown.wall
    assert seconds[0, 0] == pytest.approx(float(whole[0, 0]), rel=0.01)


def test_data_parallel_replicas_run_the_same_operators() -> None:
    shape = find_model("resnet18", CATALOG)
    assert isinstance(shape, TracedShape)
    workload = Workload("train", "resnet18", precision="fp32", batch=8, optimizer="sgd", parallel=Parallel(dp=2), gpus=2)
    many = np.array([4.0, 8.0])
    plain, copied, spread = (
        lower(replace(workload, parallel=parallel), shape, many).ops
        for parallel in (Parallel(), Parallel(dp=2), Parallel(dp=2, zero=1))
    )
    assert len(plain) == len(copied) == len(spread)

    def stepped(ops: tuple[Op, ...]) -> float:
        return sum(float(op.write * op.count) for op in ops if op.phase == "optimizer")

    assert stepped(plain) == stepped(copied) == pytest.approx(2 * stepped(spread))
    assert evaluate_grid(workload, shape, [H100], many).seconds.wall.shape == (1, 2)
