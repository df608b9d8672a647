"""Edge cases of lowering, each by hand: classes of memory, years, tensors freed twice, heads, MLA latents, stacks."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import linear
from whichgpu.base.figure import Figure
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.allocation_sequence import replay_events
from whichgpu.estimate.allocator import MIB
from whichgpu.estimate.group.group_calibration import NO_CORRECTIONS as UNCORRECTED
from whichgpu.estimate.group.group_calibration import GroupSetting
from whichgpu.estimate.group.layout_memory import LayoutMemory, apply_layout
from whichgpu.estimate.memory.blog2015 import blog_2015
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import build_estimate
from whichgpu.estimate.memory.quantisation import SCHEMES, split_weights
from whichgpu.estimate.remedies import gpus_that_fit
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.fleet_answer import fleet_answer
from whichgpu.estimate.serving.fleet.pools import Fleet, ReplicaPool
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.serving_answer import serving_answer
from whichgpu.estimate.time.lower.eager import reductions
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.training import eager_pass
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.lower.fused.layers import InferencePass, fused_layer
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.estimate.time.lower.live_trace import TRACED_BATCHES, _merge_calls
from whichgpu.estimate.trace.trace_log import TracedOperator
from whichgpu.workload.shapes import Experts, LatentAttention, Mlp, Transformer
from whichgpu.workload.traces.reader import Trace
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
NET = Mlp("net", (8, 4))
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def test_newest_gpu_of_equal_memory_comes_first_in_every_class() -> None:
    def card(name: str, gib: float, year: int) -> Any:
        return replace(GPUS["l4"], id=name, memory_bytes=int(gib * 2**30), launch_date=f"{year}-01-01")

    cards = [card("a", 24, 2020), card("b", 48, 2018), card("c", 48.5, 2023), card("d", 24.2, 2022), card("e", 80, 2019)]
    need = Figure(1e9, 1e9, 1e9, "byte", "modelled")
    order = [gpu.id for gpu in gpus_that_fit(need, Workload("forward", "tiny", precision="bf16"), cards)]
    assert order == ["d", "a", "c", "b", "e"]
    edge = [card("old", 100, 2020), card("same", 103, 2021), card("more", 103.1, 2022)]
    assert [gpu.id for gpu in gpus_that_fit(need, Workload("forward", "tiny", precision="bf16"), edge)] == ["same", "old", "more"]


@pytest.mark.parametrize(("year", "factor"), [(2019, 1.0), (2021, 1.0), (2022, 1.0), (2023, 2.0), (2030, 2.0)])
def test_corrections_of_groups_are_of_the_nearest_year(year: int, factor: float) -> None:
    years = {"vllm/2020": {"latency": 1.0}, "vllm/2025": {"latency": 2.0}}
    calibration = replace(UNCORRECTED, multipliers={"year": years})
    assert calibration.log_multiplier(GroupSetting("vllm", year, "decode", "nvswitch", "nvswitch-4"), "latency") == factor


def test_unknown_or_repeated_frees_are_ignored() -> None:
    events = [(1, 4 * MIB), (9, -1), (1, -1), (1, -1), (2, 8 * MIB), (3, 6 * MIB)]
    replay = replay_events(events, {1: "a", 2: "b", 3: "c"})
    assert replay.peak_allocated == 14 * MIB
    assert replay.peak_event == 5
    assert replay.breakdown == {"b": 8 * MIB, "c": 6 * MIB}
    assert replay_events([(7, -1)]).peak_allocated == 0


def products(shape: Transformer, task: Any = "forward") -> list[float]:
    """Columns of every product."""
    ops = eager_pass(Workload(task, "tiny", precision="bf16", engine="pytorch"), shape, 3.0, 10.0)
    return [float(op.sizes["n"]) for op in ops if op.kind == "gemm"]


def test_models_without_a_head_make_no_logits() -> None:
    assert products(TINY)[-1] == 1000
    assert 1000 not in products(replace(TINY, head=False))
    assert 1000 not in products(replace(TINY, causal=False))  # an encoder ends before them
    assert 1000 in products(replace(TINY, causal=False, encoder_layers=2, encoder_context=7))


def test_a_prompt_expands_its_latents() -> None:
    """Heads of 8 and 4 rotary dimensions, values of 6: all of them are made of a rank of 16 for every key."""
    shape = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))
    kernels = FusedKernels(weight_storage(shape, "bf16", "bf16"), engine_record("vllm").kernels)
    fused_layer(kernels, shape, InferencePass(3.0, 10.0, 10.0, decoding=False))
    (attended,) = [op for op in kernels.ops if op.kind == "attention"]
    assert attended.flops == 2 * 3 * 8 * 50 * (12 + 6)
    assert (attended.sizes["dim"], attended.sizes["kv_heads"]) == (12, 8)
    assert attended.read == 2 * 3 * 10 * 8 * (12 + 12 + 6)
    sizes = [(op.sizes["m"], op.sizes["n"], op.sizes["k"]) for op in kernels.ops if op.kind == "gemm"]
    assert sizes[:3] == [(30, 24 + 20, 64), (30, 96, 24), (30, 8 * 14, 16)]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_rounds_keep_the_gradients_of_those_before(rounds: int) -> None:
    """A layer of weights many times its activations: two rounds hold all gradients throughout, one does not."""
    shape = replace(TINY, hidden=1024, heads=16, kv_heads=16, head_dim=64, ffn=4096, layers=6, vocab=2000)
    workload = Workload("train", "tiny", precision="bf16", seq_in=512, optimizer="sgd", batch=16 * rounds, engine="pytorch")
    exact = apply_layout(workload, Parallel(), 16, rounds, "none")
    lined = LayoutMemory(workload, shape).of(Parallel(), "none", np.array([16.0]), np.array([float(rounds)]))[0]
    assert lined == pytest.approx(estimate_memory(exact, shape).device.value, rel=0.05)


@pytest.mark.parametrize("count", [1, 3, 4, 7, 9, 10])
def test_a_trace_is_repeated_as_often_as_it_takes(count: int) -> None:
    """Three requests a second apart, so that it covers three seconds."""
    trace = Trace("t", array("d", [0.0, 1.0, 2.0]), array("q", [5, 6, 7]), array("q", [1, 2, 3]))
    came = list(Load(trace.rate or 0.0, Lengths(1), Lengths(1), count, trace=trace).arrivals())
    assert [time for time, *_ in came] == pytest.approx([float(place) for place in range(count)])
    assert [prompt for _, prompt, *_ in came] == [5 + place % 3 for place in range(count)]


def test_scales_of_matrices_and_rows() -> None:
    weights = 8 * 64 * 32  # eight experts
    assert SCHEMES["fp8"].size(weights, 64, 8) == weights + 8 * 8
    assert SCHEMES["int8"].size(weights, 64, 8) == weights + 4 * 8 * 32
    assert SCHEMES["nvfp4"].size(weights, 64, 8) == weights * 9 // 16 + 8 * 8
    assert SCHEMES["int4"].size(weights, 64, 8) == weights * 133 // 256
    mixed = replace(TINY, experts=Experts(8, 2, 32))
    assert split_weights(mixed, "fp8").experts == 4 * 3 * (weights + 64)


def test_kernels_that_make_statistics_ready() -> None:
    image = (2.0, 16.0, 8.0, 8.0)
    call = Call("native_batch_norm", "forward", "bfloat16", 1.0, (image,), (image,), grown=(True,))
    normed, *ready = reductions.batch_norm(call, LoweringOptions(training=False))
    assert (normed.role, normed.read, normed.write) == ("batch_norm_inference", 2 * 2048, 2 * 2048)
    assert [(op.unit, op.read, op.write, op.sizes["elements"]) for op in ready] == [("fp32", 64.0, 64.0, 16.0)] * 2


def test_percentiles_with_too_few_requests_are_named() -> None:
    load = Load(10.0, Lengths(50), Lengths(3), 40, burstiness=0.0)  # of which 36 are counted
    like = Figure(1.0, 0.5, 2.0, "s", "modelled")
    (fleet,) = fleet_answer(Fleet((ReplicaPool("one", linear(), 1),)), load, Objectives(), like).warnings
    (alone,) = serving_answer(linear(), load, Objectives(), like, drawn=False).warnings
    for message in (fleet, alone):
        assert (message.id, message.values["n"], message.values["percentiles"]) == ("serving.too-few", 36, ("p90", "p99"))


def test_calls_of_two_batches_are_lines_over_the_batch() -> None:
    """Traced at two batches: what grows has a slope, what does not is a number; equal calls are counted."""

    def run(batch: int) -> list[TracedOperator]:
        relu = TracedOperator("aten.relu.default", ((batch, 16),), ((batch, 16),), "float32", "forward")
        table = TracedOperator("aten.mm.default", ((3 * batch + 5, 8), (8, 4)), ((3 * batch + 5, 4),), "float32", "forward")
        step = TracedOperator("aten.add.Tensor", ((4,),), ((4,),), "float32", "optimizer")
        return [relu, table, relu, step]

    operators = list(_merge_calls([run(batch) for batch in TRACED_BATCHES]))
    assert [(one.name, one.count) for one in operators] == [("aten.relu.default", 2), ("aten.mm.default", 1)]
    assert operators[0].inputs == (((0, 1), (16, 0)),)
    assert (operators[1].inputs, operators[1].outputs) == ((((5, 3), (8, 0)), ((8, 0), (4, 0))), (((5, 3), (4, 0)),))
    alone = list(_merge_calls([run(7)]))
    assert alone[0].outputs == (((7, 0), (16, 0)),)


@pytest.mark.parametrize(
    ("task", "fields", "shape", "expected"),
    [
        ("train", {}, NET, ["right"]),
        ("train", {"precision": "tf32"}, NET, ["right"]),
        ("forward", {}, NET, ["training"]),
        ("train", {"precision": "bf16"}, NET, ["precision"]),
        ("train", {"optimizer": "adamw"}, NET, ["optimizer"]),
        ("forward", {"optimizer": "adamw"}, NET, ["training"]),
        ("train", {}, TINY, ["layers"]),
        ("forward", {"precision": "fp16"}, TINY, ["training", "precision", "layers"]),
    ],
)
def test_limitations_of_the_2015_formula(task: Any, fields: dict[str, Any], shape: Any, expected: list[str]) -> None:
    plain: dict[str, Any] = {"precision": "fp32", "optimizer": "sgd-momentum", "batch": 4}
    workload = Workload(task, "net", **(plain | fields))
    ours = build_estimate({"weights": 3000, "activations": 1000}, (1.0, 1.0), (1.0, 1.0))
    ids = [one.id for one in blog_2015(workload, shape, ours).warnings]
    assert ids == ["warning.blog-2015", *(f"warning.blog-2015-{one}" for one in expected), "warning.blog-2015-overhead"]


def test_the_formula_of_2015_in_parts() -> None:
    """8 x 4 weights of twelve bytes, and twelve units of four samples of twelve bytes too."""
    ours = build_estimate({"weights": 3000}, (1.0, 1.0), (1.0, 1.0))
    estimate = blog_2015(Workload("train", "net", precision="fp32", batch=4, optimizer="sgd-momentum"), NET, ours)
    assert {name: part.value for name, part in estimate.parts.items()} == {
        "weights": 128, "gradients": 128, "optimizer": 128, "activations": 12 * 4 * 12,
    }  # fmt: skip
    assert estimate.allocated.value == 12 * (32 + 48)
    assert estimate.warnings[0].values["share"] == "32"  # of ours
