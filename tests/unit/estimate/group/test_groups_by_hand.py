"""Groups of GPUs worked out by hand: which layouts are legal, what they say to one another, and what a step is spent on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.estimate.group.breakdown import StepBreakdown, StepParts, combine_parts, stack_parts, straggler_deviations
from whichgpu.estimate.group.collectives import Communicator
from whichgpu.estimate.group.layouts import divides_evenly, legal_layouts
from whichgpu.estimate.group.ranks import pipeline_schedule, spread_experts
from whichgpu.estimate.group.scaling import Scaling, ScalingPoint, _stop
from whichgpu.estimate.group.traffic import (
    Collective,
    communicator_of,
    gradient_bytes,
    gradient_width,
    inference_collectives,
    parameter_tensors,
    step_collectives,
    weight_bytes,
)
from whichgpu.workload.layouts import tensor_share
from whichgpu.workload.shapes import Experts, Mlp, Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Parallel, Workload

TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
MIXED = replace(TINY, experts=Experts(8, 2, 128))
NET = Mlp("mlp:8x4", (8, 4))


def work(task: Task = "train", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "seq_in": 128}
    return Workload(task, "tiny", **(plain | fields))


@pytest.mark.parametrize(
    ("tp", "pp", "cp", "changed", "legal"),
    [
        (8, 1, 1, {}, True),
        (3, 1, 1, {}, False),
        (8, 1, 1, {"ffn": 252}, False),
        (4, 1, 1, {"kv_heads": 8}, True),
        (4, 1, 1, {"kv_heads": 3, "heads": 12}, False),
        (2, 1, 1, {"kv_heads": 0}, True),
        (1, 4, 1, {}, True),
        (1, 5, 1, {}, False),
        (1, 2, 1, {"encoder_layers": 4}, False),
        (1, 1, 1, {"encoder_layers": 4}, True),
        (1, 1, 4, {}, True),
        (1, 1, 3, {}, False),
        (1, 1, 4, {"causal": False}, False),
    ],
)
def test_degrees_that_divide_a_model_evenly(tp: int, pp: int, cp: int, changed: dict[str, Any], legal: bool) -> None:
    assert divides_evenly(work(), replace(TINY, **changed), tp, pp, cp) is legal
    assert divides_evenly(work("serve"), replace(TINY, **changed), tp, pp, cp) is (legal and cp == 1)


def test_all_layouts_of_two_gpus() -> None:
    parallels = list(legal_layouts(work(), TINY, 2))
    assert parallels == [
        *(Parallel(dp=2, zero=zero) for zero in (0, 1, 2, 3)),
        Parallel(cp=2),
        Parallel(tp=2, sp=True),
        Parallel(pp=2),
        Parallel(pp=2, chunks=2),
    ]
    assert list(legal_layouts(work("serve"), TINY, 2)) == [Parallel(dp=2), Parallel(tp=2), Parallel(pp=2)]
    assert list(legal_layouts(work(), TINY, 1)) == [Parallel()]
    assert list(legal_layouts(work("forward"), NET, 4)) == [Parallel(dp=4)]
    assert list(legal_layouts(work(), NET, 1)) == [Parallel()]


def test_tensor_ranks_stay_in_a_node_and_stages_pay_for_little_zero() -> None:
    assert max(layout.tp for layout in legal_layouts(work(), TINY, 8, 2)) == 4
    assert max(layout.tp for layout in legal_layouts(work(), TINY, 8, 1)) == 8
    staged = {layout.zero for layout in legal_layouts(work(), TINY, 8) if layout.pp > 1 and layout.dp > 1}
    assert staged == {0, 1}
    assert {layout.chunks for layout in legal_layouts(work(), TINY, 2) if layout.pp == 2} == {1, 2}
    assert {layout.chunks for layout in legal_layouts(work(), replace(TINY, layers=8), 2) if layout.pp == 2} == {1, 2, 4}


def test_experts_are_sharded_over_data_parallel_in_training_and_all_ranks_in_inference() -> None:
    assert {layout.ep for layout in legal_layouts(work(), MIXED, 4) if layout.dp == 4} == {1, 2, 4}
    assert {layout.ep for layout in legal_layouts(work(), MIXED, 4) if layout.tp == 4} == {1}
    assert {layout.ep for layout in legal_layouts(work("serve"), MIXED, 4) if layout.tp == 4} == {1, 2, 4}
    odd = replace(TINY, experts=Experts(6, 2, 128))
    assert {layout.ep for layout in legal_layouts(work(), odd, 4) if layout.dp == 4} == {1, 2}


@pytest.mark.parametrize(
    ("layout", "axis", "gpus", "nodes", "domain", "expected"),
    [
        (Parallel(tp=2, cp=2, dp=4), "cp", 16, 2, 16, Communicator(2, 2)),
        (Parallel(tp=2, cp=2, dp=4), "dp", 16, 2, 16, Communicator(4, 2)),
        (Parallel(tp=2, dp=8, ep=4), "ep", 16, 2, 16, Communicator(4, 4)),
        (Parallel(tp=2, dp=4, pp=2), "pp", 16, 2, 16, Communicator(2, 1)),
        (Parallel(tp=2, dp=2, pp=2), "pp", 16, 2, 16, Communicator(2, 2)),
        (Parallel(dp=16), "dp", 16, 1, 8, Communicator(16, 8)),
        (Parallel(dp=1), "pp", 1, 1, 8, Communicator(1, 1)),
        (Parallel(dp=2), "dp", 2, 4, 8, Communicator(2, 1)),
    ],
)  # fmt: skip
def test_communicator_of_each_parallel_axis(
    layout: Parallel, axis: Any, gpus: int, nodes: int, domain: int, expected: Communicator
) -> None:
    assert communicator_of(layout, axis, gpus, nodes, domain) == expected


STREAM = 3 * 128 * 64 * 2.0  # three sequences of 128 tokens, 64 numbers of two bytes


def collective_set(workload: Workload, shape: Any = TINY, batch: float = 3.0) -> set[tuple[Any, ...]]:
    return {
        (one.kind, one.axis, float(one.size), float(one.count), one.overlap) for one in step_collectives(workload, shape, batch)
    }


def test_tensor_ranks_of_a_forward_pass() -> None:
    """Two sums a layer and one of the embedding; the logits of each sequence's last token."""
    assert collective_set(work("prefill", parallel=Parallel(tp=2))) == {
        ("all_reduce", "tp", STREAM, 8.0, ""), ("all_reduce", "tp", STREAM, 1.0, ""), ("all_gather", "tp", 6000.0, 1.0, ""),
    }  # fmt: skip
    token = STREAM / 128
    assert collective_set(work("decode", parallel=Parallel(tp=2))) == {
        ("all_reduce", "tp", token, 8.0, ""), ("all_reduce", "tp", token, 1.0, ""), ("all_gather", "tp", 6000.0, 1.0, ""),
    }  # fmt: skip
    wide = collective_set(
        work("prefill", parallel=Parallel(tp=2), precision="fp32"), replace(TINY, head=False, parallel_block=True)
    )
    assert wide == {("all_reduce", "tp", 2 * STREAM, 4.0, ""), ("all_reduce", "tp", 2 * STREAM, 1.0, "")}
    both = collective_set(work("prefill", parallel=Parallel(tp=2)), replace(TINY, head=False, encoder_layers=4))
    assert both == {("all_reduce", "tp", STREAM, 4 * 3 + 8.0, ""), ("all_reduce", "tp", STREAM, 1.0, "")}
    encoder = collective_set(work("serve", parallel=Parallel(tp=2)), replace(TINY, head=False, causal=False))
    assert ("all_reduce", "tp", STREAM, 8.0, "") in encoder


def test_tensor_ranks_in_training() -> None:
    plain = collective_set(work(parallel=Parallel(tp=2), accumulation=5))
    assert plain == {("all_reduce", "tp", STREAM, 8 * 2 * 5.0, ""), ("all_reduce", "tp", STREAM, 10.0, "")}
    again = collective_set(work(parallel=Parallel(tp=2, sp=True), checkpointing="full"))
    assert again == {
        ("all_gather", "tp", STREAM, 24.0, ""), ("reduce_scatter", "tp", STREAM, 24.0, ""), ("all_reduce", "tp", STREAM, 3.0, ""),
    }  # fmt: skip


def test_stages_context_and_experts() -> None:
    assert collective_set(work(parallel=Parallel(pp=2), accumulation=5)) == {("send", "pp", STREAM, 10.0, "")}
    assert collective_set(work("prefill", parallel=Parallel(pp=2))) == {("send", "pp", STREAM, 1.0, "")}
    cut = [one for one in step_collectives(work(parallel=Parallel(tp=2, pp=2, sp=True)), TINY, 3.0) if one.axis == "pp"]
    assert [(one.size, one.count) for one in cut] == [(STREAM / 2, 2.0)]
    keys = 2 * 3 * 32 * 2 * 8 * 2.0
    assert collective_set(work(parallel=Parallel(cp=4))) == {("send", "cp", keys, 4 * 3 * 3.0, "attention")}
    exchanged = [one for one in step_collectives(work(parallel=Parallel(dp=2, ep=2)), MIXED, 3.0) if one.axis == "ep"]
    assert [(one.kind, one.size, one.count) for one in exchanged] == [("all_to_all", 2 * STREAM, 4 * 2.0)] * 2
    half = replace(MIXED, experts=Experts(8, 2, 128, every=2))
    fewer = [one for one in step_collectives(work(parallel=Parallel(dp=2, ep=2)), half, 3.0) if one.axis == "ep"]
    assert [one.count for one in fewer] == [2 * 2.0] * 2
    (handed,) = inference_collectives(work("prefill", parallel=Parallel(pp=2)), TINY, 3.0, 10.0)
    assert (handed.size, handed.count) == (3 * 10 * 64 * 2.0, 1.0)


BIG = Mlp("mlp", (5000, 5000, 1000))
PARAMETERS = 5000 * 5000 + 5000 + 5000 * 1000 + 1000


def test_data_parallel_reduces_gradients_in_buckets() -> None:
    buckets = PARAMETERS * 4 / 25e6
    fp32 = work(precision="fp32", parallel=Parallel(dp=2), accumulation=3)
    (one,) = step_collectives(fp32, BIG, 1.0)  # once, however many micro-steps there are
    assert (one.kind, one.axis, one.overlap) == ("all_reduce", "dp", "backward")
    assert (one.size, one.count) == pytest.approx((25e6, buckets))
    (small,) = step_collectives(work(precision="fp32", parallel=Parallel(dp=2)), NET, 1.0)
    assert (small.size, small.count) == (36 * 4.0, 1.0)  # less than a bucket


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (1, [("reduce_scatter", 1.0, "backward"), ("all_gather", 1.0, "")]),
        (2, [("reduce_scatter", 3.0, "backward"), ("all_gather", 1.0, "")]),
        (3, [("reduce_scatter", 3.0, "backward"), ("all_gather", 3.0, "forward"), ("all_gather", 3.0, "backward")]),
    ],
)
def test_zero_scatters_and_gathers(zero: int, expected: list[tuple[str, float, str]]) -> None:
    collectives = step_collectives(work(precision="fp32", parallel=Parallel(dp=2, zero=zero), accumulation=3), BIG, 1.0)
    assert [(one.kind, one.overlap) for one in collectives] == [(kind, hidden) for kind, _, hidden in expected]
    times = [one.size * one.count / (PARAMETERS * 4) for one in collectives]
    assert times == pytest.approx([each for _, each, _ in expected])


def test_weights_are_gathered_layer_by_layer() -> None:
    collectives = [one for one in step_collectives(work(parallel=Parallel(dp=2, zero=3)), TINY, 1.0) if one.overlap == "forward"]
    assert [one.count for one in collectives] == [5.0]
    assert collectives[0].size == pytest.approx(weight_bytes(work(), TINY) / 5)


def test_weights_of_one_rank() -> None:
    """Stages have a share of all, tensor ranks one of the matrices; autocast keeps fp32, and its gradients too."""
    whole = weight_bytes(work(), TINY)
    assert weight_bytes(work(parallel=Parallel(pp=2)), TINY) == whole / 2
    assert weight_bytes(work(precision="amp-bf16"), TINY) == 2 * whole
    assert weight_bytes(work(precision="fp32"), BIG) == PARAMETERS * 4
    assert gradient_bytes(work(), TINY) == (whole, 0.0)
    assert gradient_bytes(work(lora_rank=4), TINY)[0] == 2 * 4 * 4 * (2 * 128 + 2 * 80 + 3 * 320)
    assert parameter_tensors(work(), TINY) == 4 * 9 + 3
    cut = weight_bytes(work(parallel=Parallel(tp=2)), TINY)
    assert whole / 2 < cut < 0.52 * whole


def test_experts_of_one_rank_are_on_no_other_rank() -> None:
    alone = [one for one in step_collectives(work(parallel=Parallel(dp=2, ep=2)), MIXED, 1.0) if one.axis == "dp"]
    whole, experts = gradient_bytes(work(parallel=Parallel(dp=2, ep=2)), MIXED)
    assert [one.size * one.count for one in alone] == [pytest.approx(whole - experts)]
    shared = [one for one in step_collectives(work(parallel=Parallel(dp=4, ep=2)), MIXED, 1.0) if one.axis == "dp"]
    assert sum(one.size * one.count for one in shared) == pytest.approx(whole)
    assert len(shared) == 2
    assert gradient_bytes(work(parallel=Parallel(dp=2)), MIXED)[1] == 0.0


def test_threaded_data_parallel_broadcasts_weights_and_gathers_gradients() -> None:
    threads = Parallel(dp=4, threads=True)
    collectives = step_collectives(work(precision="fp32", parallel=threads, accumulation=3), NET, 1.0)
    assert collectives == [Collective("broadcast", "dp", 36 * 4.0, 3.0)] * 2
    assert step_collectives(work("forward", precision="fp32", parallel=threads), NET, 1.0) == [
        Collective("broadcast", "dp", 36 * 4.0, 1.0)
    ]
    assert parameter_tensors(work(), NET) == 2.0
    assert parameter_tensors(work(), BIG) == 4.0


def test_widths_on_the_wire() -> None:
    assert gradient_width(work(precision="amp-bf16")) == 4.0
    assert gradient_width(work(precision="amp-fp16", engine="ngc")) == 2.0
    assert gradient_width(work(precision="bf16", engine="ngc")) == 2.0
    assert gradient_width(work(precision="fp32", engine="ngc")) == 4.0


def test_pipelines_wait_for_their_first_and_last_stage() -> None:
    assert pipeline_schedule(work(parallel=Parallel(dp=2)), 8.0) == (8.0, 1.0)
    assert pipeline_schedule(work(parallel=Parallel(pp=4), accumulation=8), 8.0) == (8.0, 11 / 8)
    assert pipeline_schedule(work(parallel=Parallel(pp=4, chunks=3), accumulation=8), 8.0) == (8.0, 9 / 8)
    for task, batch, part, turns in (
        ("prefill", 8.0, 2.0, 7.0),
        ("decode", 8.0, 2.0, 4.0),
        ("prefill", 2.0, 1.0, 5.0),
        ("prefill", 0.5, 0.5, 4.0),
    ):
        schedule = pipeline_schedule(work(task, parallel=Parallel(pp=4)), batch)  # type: ignore[arg-type]
        assert (float(schedule[0]), float(schedule[1])) == (part, turns)


def test_inference_spreads_whole_experts_over_ranks() -> None:
    parallel = Parallel(tp=4, ep=4)
    spread = tensor_share(spread_experts(work("serve", parallel=parallel), MIXED), replace(parallel, ep=1)).experts
    assert spread is not None
    assert (spread.count, spread.per_rank, spread.token_groups, spread.ffn) == (8, 2, 1, 128)
    assert spread_experts(work(parallel=Parallel(dp=4, ep=4)), MIXED) is MIXED
    assert spread_experts(work("serve", parallel=Parallel(tp=4)), MIXED) is MIXED


@pytest.mark.parametrize(
    ("layout", "exchanges"),
    [
        (Parallel(tp=4, ep=4), []),
        (Parallel(tp=4, ep=2), []),
        (Parallel(dp=2, tp=2, ep=2), []),
        (Parallel(dp=2, tp=2, ep=4), [(2, 0.5)] * 2),
        (Parallel(dp=4, ep=4), [(4, 1.0)] * 2),
    ],
)  # fmt: skip
def test_only_data_parallel_groups_exchange_tokens_with_experts(layout: Parallel, exchanges: list[tuple[int, float]]) -> None:
    """Tensor ranks hold the same tokens: their all-reduce adds up the experts' outputs; groups dispatch and combine."""
    collectives = [one for one in step_collectives(work("decode", parallel=layout), MIXED, 3.0) if one.axis == "ep"]
    routed = 3.0 * 2 * MIXED.hidden * 2.0  # sequences x active experts x hidden x bytes
    assert [(one.ranks, float(one.size) / routed) for one in collectives] == exchanges


NAMES = list(StepParts.__struct_fields__)
ONE = dict.fromkeys(("latency", "volume", "beside", "straggle", "threads", "launch", "step", "copies"), 1.0)


def step(factors: dict[str, float] | None = None, **seconds: float) -> StepBreakdown:
    plain = dict.fromkeys(NAMES, 0.0) | {"ranks": 1.0, "synchronised": 1.0, "pipeline": 1.0, "threads": 1.0} | seconds
    return combine_parts(StepParts(**{name: np.array([[value]]) for name, value in plain.items()}), ONE | (factors or {}))


def number(breakdown: StepBreakdown, name: str = "wall") -> float:
    return float(getattr(breakdown, name)[0, 0])


def test_one_gpu_alone_works() -> None:
    assert number(step(device=2.0, once=0.5)) == 2.5
    assert number(step(device=2.0), "work") == 2.0


def test_messages_are_waited_for_or_hidden_behind_work() -> None:
    opened = step(device=2.0, exposed_latency=0.25, exposed_volume=0.5)
    assert number(opened) == 2.75
    assert number(opened, "communication") == 0.75
    beside = step({"beside": 0.0}, device=3.0, backward=2.0, backward_volume=1.0)
    assert number(beside) == 3.0
    assert number(beside, "hidden") == 1.0
    long = step({"beside": 0.0}, device=3.0, backward=2.0, backward_volume=5.0)
    assert number(long) == pytest.approx(3.0 + 5.0 - 1.8)  # nine tenths of the pass
    tail = step({"beside": 0.0}, device=3.0, backward=2.0, backward_volume=1.0, backward_tail=0.4)
    assert number(tail) == pytest.approx(3.4)
    for name in ("forward", "attention"):
        breakdown = step({"beside": 0.0}, device=3.0, **{name: 1.0, f"{name}_latency": 0.5, f"{name}_volume": 1.0})
        assert number(breakdown) == pytest.approx(3.0 + 1.5 - 0.9)
    scaled = step({"latency": 2.0, "volume": 3.0}, device=1.0, exposed_latency=0.1, exposed_volume=0.1)
    assert number(scaled) == pytest.approx(1.5)


def test_pipeline_bubble_scales_the_step_and_ranks_wait_for_the_slowest() -> None:
    assert number(step(device=2.0, pipeline=1.5)) == 3.0
    assert number(step(device=2.0, pipeline=1.5), "bubble") == 1.0
    eight = step(device=2.0, ranks=8.0, synchronised=8.0)
    assert number(eight) == pytest.approx(2.0 + 0.015 * float(straggler_deviations(np.array(8.0))) * 2.0 + 1e-4)
    assert number(eight, "waiting") == pytest.approx(number(eight) - 2.0)


def test_threads_of_one_process_wait_for_the_interpreter() -> None:
    """Forward calls wait for all other replicas, a fifth of the rest does."""
    breakdown = step(calls=1.0, forward_calls=0.5, threads=4.0, device=1e-9)
    assert number(breakdown, "host") == pytest.approx(1.0 + (0.5 + 0.2 * 0.5) * 3)
    copied = step(device=1.0, copied_tensors=100.0)
    assert number(copied) == pytest.approx(1.0 + 100 * 90e-6)
    assert number(step(device=1.0, threads=2.0, synchronised=2.0)) == pytest.approx(1.0 + 1e-4)


def test_step_breakdown_adds_up() -> None:
    breakdown = step(
        device=2.0, ranks=4.0, pipeline=1.2, exposed_volume=0.3, backward=1.0, backward_volume=0.5, calls=0.2, once=0.1
    )
    parts = sum(number(breakdown, name) for name in ("work", "communication", "bubble", "waiting"))
    assert number(breakdown) == pytest.approx(parts)


def test_single_steps_stack() -> None:
    one = StepParts(**{name: np.array([[float(place)]]) for place, name in enumerate(NAMES)})
    both = stack_parts([one, one])
    assert [getattr(both, name).tolist() for name in NAMES] == [[float(place)] * 2 for place in range(len(NAMES))]


def test_a_doubling_must_bring_forty_percent() -> None:
    def points(*speeds: float) -> list[ScalingPoint]:
        return [ScalingPoint(2**place, 1.0, speed, speed / 2**place) for place, speed in enumerate(speeds)]

    assert _stop(points(1.0, 1.9, 3.0)) is None
    assert _stop(points(1.0, 1.4, 1.96)) is None
    assert _stop(points(1.0, 1.39, 4.0)) == 1
    assert _stop(points(1.0, 1.9, 2.6)) == 2
    assert _stop([ScalingPoint(1, 1.0, 1.0, 1.0), ScalingPoint(8, 1.0, 5.5, 0.7)]) == 1  # three doublings at once
    scales = Scaling("tp", tuple(points(1.0, 1.9)), None).message
    assert (scales.id, scales.values["gpus"]) == ("group.scales", 2)
    stops = Scaling("tp", tuple(points(1.0, 1.9, 2.0)), 2).message
    assert (stops.id, stops.values["gpus"], stops.values["speed"]) == ("group.stops", 2, "1.9")
