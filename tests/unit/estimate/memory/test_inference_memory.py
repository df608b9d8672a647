"""Memory of inference: facts of known models and GPUs, engines' shares, and what was measured."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit import shapes
from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.engine_memory import budget_bytes, chunk_tokens, context_bytes, static_share, workspace_bytes
from whichgpu.estimate.memory.inference import inference_memory
from whichgpu.estimate.memory.kv import kv_bytes_per_token
from whichgpu.estimate.memory.parts import OUTSIDE_ALLOCATOR, MemoryEstimate
from whichgpu.workload.shapes import Dlrm, Mlp, Shape, Transformer, WeightsOnly
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Parallel, Workload


def memory_estimate(shape: Shape, gpu: Gpu | None = None, task: Task = "serve", **fields: Any) -> MemoryEstimate:
    request: dict[str, Any] = {"precision": "bf16", "batch": 1, "seq_in": 2048, **fields}
    return inference_memory(Workload(task, shape.name, **request), shape, gpu)


def parts(estimate: MemoryEstimate) -> dict[str, int]:
    return {name: int(figure.value) for name, figure in estimate.parts.items()}


@pytest.fixture(scope="module")
def v100(catalog: Catalog) -> Gpu:
    return find_gpu(catalog, "V100 SXM 16GB")


@pytest.fixture(scope="module")
def h100(catalog: Catalog) -> Gpu:
    return find_gpu(catalog, "H100 SXM")


@pytest.fixture(scope="module")
def h200(catalog: Catalog) -> Gpu:
    return find_gpu(catalog, "H200 SXM")


@pytest.mark.parametrize("engine", ["pytorch", "vllm"])
def test_a_7b_at_8_16_and_32_bits_on_a_v100_fits_fits_with_little_left_and_does_not(engine: str, v100: Gpu) -> None:
    free = {}
    for precision in ("int8", "fp16", "fp32"):
        needed = sum(
            parts(memory_estimate(shapes.LLAMA_2_7B, v100, precision=precision, engine=engine, seq_in=512, seq_out=128)).values()
        )
        free[precision] = (v100.memory_bytes - needed) / GIB
    assert free["int8"] > 7
    assert 1 < free["fp16"] < 3  # 2,000 to 6,000 tokens of a cache that takes 512 KiB each
    assert free["fp32"] < -10


def test_llama_3_8b_in_fp16_leaves_a_t4_no_room(catalog: Catalog) -> None:
    t4 = find_gpu(catalog, "T4")
    assert t4.memory_bytes == 15360 * MIB
    for engine in ("pytorch", "vllm"):
        assert (
            memory_estimate(shapes.LLAMA_3_8B, t4, precision="fp16", engine=engine, seq_in=512, seq_out=64).device.low
            > t4.memory_bytes
        )


def test_mixtral_in_bf16_does_not_fit_80_gb_though_a_token_visits_two_experts(h100: Gpu) -> None:
    assert memory_estimate(shapes.MIXTRAL, h100).parts["weights"].value > h100.memory_bytes
    assert sum(parts(memory_estimate(shapes.MIXTRAL, h100, parallel=Parallel(tp=2))).values()) < h100.memory_bytes


def test_the_cache_holds_prompt_and_answer_for_every_sequence() -> None:
    token = kv_bytes_per_token(shapes.LLAMA_3_8B)
    served = memory_estimate(shapes.LLAMA_3_8B, batch=32, seq_in=1024, seq_out=512, engine="vllm")
    assert parts(served)["kv_cache"] == 32 * 1536 * token
    for task in ("prefill", "decode"):
        single = memory_estimate(shapes.LLAMA_3_8B, None, task, batch=4, seq_in=1000, engine="pytorch")
        assert parts(single)["kv_cache"] == 4 * 1000 * token
    assert "kv_cache" not in parts(memory_estimate(shapes.LLAMA_3_8B, None, "forward"))


def test_replicas_share_the_batch() -> None:
    one, two = (parts(memory_estimate(shapes.LLAMA_3_8B, batch=64, parallel=Parallel(dp=dp)))["kv_cache"] for dp in (1, 2))
    assert one == 2 * two


# Growth of the peak from one prompt to a longer one; H200, PyTorch 2.11, 2026. Each layer's block compiled, bf16.
@pytest.mark.parametrize(
    ("shape", "short", "long", "grown_mib"),
    [
        (shapes.LLAMA_3_8B, (1, 2048), (1, 8192), 17906.571 - 16537.024),
        (shapes.LLAMA_3_8B, (1, 512), (1, 2048), 16537.024 - 16194.637),
        (shapes.QWEN_32B, (1, 2048), (2, 4096), 67114.323 - 64485.776),
    ],
    ids=["llama-3.1-8b, 6144 tokens", "llama-3.1-8b, 1536 tokens", "qwen2.5-32b, 6144 tokens"],
)
def test_longer_prompt_adds_the_measured_bytes(
    shape: Transformer, short: tuple[int, int], long: tuple[int, int], grown_mib: float
) -> None:
    sizes = []
    for batch, length in (short, long):
        peak = memory_estimate(shape, None, "prefill", batch=batch, seq_in=length, engine="pytorch-compile")
        sizes.append(peak.allocated.value)
    assert (sizes[1] - sizes[0]) / MIB == pytest.approx(grown_mib, rel=0.01)


# H200, PyTorch 2.11, 2026: BERT's forward in fp16, eager, from 8 to 32 sequences of 384.
@pytest.mark.parametrize(
    ("shape", "grown_mib"),
    [
        (shapes.BERT_LARGE, 1992.334 - 1794.264),
        (replace(shapes.BERT_LARGE, hidden=768, layers=12, heads=12, kv_heads=12, ffn=3072), 1499.517 - 1351.517),
    ],
    ids=["bert-large", "bert-base"],
)
def test_larger_bert_batch_adds_the_measured_bytes(shape: Transformer, grown_mib: float) -> None:
    small, large = (
        memory_estimate(shape, None, "forward", precision="fp16", batch=batch, seq_in=384).allocated.value for batch in (8, 32)
    )
    assert (large - small) / MIB == pytest.approx(grown_mib, rel=0.01)


def test_cuda_context_equals_that_measured_on_an_h200(h200: Gpu) -> None:
    assert 751 <= context_bytes(h200) / MIB <= 799


def test_vllm_profiles_llama_3_8b_as_its_authors_saw(h100: Gpu) -> None:
    """vLLM pull request 10511, December 2024, H100: weights 14.96 GiB, activations 1.26 GiB with one GPU and with two."""
    for layout in (Parallel(), Parallel(tp=2)):
        profiled = memory_estimate(
            shapes.LLAMA_3_8B, h100, engine="vllm", year=2024, seq_in=8192 - 256, seq_out=256, parallel=layout
        )
        assert profiled.parts["activations"].low < 1.26 * GIB < profiled.parts["activations"].high
        assert profiled.parts["weights"].value / GIB == pytest.approx(14.96 / layout.tp, abs=0.01)


def test_engines_that_preallocate_show_their_share_and_their_need(h100: Gpu) -> None:
    for engine, year, share in (("vllm", 2026, 0.92), ("vllm", 2024, 0.90), ("sglang", 2026, 0.84), ("tensorrt-llm", 2026, 0.92)):
        served = memory_estimate(shapes.LLAMA_3_8B, h100, engine=engine, year=year)
        assert served.device.value / h100.memory_bytes == pytest.approx(share, abs=0.03)
        assert served.allocated.value < 20 * GIB
        assert (
            memory_estimate(shapes.LLAMA_3_8B, None, engine=engine, year=year).device.value < 21 * GIB
        )  # no GPU named: what is needed


def test_llama_cpp_allocates_on_demand(h100: Gpu) -> None:
    """Its own log of Llama-3-8B q4_k_m at 8192 tokens: model 4403.5 MiB, cache 1024 MiB, compute 258.5 MiB."""
    served = memory_estimate(shapes.LLAMA_3_8B, h100, precision="q4_k_m", seq_in=8192 - 256, seq_out=256)
    assert [round(parts(served)[name] / MIB, 1) for name in ("weights", "kv_cache", "activations")] == [4403.5, 1024.0, 258.5]
    assert served.device.value < 7 * GIB


def test_a_need_between_an_engine_s_share_and_the_whole_gpu_is_warned_about(catalog: Catalog) -> None:
    gpu = find_gpu(catalog, "A100 SXM 40GB")
    for batch in range(1, 200):
        served = memory_estimate(shapes.LLAMA_3_8B, gpu, batch=batch, engine="vllm")
        needed = sum(parts(served).values())
        between = budget_bytes(Workload("serve", "", engine="vllm"), gpu) < needed <= gpu.memory_bytes
        assert [warning.id for warning in served.warnings] == (["warning.engine-share"] if between else [])


def test_more_than_a_model_s_context_is_warned_about() -> None:
    assert [warning.id for warning in memory_estimate(shapes.LLAMA_2_7B, seq_in=4096, seq_out=256).warnings] == [
        "warning.beyond-context"
    ]


def test_written_out_attention_costs_its_scores() -> None:
    flash, eager = (
        parts(memory_estimate(shapes.LLAMA_2_7B, None, "prefill", engine="pytorch", attention=kind, seq_in=4096))
        for kind in ("sdpa", "eager")
    )
    assert eager["activations"] - flash["activations"] > 32 * 4096 * 4096 * 4


def test_logits_of_all_positions_are_made_by_a_forward_and_were_by_older_generation() -> None:
    everything = 8192 * shapes.LLAMA_3_8B.vocab * 2
    forward = memory_estimate(shapes.LLAMA_3_8B, None, "forward", seq_in=8192)
    assert parts(forward)["activations"] > everything
    newer, older = (
        memory_estimate(shapes.LLAMA_3_8B, None, "prefill", seq_in=8192, engine="pytorch", year=year) for year in (2026, 2023)
    )
    assert parts(newer)["activations"] < everything < parts(older)["activations"]


def test_autocast_holds_temporary_casts_of_fp32_weights() -> None:
    copied = parts(memory_estimate(shapes.BERT_LARGE, None, "forward", precision="amp-bf16", seq_in=384))
    assert copied["temporary"] == 2 * 24 * (4 * 1024**2 + 2 * 1024 * 4096)
    assert "temporary" not in parts(memory_estimate(shapes.BERT_LARGE, None, "forward", precision="fp32", seq_in=384))


def test_an_encoder_decoder_holds_its_encoder_s_output_and_both_caches() -> None:
    served = parts(memory_estimate(shapes.WHISPER_SMALL, None, batch=2, seq_out=448, engine="pytorch"))
    assert served["kv_cache"] == 2 * 12 * 2 * 768 * 2 * (448 + 1500)
    assert served["activations"] > 2 * 1500 * (2 * 3072 + 2 * 768) * 2


def test_a_perceptron_s_forward_is_weights_and_its_widest_layers() -> None:
    forward = parts(memory_estimate(Mlp("", (9000, 4000, 4000, 32)), None, "forward", precision="fp32", batch=128))
    assert forward["weights"] == 4 * 52_136_032
    assert forward["activations"] == 4 * 128 * (9000 + 8000)


def test_a_recommendation_model_is_mostly_tables() -> None:
    dlrm = Dlrm("dlrm", 128, (10_000_000, 1000), (13, 512, 128), (1024, 1))
    forward = parts(memory_estimate(dlrm, None, "forward", precision="fp32", batch=1024))
    assert forward["weights"] > 4 * 128 * 10_000_000
    assert 0 < forward["activations"] < 64 * MIB


def test_weights_without_a_config_count_weights_only_with_a_warning() -> None:
    estimate = memory_estimate(WeightsOnly("model.safetensors", 10**9, 2 * 10**9), None, precision=None)
    assert parts(estimate)["weights"] == 2 * 10**9
    assert "kv_cache" not in parts(estimate)
    assert [warning.id for warning in estimate.warnings] == ["warning.weights-only"]


@pytest.mark.parametrize("engine", engine_ids())
@pytest.mark.parametrize("task", ["serve", "batch", "prefill", "decode", "forward"])
def test_parts_add_up_for_every_engine_and_task(engine: str, task: Task) -> None:
    estimate = memory_estimate(shapes.GEMMA_2_9B, None, task, engine=engine, batch=4)
    inside = sum(figure.value for name, figure in estimate.parts.items() if name not in OUTSIDE_ALLOCATOR)
    assert estimate.allocated.value == inside
    assert estimate.device.value == sum(figure.value for figure in estimate.parts.values())
    assert estimate.allocated.low <= inside <= estimate.allocated.high


def test_weights_and_cache_are_exact_and_overheads_are_not() -> None:
    served = memory_estimate(shapes.LLAMA_3_8B, engine="vllm", batch=16)
    for name in ("weights", "kv_cache"):
        assert served.parts[name].low == served.parts[name].high
    for name in ("activations", "cuda_graphs", "context", "slack"):
        assert served.parts[name].low < served.parts[name].value < served.parts[name].high
    big = memory_estimate(shapes.LLAMA_3_70B, engine="vllm", batch=16)
    assert big.allocated.relative_range[1] < served.allocated.relative_range[1]  # what is unsure is a smaller share of it


@pytest.mark.parametrize(
    ("engine", "gpu", "task", "year", "tokens"),
    [
        ("vllm", "H100 SXM", "serve", 2026, 8192),
        ("vllm", "H100 SXM", "batch", 2026, 16384),
        ("vllm", "A100 SXM 80GB", "serve", 2026, 2048),
        ("vllm", "L4", "batch", 2026, 8192),
        ("vllm", "L4", "serve", 2024, 30000),
        ("sglang", "L4", "serve", 2026, 2048),
        ("sglang", "B200", "serve", 2026, 16384),
        ("llama.cpp", "L4", "serve", 2026, 512),
        ("pytorch", "L4", "serve", 2026, None),
    ],
)
def test_largest_steps_are_the_engines_defaults(
    catalog: Catalog, engine: str, gpu: str, task: Task, year: int, tokens: int | None
) -> None:
    assert chunk_tokens(engine_record(engine, year).memory, find_gpu(catalog, gpu), task, 30000) == tokens


def test_sglang_leaves_room_by_its_rule(h100: Gpu) -> None:
    assert static_share(engine_record("sglang", 2024).memory, h100, 1, 1) == 0.88
    assert static_share(engine_record("sglang", 2024).memory, h100, 8, 1) == 0.81
    assert static_share(engine_record("sglang", 2026).memory, h100, 1, 1) == pytest.approx(0.835, abs=0.005)


def test_overheads_are_defined_on_every_gpu_of_the_catalog(catalog: Catalog) -> None:
    for gpu in catalog.gpus:
        assert 0 < workspace_bytes(engine_record("vllm").memory, gpu) < GIB
        assert 0 < context_bytes(gpu) < 2 * GIB
        assert memory_estimate(shapes.LLAMA_32_1B, gpu, engine="sglang").device.value > 0
