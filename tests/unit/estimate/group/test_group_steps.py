"""Step times for a simulator, and how a group's step comes together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.breakdown import TERMS, StepBreakdown
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.group_calibration import NO_CORRECTIONS
from whichgpu.estimate.group.host_launches import framework_calls, lacks_cuda_graphs, worker_dispatch_seconds
from whichgpu.estimate.group.ranks import rank_pass
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.group.traffic import inference_collectives
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.time.lower.host_calls import VIEW_CALL_WEIGHT
from whichgpu.estimate.time.operators import LoweredStep
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id


def workload_and_shape(task: str, model: str, **fields: Any) -> tuple[Workload, Shape]:
    shape = find_model(model, CATALOG)
    return fill_defaults(from_object({"task": task, "model": model, **fields}).workload, shape), shape


def steps(model: str, gpu: str = "h100-sxm", **fields: Any) -> EngineSteps:
    workload, shape = workload_and_shape("serve", model, **fields)
    assert isinstance(shape, Transformer)
    return EngineSteps(workload, shape, GPUS[gpu])


def step_breakdown(task: str, model: str, gpu: str, **fields: Any) -> StepBreakdown:
    workload, shape = workload_and_shape(task, model, **fields)
    fabric = fabric_of(GPUS[gpu], None, workload.interconnect, workload.network_gbps, workload.network)
    return evaluate_group(workload, shape, Devices.of([GPUS[gpu]], [fabric])).breakdown


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "cuda-graphs"])
def test_a_group_of_one_is_one_gpu(engine: str) -> None:
    """The step model at batch 1: the figures for one GPU equal the sum of its steps."""
    workload, shape = workload_and_shape("serve", "llama-3.1-8b", engine=engine)
    alone = evaluate_grid(workload, shape, [GPUS["h100-sxm"]])
    own = steps("llama-3.1-8b", engine=engine)
    prompt, answer = float(workload.seq_in or 0), float(workload.seq_out or 0)
    token, read = own.decode(1, prompt + answer / 2), own.prefill(1, prompt)
    assert float(token + read / answer) == pytest.approx(float(alone.seconds.wall[0, 0]), rel=1e-6)
    assert alone.ttft is not None
    latency = engine_record(engine).host.request_latency
    assert float(token + read) + latency == pytest.approx(float(alone.ttft[0, 0]), rel=1e-6)


def test_arrays_equal_scalars() -> None:
    own = steps("llama-3.1-70b", gpus=8)
    batch, context = np.array([1, 16, 128])[:, None], np.array([100, 4000])[None, :]
    table = own.decode(batch, context)
    assert table.shape == (3, 2)
    for (row, column), value in np.ndenumerate(table):
        assert value == pytest.approx(float(own.decode(batch[row, 0], context[0, column])), rel=1e-9)
    assert own.prefill(1, [128, 512]).shape == (2,)


@pytest.mark.parametrize("layout", [{"tp": 8}, {"tp": 4, "pp": 2}, {"pp": 8}])
def test_step_time_grows_with_tokens(layout: dict[str, int]) -> None:
    own = steps("llama-3.1-70b", gpus=8, parallel=layout)
    stages = layout.get("pp", 1)  # A pipeline of as many sequences as stages has one in each, as a single sequence has in turn.
    assert float(own.decode(stages, 1000)) == pytest.approx(float(own.decode(1, 1000)), rel=1e-3)
    assert (np.diff(own.decode([stages, 8 * stages, 64 * stages, 256 * stages], 1000)) > 0).all()
    assert (np.diff(own.decode(32, [100, 1000, 10000])) > 0).all()
    assert (np.diff(own.prefill(1, [256, 1024, 4096])) > 0).all()
    assert (np.diff(own.prefill(1, 512, [0, 4096, 32768])) > 0).all()


@pytest.mark.parametrize("size", [400, 1024, 4096])
def test_mixed_step_costs_less_than_prefill_plus_decode_and_more_than_either(size: int) -> None:
    """Both with and without CUDA graphs, which vLLM replays for up to 512 tokens.

    A chunk of 512 tokens is replayed alone and launched by the host with decode tokens, which takes longer: on the H200, 600
    tokens of Llama-3.1-8B took 38.4 ms, 1,024 tokens 29.8 ms and 128 tokens 13.3 ms.
    """
    own = steps("llama-3.1-8b")
    chunk, tokens = float(own.prefill(1, size)), float(own.decode(64, 1000))
    both = float(own.mixed(size, 0, 64, 1000))
    assert max(chunk, tokens) < both < chunk + tokens
    assert np.isfinite(own.mixed(512, 0, 0, 1000))


def test_chunk_pushed_out_of_cuda_graphs_by_decode_costs_less_than_two_steps() -> None:
    own = steps("llama-3.1-8b")
    assert float(own.mixed(512, 0, 64, 1000)) < float(own.prefill(1, 513) + own.decode(64, 1000))


def test_chunks_of_a_prompt_cost_no_less_than_the_whole() -> None:
    own = steps("llama-3.1-8b")
    whole = float(own.prefill(1, 4096))
    chunks = float(own.prefill(1, 1024, [0, 1024, 2048, 3072]).sum())
    assert whole * 0.98 < chunks < 1.6 * whole


@pytest.mark.parametrize(
    ("task", "model", "fields"),
    [
        ("train", "llama-3.1-8b", {"gpus": 16, "nodes": 2, "batch": 32}),
        ("train", "llama-3.1-8b", {"gpus": 8, "batch": 32, "accumulation": 8, "parallel": {"tp": 2, "pp": 2, "dp": 2}}),
        ("decode", "llama-2-70b", {"gpus": 8, "engine": "vllm", "year": 2023}),
        ("batch", "mixtral-8x7b", {"gpus": 8, "parallel": {"dp": 8, "ep": 8}}),
        ("train", "resnet50", {"gpus": 4, "batch": 48, "parallel": {"dp": 4, "threads": True}}),
    ],
)
def test_time_breakdown_adds_up(task: str, model: str, fields: dict[str, Any]) -> None:
    one = step_breakdown(task, model, "a100-sxm-80gb", **fields)
    spent = one.work + one.communication + one.bubble + one.waiting
    assert spent[0, 0] == pytest.approx(one.wall[0, 0])
    assert one.communication[0, 0] > 0
    assert one.waiting[0, 0] > -1e-9 * one.wall[0, 0]


def test_pipelines_wait_and_interleaving_waits_less() -> None:
    """The bubble of 1F1B is (p - 1) / m of the work; v chunks divide it (arXiv 2104.04473, section 2.2)."""
    fields = {"gpus": 4, "batch": 8, "accumulation": 8, "seq_in": 1024}
    plain = step_breakdown("train", "llama-3.1-8b", "h100-sxm", **fields, parallel={"pp": 4})
    chunked = step_breakdown("train", "llama-3.1-8b", "h100-sxm", **fields, parallel={"pp": 4, "chunks": 2})
    filled = plain.wall - plain.bubble
    assert plain.bubble[0, 0] == pytest.approx(3 / 8 * filled[0, 0], rel=0.05)
    assert chunked.bubble[0, 0] == pytest.approx(plain.bubble[0, 0] / 2, rel=0.05)


def test_gradient_all_reduce_overlaps_the_backward_pass() -> None:
    one = step_breakdown("train", "resnet50", "a100-sxm-40gb", gpus=8, batch=1024)
    assert one.hidden[0, 0] > 0
    assert one.communication[0, 0] < 0.1 * one.wall[0, 0]


def test_an_engine_without_graphs_waits_for_its_host() -> None:
    """vLLM captured its decode steps from 2024 on; Splitwise measured 30 ms a token of Llama-2-70B on eight H100 before."""
    old, new = (step_breakdown("decode", "llama-2-70b", "h100-sxm", gpus=8, engine="vllm", year=year) for year in (2023, 2025))
    assert old.host[0, 0] > old.work[0, 0]
    assert old.wall[0, 0] > 1.5 * new.wall[0, 0]


def test_corrections_are_one_without_a_fit() -> None:
    fabric = fabric_of(GPUS["t4"])
    from whichgpu.estimate.group.group_calibration import group_setting

    factors = NO_CORRECTIONS.factors([group_setting(fabric, "pytorch", 2026, "train", threads=False)])
    assert {term: float(value[0, 0]) for term, value in factors.items()} == dict.fromkeys(TERMS, 1.0)


def test_an_engine_without_graphs_pays_pytorch_s_price_for_every_call() -> None:
    """vLLM of 2023: its step is the longer of device and host, and the host's grows with calls alone."""
    workload, _ = workload_and_shape("serve", "llama-2-70b", gpus=8, parallel={"tp": 8}, engine="vllm", year=2023)
    assert lacks_cuda_graphs(workload)
    assert not lacks_cuda_graphs(replace(workload, year=2024))
    own = steps("llama-2-70b", gpus=8, parallel={"tp": 8}, engine="vllm", year=2023)
    now = steps("llama-2-70b", gpus=8, parallel={"tp": 8}, engine="vllm", year=2024)
    assert float(own.decode(1, 512)) > 1.5 * float(now.decode(1, 512))
    assert float(own.decode(1, 4096) / own.decode(1, 512)) < 1.02
    slow = steps("llama-2-70b", gpus=8, parallel={"tp": 8}, engine="vllm", year=2023, host_speed=0.5)
    assert float(slow.decode(1, 512) / own.decode(1, 512)) > 1.6


def test_calls_of_an_eager_engine_count_once_whatever_the_prompt() -> None:
    """vLLM of 2023 took 52, 53 and 78 ms for prompts of 256, 512 and 1,024 tokens (Splitwise, Llama-2-70B on eight H100)."""
    own = steps("llama-2-70b", gpus=8, parallel={"tp": 8}, engine="vllm", year=2023)
    for tokens, measured in ((256, 0.052), (512, 0.053), (1024, 0.078)):  # 512 took 0.089 with its calls counted twice
        assert float(own.prefill(1, tokens)) == pytest.approx(measured, rel=0.3)


def test_calls_of_an_eager_engine_are_counted_from_its_source() -> None:
    """A layer of LLaMA in vLLM 0.2.1: ten kernels, two sums over ranks, two residual sums, and a few light calls."""
    workload, shape = workload_and_shape("serve", "llama-2-70b", gpus=8, parallel={"tp": 8}, engine="vllm", year=2023)
    assert isinstance(shape, Transformer)
    task = replace(workload, task="decode")
    counts = []
    for layers in (10, 20):
        own = replace(shape, layers=layers)
        lowered = LoweredStep(tuple(rank_pass(task, own, 1.0, 1.0, 512.0)))
        counts.append(float(framework_calls(task, own, lowered, inference_collectives(task, own, 1.0, 1.0)).sum()))
    assert (counts[1] - counts[0]) / 10 == pytest.approx(10 + 2 + 2 + 15 * VIEW_CALL_WEIGHT)
    assert worker_dispatch_seconds(task) == pytest.approx(8 * 0.47e-3)
    assert worker_dispatch_seconds(replace(task, parallel=Parallel())) == 0.0
