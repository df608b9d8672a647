"""Training as Megatron Core runs it: exchange of experts' tokens, norms by sequence, gradients, pipeline stages."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.group.collectives import Communicator
from whichgpu.estimate.group.expert_exchange import ExpertExchange, exchange_cost, once_per_node_cost
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.layout_memory import LayoutMemory
from whichgpu.estimate.group.traffic import step_collectives
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.training.transformer import allocated_parts
from whichgpu.estimate.time.curves.evaluate import operator_seconds
from whichgpu.estimate.time.curves.gpus import cached_gpu_columns
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.layer_kinds import slowest_stage
from whichgpu.estimate.time.operators import Op, gemm
from whichgpu.workload.shapes import Experts, Transformer
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
SMALL = Transformer("small", "llama", 1024, 8, 16, 4, 64, 4096, 32000, True, "rms", "silu", False, True, 0, 4096)
WORK = Workload(
    "train", "small", precision="bf16", batch=8, seq_in=512, engine="ngc", year=2025, optimizer="adamw", accumulation=2, gpus=8
)


def total(ops: tuple[Op, ...], kind: str, field: str) -> float:
    return float(sum(np.asarray(getattr(op, field) * op.count).sum() for op in ops if op.kind == kind))


def test_a_token_crosses_the_network_once_for_each_node_with_its_experts() -> None:
    fabric = fabric_of(GPUS["h100-sxm"], None, None, 400, "infiniband")
    exchange = ExpertExchange("dispatch", 4096.0, 7168.0, 8.0, 256.0, 2.0)
    ranks = Communicator(32, 8)
    cost = once_per_node_cost(exchange, ranks, [fabric])
    other_nodes = 3 * (1 - (3 / 4) ** 8)  # of four nodes, by eight choices at random
    assert cost.volume.item() == pytest.approx(4096 * 7168 * 2 * other_nodes / fabric.network_bandwidth)
    both = exchange_cost(exchange, ranks, [fabric], has_deepep=False, once_per_node=True)
    nccl = exchange_cost(exchange, ranks, [fabric], has_deepep=False)
    assert both.seconds.item() == cost.seconds.item() < 0.5 * nccl.seconds.item()


def test_norms_of_sequence_parallel_ranks_share_the_tokens() -> None:
    plain, sharded = (lower(replace(WORK, parallel=Parallel(tp=2, sp=sp)), SMALL, 1.0).ops for sp in (False, True))
    layers, head = 2 * 8, 1  # norms over 512 tokens; the last one, before the head, is not sharded
    assert total(plain, "norm", "read") / total(sharded, "norm", "read") == pytest.approx((layers + head) / (layers / 2 + head))
    assert total(plain, "gemm", "flops") == total(sharded, "gemm", "flops")


def test_projections_are_fused_and_gradients_added_inside_gemms() -> None:
    fused, apart = (lower(replace(WORK, year=year), SMALL, 1.0).ops for year in (2025, 2022))
    assert total(fused, "gemm", "flops") == pytest.approx(total(apart, "gemm", "flops"))
    assert total(fused, "gemm", "count") < total(apart, "gemm", "count")
    assert any(op.role == "add" for op in apart)
    assert not any(op.role == "add" for op in fused)
    sharded = lower(replace(WORK, parallel=Parallel(dp=8, zero=3)), SMALL, 1.0).ops
    assert any(op.role == "add" for op in sharded)


def test_the_slowest_stage_has_the_head_unless_it_has_fewer_layers() -> None:
    assert slowest_stage(SMALL, 4) == 3
    assert slowest_stage(replace(SMALL, layers=9, vocab=100), 4) == 0
    mixture = replace(SMALL, layers=9, vocab=100, experts=Experts(64, 8, 4096, dense_layers=2))
    assert slowest_stage(mixture, 4) == 3  # two MoE layers do more than two dense ones and one MoE layer
    head, body = (lower(replace(WORK, parallel=Parallel(pp=4)), replace(SMALL, vocab=vocab), 1.0).ops for vocab in (32000, 100))
    assert any(op.kind == "softmax" for op in head)
    assert not any(op.kind.startswith("embedding") for op in head)
    assert any(op.kind == "softmax" for op in body)  # layers divide evenly, so the last stage has most


def test_quantised_operands_are_gathered_under_tensor_parallelism() -> None:
    wide, narrow = (
        next(
            one
            for one in step_collectives(replace(WORK, precision=name, parallel=Parallel(tp=8, sp=True)), SMALL, 1.0)
            if one.kind == "all_gather" and one.axis == "tp"
        )
        for name in ("bf16", "fp8")
    )
    assert narrow.size == pytest.approx(wide.size / 2)


def test_fp8_gemms_of_training_reach_the_same_share_on_every_chip() -> None:
    columns = cached_gpu_columns([GPUS["h100-sxm"], GPUS["b200"], GPUS["b300"]])
    ops = [gemm(16384.0, 16384.0, 16384.0, "fp8", 1.0, role=role) for role in ("forward", "cublaslt")]
    seconds = operator_seconds(ops, columns).seconds[:, :, 0]
    shares = ops[0].flops / seconds / columns.peaks["fp8"][:, :, 0]
    assert shares[:, 1] == pytest.approx(0.73, abs=0.02)
    assert (shares[1:, 0] < 0.6).all()


def test_an_odd_number_of_tokens_per_expert_misaligns_nothing() -> None:
    columns = cached_gpu_columns([GPUS["h100-sxm"]])
    even, odd = (
        Op(
            "grouped_gemm",
            "bf16",
            2.0 * 4096 * 1024 * k * 4,
            sizes={"m": 4 * 4096.0, "n": 1024.0, "k": k, "batch": 4.0},
            role="eager",
        )
        for k in (1024.0, 1026.5)
    )
    seconds = operator_seconds([even, odd], columns).seconds[0, :, 0]
    assert seconds[1] == pytest.approx(seconds[0], rel=0.02)


def test_megatron_keeps_fp32_weights_states_and_gradients_beside_16_bit_weights() -> None:
    layout = Parallel(tp=2)
    parameters = allocated_parts(replace(WORK, precision="bf16", parallel=layout), SMALL)["weights"] / 2
    for engine, width in (("ngc", 18), ("pytorch", 8)):
        work = replace(WORK, engine=engine, precision="bf16", parallel=layout)
        parts = allocated_parts(work, SMALL)
        assert sum(parts[name] for name in ("weights", "gradients", "optimizer")) / parameters == pytest.approx(width, rel=0.01)
        exact = required_memory(estimate_memory(replace(work, micro_batch=4, batch=8, gpus=2), SMALL), work).value
        screened = LayoutMemory(work, SMALL).of(layout, "none", np.array([4.0]), np.array([2.0])).item()
        assert screened == pytest.approx(exact, rel=0.1)
