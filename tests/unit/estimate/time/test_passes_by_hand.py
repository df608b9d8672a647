"""Passes on groups, products of traced networks, backward passes and ranges: what each is made of."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import NEUTRAL, elementwise, toy
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.collectives import Communicator, collective_cost
from whichgpu.estimate.group.engine_steps import EngineSteps, _with_cached_context
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.host_launches import framework_calls, lacks_cuda_graphs, worker_dispatch_seconds
from whichgpu.estimate.group.step import Devices, _overlapped_rounds, _synchronised_processes, _waiting_ranks, collective_seconds
from whichgpu.estimate.group.traffic import Collective
from whichgpu.estimate.memory.quantisation import layer_matrices
from whichgpu.estimate.memory.training.allocation_log import AllocationLog
from whichgpu.estimate.memory.training.operators import WIDTHS, OperatorWriter
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock
from whichgpu.estimate.memory.training.transformer import transformer_parts
from whichgpu.estimate.time.curves import evaluate
from whichgpu.estimate.time.curves.evaluate import floor_totals, operator_seconds, operator_totals, roofline_seconds
from whichgpu.estimate.time.curves.floors import floor_seconds
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.curves.stack import stack_operators
from whichgpu.estimate.time.curves.tiles import CONV_TILES, LARGEST_TILE_INTENSITY, SIMT_TILES, TENSOR_TILES
from whichgpu.estimate.time.lower.eager import gemm as traced
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.traced_model import PreparedOperator, _has_pixels
from whichgpu.estimate.time.operators import LoweredStep, Op, gemm
from whichgpu.estimate.time.step_confidence import step_confidence
from whichgpu.estimate.time.time_estimate import estimate_time
from whichgpu.workload.shapes import Experts, Transformer
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id
H100 = GPUS["h100-sxm"]
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def workload_of(task: Any = "decode", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "engine": "vllm", "batch": 4, "seq_in": 64, "seq_out": 16}
    return Workload(task, "tiny", **(plain | fields))


def test_new_tokens_see_those_in_the_cache_too() -> None:
    causal = Op("attention", "bf16", 100.0, 60.0, 20.0, {"keys": 8.0, "causal": 1.0})
    op = _with_cached_context(causal, np.array([8.0]), np.array([16.0]))
    assert (op.flops[0], op.read[0], op.write, op.sizes["keys"][0]) == (500.0, 180.0, 20.0, 24.0)  # type: ignore[index]
    plain = _with_cached_context(replace(causal, sizes={"keys": 8.0}), np.array([8.0]), np.array([16.0]))
    assert plain.flops[0] == 300.0  # type: ignore[index]
    assert _with_cached_context(causal, np.array([8.0]), np.array([0.0])) is causal
    other = Op("gemm", "bf16")
    assert _with_cached_context(other, np.array([8.0]), np.array([16.0])) is other


def test_steps_of_one_replica_agree() -> None:
    steps = EngineSteps(workload_of(), TINY, H100)
    alone = float(steps.mixed(64.0, 0.0, 0.0, 1.0))
    assert alone == pytest.approx(float(steps.prefill(1.0, 64.0)), rel=0.02)
    both = steps.mixed(64.0, 0.0, np.array([1.0, 8.0]), 32.0)
    assert both.shape == (2,)
    assert float(both[1]) > float(both[0]) > alone
    assert float(steps.prefill(1.0, 64.0, 4096.0)) > float(steps.prefill(1.0, 64.0))
    grid = steps.decode(np.array([[1.0], [64.0]]), np.array([[16.0, 4000.0]]))
    assert grid.shape == (2, 2)
    assert float(grid[1, 1]) == pytest.approx(float(steps.decode(64.0, 4000.0)))


def test_calls_of_engines_before_they_captured_graphs() -> None:
    assert lacks_cuda_graphs(workload_of(year=2023))
    assert not lacks_cuda_graphs(workload_of(year=2024))
    assert not lacks_cuda_graphs(workload_of())
    assert not lacks_cuda_graphs(workload_of(year=2023, engine="sglang"))
    lowered = LoweredStep((Op("gemm", "bf16", count=10.0), Op("attention", "bf16", count=4.0)))
    collectives = [Collective("all_reduce", "tp", 1.0, 8.0)]
    beside = 4 * (2.0 + 15 * 0.05)
    assert framework_calls(workload_of(), TINY, lowered, collectives)[0] == pytest.approx(14 + 8 + 4 * 3 + beside)
    assert framework_calls(workload_of(), replace(TINY, kv_heads=8), lowered, collectives)[0] == pytest.approx(
        14 + 8 + 4 + beside
    )
    biased = replace(TINY, out_bias=True, mlp_bias=True)
    assert framework_calls(workload_of(parallel=Parallel(pp=2)), biased, lowered, collectives)[0] == pytest.approx(
        14 + 8 + 12 + (beside + 8) / 2
    )
    assert worker_dispatch_seconds(workload_of(parallel=Parallel(tp=4, pp=2))) == pytest.approx(8 * 0.47e-3)
    assert worker_dispatch_seconds(workload_of(parallel=Parallel(dp=4))) == 0.0


def test_ranks_and_processes_that_wait_for_each_other() -> None:
    assert _waiting_ranks(workload_of("train", parallel=Parallel(dp=2))) == 2
    assert _waiting_ranks(workload_of("train", parallel=Parallel(dp=2, threads=True))) == 1
    assert _waiting_ranks(workload_of("serve", parallel=Parallel(dp=2))) == 1
    assert _waiting_ranks(workload_of("serve", parallel=Parallel(dp=3, tp=2))) == 2
    assert _waiting_ranks(workload_of("serve", parallel=Parallel(cp=2))) == 2
    assert _waiting_ranks(workload_of("serve", parallel=Parallel(dp=4, tp=2, ep=8))) == 8
    two = Parallel(tp=2)
    assert [_synchronised_processes(workload_of("serve", engine="vllm", year=year, parallel=two)) for year in (2023, 2025)] == [
        2,
        1,
    ]
    assert _synchronised_processes(workload_of("train", parallel=Parallel(dp=2, threads=True))) == 2
    for zero, phase, rounds in ((0, "backward", 3.0), (1, "backward", 3.0), (2, "backward", 1.0), (0, "forward", 1.0)):
        assert _overlapped_rounds(workload_of("train", accumulation=3, parallel=Parallel(dp=2, zero=zero)), phase) == rounds


def test_collectives_are_added_by_their_overlap() -> None:
    fabric = fabric_of(H100)
    devices = Devices.of([H100], [fabric])
    workload = workload_of("train", gpus=8, engine="pytorch", parallel=Parallel(dp=8))
    collectives = [
        Collective("all_reduce", "dp", 25e6, 4.0, "backward"),
        Collective("all_gather", "dp", 1e6, 3.0),
        Collective("all_gather", "dp", 2e6, 1.0),
    ]
    heard = collective_seconds(workload, collectives, devices)

    def one(kind: Any, size: float) -> Any:
        return collective_cost(kind, size, Communicator(8, 8), [fabric])

    assert heard["backward_volume"][0, 0] == pytest.approx(4 * one("all_reduce", 25e6).volume[0, 0])
    assert heard["exposed_latency"][0, 0] == pytest.approx(
        3 * one("all_gather", 1e6).latency[0, 0] + one("all_gather", 2e6).latency[0, 0]
    )
    assert heard["exposed_volume"][0, 0] == pytest.approx(
        3 * one("all_gather", 1e6).volume[0, 0] + one("all_gather", 2e6).volume[0, 0]
    )
    assert heard["forward_volume"][0, 0] == heard["attention_latency"][0, 0] == 0.0
    assert heard["backward_tail"][0, 0] == 0.25  # the last of four buckets comes after the pass


# traced products: batch x tokens x 128 numbers, two heads of 64


def call(name: str, inputs: Any, phase: Any = "forward", **more: Any) -> Call:
    return Call(name, phase, "bfloat16", 2.0, inputs, ((1.0,),), grown=(True,), **more)


def test_traced_gemms() -> None:
    (op,) = traced.matmul(call("addmm", ((64.0,), (12.0, 128.0), (128.0, 64.0))), LoweringOptions())
    assert (op.flops, op.count, op.role, op.unit) == (2 * 12 * 128 * 64, 2.0, "forward", "bf16")
    (batched,) = traced.matmul(call("bmm", ((3.0, 12.0, 128.0), (3.0, 128.0, 64.0))), LoweringOptions())
    assert batched.flops == 3 * 2 * 12 * 128 * 64
    (narrow,) = traced.matmul(
        call("mm", ((12.0, 128.0), (128.0, 64.0))), LoweringOptions(quantised_unit="int8", quantised_width=1.0)
    )
    assert (narrow.unit, narrow.read) == ("int8", 12 * 128 + 128 * 64)
    (weights,) = traced.matmul(call("mm", ((64.0, 512.0), (512.0, 128.0)), "backward"), LoweringOptions())
    assert weights.role == "wgrad"
    (inputs,) = traced.matmul(call("mm", ((512.0, 64.0), (64.0, 128.0)), "backward"), LoweringOptions())
    assert inputs.role == "dgrad"
    operator = call("mm", ((512.0, 64.0), (64.0, 128.0)), "backward", growing=((False, True), (True, False)))
    assert traced.matmul(operator, LoweringOptions())[0].role == "wgrad"


HEADS = (3.0, 2.0, 10.0, 64.0)


def test_traced_attention() -> None:
    (op,) = traced.attention(call("sdpa", (HEADS, HEADS, HEADS)), LoweringOptions())
    size = 3 * 2 * 10 * 64 * 2
    assert op.flops == 4 * 3 * 2 * 100 * 64
    assert (op.read, op.write) == (3 * size, size)
    (causal,) = traced.attention(call("sdpa", (HEADS, HEADS, HEADS), attributes={"causal": True}), LoweringOptions())
    assert causal.flops == op.flops / 2
    (back,) = traced.attention_backward(call("sdpa", (HEADS, HEADS, HEADS, HEADS), "backward"), LoweringOptions())
    assert (back.flops, back.read, back.write) == (2.5 * op.flops, 5 * size, 3 * size)
    longer = (3.0, 2.0, 20.0, 64.0)
    (crossed,) = traced.attention(call("sdpa", (HEADS, longer, longer)), LoweringOptions())
    assert (crossed.read, crossed.write, crossed.flops) == (size + 4 * size, size, 2 * op.flops)


def test_fused_attention_is_one_call() -> None:
    query, weight, projection = (3.0, 10.0, 128.0), (384.0, 128.0), (128.0, 128.0)
    ops = traced.native_attention(
        call("native", (query, query, query, weight, (384.0,), projection)), LoweringOptions(training=False)
    )
    assert [op.kind for op in ops] == ["gemm", "attention", "gemm"]
    assert [float(op.flops) for op in ops] == [2 * 30 * 128 * 384, 4 * 3 * 2 * 100 * 64, 2 * 30 * 128 * 128]
    apart = traced.native_attention(
        call("native", (query, query, query, weight, (384.0,), projection)), LoweringOptions(training=False, amp=True)
    )
    assert [op.kind for op in apart[3:]] == ["copy", "copy", "copy", "copy", "copy", "elementwise"]
    assert float(apart[-1].read) == 6 * 3 * 10 * 128


def prepared(**changed: Any) -> PreparedOperator:
    dims = ((0, 1), (16, 0), (8, 0), (8, 0))
    plain = PreparedOperator(
        "relu", "forward", "float32", 1.0, (dims,), (dims,), {}, ((True, False, False, False),), (True,), True, True
    )
    return replace(plain, **changed)


def test_sizes_grow_with_the_batch_and_the_image() -> None:
    assert prepared().call(3.0, 1.0).inputs == ((3.0, 16.0, 8.0, 8.0),)
    assert prepared().call(3.0, 4.0).outputs == ((12.0, 16.0, 8.0, 8.0),)
    assert prepared(spatial=False).call(3.0, 4.0).outputs == ((3.0, 16.0, 8.0, 8.0),)
    tokens = ((0, 1), (2, 0), (10, 0), (64, 0))
    attention = prepared(name="_scaled_dot_product", inputs=(tokens, tokens))
    assert attention.call(3.0, 4.0).inputs == ((3.0, 2.0, 40.0, 64.0),) * 2
    assert attention.call(3.0, 1.0).inputs == ((3.0, 2.0, 10.0, 64.0),) * 2
    assert [_has_pixels(dims) for dims in (((0, 1), (16, 0), (8, 0)), ((0, 1), (16, 0)), ((0, 4), (16, 0)), ((16, 0),))] == [
        True,
        False,
        True,
        False,
    ]


def test_many_gpus_in_parts_are_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [GPUS[name] for name in ("h100-sxm", "t4", "a100-sxm-80gb")]
    many = 7
    monkeypatch.setattr(evaluate, "CACHED_NUMBERS", many)  # so little room that GPUs are looked at one by one
    ops = [
        gemm(np.linspace(1.0, 100.0, many), 64.0, 64.0, "bf16", 2.0, batch=1.0),
        elementwise(np.full(many, 1e5), 2.0, 2.0).times(3.0),
    ]
    gpus = [*gpus, gpus[0], gpus[1]]  # some are in several machines
    whole = operator_totals(ops, build_gpu_columns(gpus))
    each = operator_seconds(ops, build_gpu_columns(gpus))
    for place, gpu in enumerate(gpus):
        assert np.array_equal(each.seconds[place], operator_seconds(ops, build_gpu_columns([gpu])).seconds[0])
        alone = operator_totals(ops, build_gpu_columns([gpu]))
        for name in ("seconds", "floors"):
            assert np.array_equal(getattr(whole, name)[:, place], getattr(alone, name)[:, 0])
        for name in ("flop_seconds", "byte_seconds"):
            assert np.array_equal(getattr(whole, name)[place], getattr(alone, name)[0])


def test_floors_by_hand() -> None:
    product = gemm(100.0, 100.0, 100.0, "fp16", 2.0)
    flops, moved = roofline_seconds(stack_operators("fp16", [product]), toy(), NEUTRAL)
    assert (flops.item(), moved.item()) == (2e6 / 1e13, 6e4 / 1e12)
    small = elementwise(1e5, 2.0, 2.0, unit="fp16")  # 400 kB, half of which the cache holds
    _, moved = roofline_seconds(stack_operators("fp16", [small]), toy(), NEUTRAL | {"memory.recent_share": 0.5})
    assert moved.item() == pytest.approx(2e5 / 1e12)
    seconds = operator_seconds([product, small], toy(), NEUTRAL)
    assert seconds.seconds.shape == (1, 2, 1)
    assert np.all(seconds.seconds >= seconds.floors)


def minimum_seconds(op: Op, **changed: Any) -> float:
    """Minimum seconds of one operator on the toy GPU with 1 MB of L2."""
    return float(floor_seconds(stack_operators(op.unit, [op]), toy(**changed)).item())


def test_minimum_seconds_count_bytes_beyond_the_l2_cache() -> None:
    """Of 10 MB read and 10 MB written a megabyte each may be in the L2, whose bytes count an eighth."""
    moved = elementwise(5e6, 2.0, 2.0, unit="fp16")
    assert minimum_seconds(moved) == pytest.approx((2e7 - 2e6 * 7 / 8) / 1e12)
    assert minimum_seconds(elementwise(1e5, 2.0, 2.0, unit="fp16")) == pytest.approx(4e5 / 8 / 1e12)
    cold = replace(moved, sizes={**moved.sizes, "resident": 0.0})
    assert minimum_seconds(cold) == pytest.approx(2e7 / 1e12)


def test_weights_and_kv_caches_are_read_from_memory() -> None:
    product = gemm(1.0, 1000.0, 1000.0, "fp16", 2.0)
    assert minimum_seconds(product) == pytest.approx((2e6 + 4e3) / 1e12)
    hot = replace(product, sizes={**product.sizes, "resident": 1.0})
    assert minimum_seconds(hot) == pytest.approx((2e6 + 4e3 - (1e6 + 2e3) * 7 / 8) / 1e12)
    decode = Op("decode_attention", "fp16", 0.0, 5e5, 1e5, {"batch": 1.0})
    assert minimum_seconds(decode) == pytest.approx(6e5 / 1e12)


def test_minimum_compute_seconds_use_sustained_or_burst_rate() -> None:
    product = gemm(1e4, 1e4, 1e4, "fp16", 2.0)
    assert minimum_seconds(product) == pytest.approx(2e12 / 1e13)
    assert minimum_seconds(product, sustained_peaks={"fp16": 0.8e13}) == pytest.approx(2e12 / 0.8e13)
    burst = floor_seconds(stack_operators("fp16", [product]), toy(clocked_peaks={"fp16": 1.25e13}), burst=True)
    assert float(burst.item()) == pytest.approx(2e12 / 1.25e13)
    assert float(floor_totals([product.times(3.0)], toy()).item()) == pytest.approx(3 * 2e12 / 1e13)


def test_tiles_of_libraries() -> None:
    assert SIMT_TILES == ((128, 128), (64, 128), (128, 64), (64, 64), (32, 128), (128, 32), (32, 32))
    assert TENSOR_TILES == ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64))
    assert CONV_TILES[len(TENSOR_TILES) :] == ((256, 32), (64, 32))
    assert pytest.approx(256 / 3) == LARGEST_TILE_INTENSITY


def test_a_range_never_falls_below_the_floor() -> None:
    workload = workload_of("forward", engine="pytorch", batch=4, seq_in=512)
    estimate = estimate_time(workload, TINY, H100)
    confidence = step_confidence(workload, TINY, H100, "forward", estimate.bound)
    low, high = confidence.low, confidence.high
    assert estimate.time.high == pytest.approx(estimate.time.value * exp(high))
    assert estimate.time_host.low == pytest.approx(estimate.time_host.value * exp(low))
    assert estimate.throughput.value == pytest.approx(4 / estimate.time.value)
    assert (estimate.throughput.low, estimate.throughput.high) == pytest.approx((4 / estimate.time.high, 4 / estimate.time.low))
    assert (estimate.ttft, estimate.tpot) == (None, None)


def test_saved_tensors_live_until_their_last_use_in_backward() -> None:
    """x is saved by two GEMMs; it is freed after the first of them, which is last in backward."""
    tape = Tape()
    write = OperatorWriter(tape, 1, WIDTHS["fp32"])
    entry = tape.value(1024, 4)
    write.add(write.linear(entry, 1024), write.linear(entry, 1024))
    block = TapeBlock(tuple(tape.nodes), entry, tape.nodes[-1].output)
    ledger = AllocationLog()
    start = ledger.new(4096, "activations")
    output, passed = block.forward(ledger, start)
    assert set(passed.live) == {entry.id, block.exit.id}
    gradient = ledger.new(4096, "temporary")
    ledger.free(output)
    back, weights = block.backward(ledger, passed, gradient)
    assert back is not None
    assert len(weights) == 2
    replay = ledger.replay(pools=False)
    # both weights' gradients, the input, and the gradients of the input and of the sum
    assert replay.breakdown["gradients"] == 2 * 4 * 1024 * 1024
    assert replay.breakdown["activations"] == 4096


def test_adapters_and_experts_in_training_memory() -> None:
    def training_parts(shape: Transformer = TINY, **fields: Any) -> dict[str, int]:
        return transformer_parts(workload_of("train", batch=2, optimizer="adamw", engine="pytorch", **fields), shape)[0]

    adapters = 4 * 2 * 4 * ((64 + 64) + 2 * (64 + 16) + (64 + 64) + 3 * (64 + 256))  # rank 4, bf16, four layers
    tuned = training_parts(lora_rank=4)
    assert tuned["adapters"] == pytest.approx(adapters, rel=0.1)  # in blocks of 512 bytes
    assert training_parts()["adapters"] == 0
    assert training_parts()["optimizer"] == pytest.approx(2 * training_parts()["weights"], rel=0.01)
    assert tuned["optimizer"] < training_parts()["optimizer"] / 10
    mixed = replace(TINY, experts=Experts(8, 2, 32, dense_layers=1))
    roles = [matrices.role for matrices in layer_matrices(mixed)]
    assert (roles.count("router"), roles.count("ffn_up_exps"), roles.count("ffn_up")) == (3, 3, 1)
    assert "router" not in [matrices.role for matrices in layer_matrices(TINY)]
