"""Memory of small models worked out by hand: activations of a forward pass, optimizers, engines' parts and their ranges."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.activations import ForwardPass, activation_peak_bytes, dlrm_peak_bytes
from whichgpu.estimate.memory.inference import inference_memory
from whichgpu.estimate.memory.overhead import context_bytes, workspace_bytes
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.training.optimizer import optimizer_bytes, state_sizes, step_temporary
from whichgpu.estimate.memory.training.training_step import mlp_parts
from whichgpu.workload.shapes import Dlrm, Experts, LatentAttention, Mlp, Patches, Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
H100 = GPUS["h100-sxm"]
# hidden 64, four layers, eight heads of 8 with two of keys, an MLP of 256, 1000 words
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def test_context_and_workspace_of_training() -> None:
    assert context_bytes(H100) == (4 * 132 + 257) * MIB
    assert context_bytes(None) == (4 * 132 + 257) * MIB
    assert context_bytes(GPUS["t4"]) == (4 * 40 + 257) * MIB
    assert workspace_bytes(None) == workspace_bytes(H100) == 66 * MIB
    assert workspace_bytes(GPUS["a100-sxm-80gb"]) == 17 * MIB


def step(**settings: Any) -> ForwardPass:
    plain: dict[str, Any] = {"tokens": 10, "context": 100, "width": 2, "logits": 0, "logit_bytes": 2}
    return ForwardPass(**(plain | settings))


def test_an_mlp_is_the_widest_moment_of_a_layer() -> None:
    assert activation_peak_bytes(TINY, step()) == 10 * (2 * 64 + 3 * 256) * 2
    assert activation_peak_bytes(replace(TINY, gated=False), step()) == 10 * (2 * 64 + 2 * 256) * 2
    assert activation_peak_bytes(replace(TINY, causal=False), step()) == 10 * (3 * 64 + 3 * 256) * 2  # normed after adding
    assert activation_peak_bytes(replace(TINY, causal=False, encoder_layers=1), step()) == 10 * (2 * 64 + 3 * 256) * 2
    assert activation_peak_bytes(replace(TINY, causal=False, patches=Patches(224, 16)), step()) == 10 * (2 * 64 + 3 * 256) * 2
    assert activation_peak_bytes(TINY, step(tp=2)) == 10 * (2 * 64 + 3 * 128) * 2
    assert activation_peak_bytes(TINY, step(persistent_bytes=7)) == 10 * (2 * 64 + 3 * 256) * 2 + 7


def test_activation_peak_is_attention_with_a_small_mlp() -> None:
    thin = replace(TINY, ffn=8)
    assert activation_peak_bytes(thin, step()) == 10 * (2 * 64 + 2 * 64 + 2 * 16) * 2
    assert activation_peak_bytes(thin, step(written_out=True)) == 10 * (2 * 64 + 4 * 64 + 2 * 16) * 2
    assert activation_peak_bytes(replace(thin, rope=False), step(written_out=True)) == 10 * (2 * 64 + 2 * 64 + 2 * 16) * 2
    assert activation_peak_bytes(thin, step(tp=4)) == 10 * (2 * 64 + 40) * 2
    assert activation_peak_bytes(thin, step(score_bytes=4)) == 10 * (2 * 64 + 160) * 2 + 10 * 100 * 8 * 4
    assert activation_peak_bytes(thin, step(score_bytes=4, tp=3)) == 10 * (2 * 64 + 54) * 2 + 10 * 100 * 3 * 4
    mla = replace(thin, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))
    assert activation_peak_bytes(mla, step()) == 10 * (2 * 64 + 8 * (2 * 12 + 2 * 6) + 24 + 16) * 2


def test_activation_peak_is_the_output_head_with_many_logits() -> None:
    assert activation_peak_bytes(TINY, step(logits=10, logit_bytes=10)) == 10 * 64 * 2 + 10 * 1000 * 10


def test_tokens_are_copied_for_each_expert_they_visit() -> None:
    mixture = replace(TINY, experts=Experts(8, 2, 128, shared_ffn=32))
    assert activation_peak_bytes(mixture, step()) == 10 * (2 * 64 + 2 * (256 + 128) + 3 * 32) * 2
    narrow = replace(TINY, experts=Experts(8, 2, 16))
    assert activation_peak_bytes(narrow, step()) == 10 * (2 * 64 + 2 * (64 + 16)) * 2
    for partly in (Experts(8, 2, 16, dense_layers=1), Experts(8, 2, 16, every=2)):
        assert activation_peak_bytes(replace(TINY, experts=partly), step()) == 10 * (2 * 64 + 3 * 256) * 2


def test_a_recommendation_model_by_hand() -> None:
    """Three vectors of 8, their three products in addition to the bottom's 8, and twice the widest layer of 32."""
    assert dlrm_peak_bytes(Dlrm("d", 8, (100, 100), (13, 32, 8), (16, 1)), 5, 4) == 5 * 4 * (24 + 11 + 64)


def work(task: Task = "train", **fields: Any) -> Workload:
    return Workload(task, "tiny", **fields)


def test_optimizer_state_bytes() -> None:
    for name, state in (("adamw", 2000), ("adam", 2000), ("sgd-momentum", 1000), ("sgd", 0), ("adafactor", 10), (None, 2000)):
        assert optimizer_bytes(work(optimizer=name), 1000, 4) == state
    assert state_sizes(work(optimizer="adamw-8bit"), 4096, 4) == [1040, 1040]  # a byte each, and a scale for every 256
    assert state_sizes(work(optimizer="adamw", include_optimizer_step=False), 1000, 4) == []


def test_temporary_optimizer_bytes() -> None:
    for name, fused, temporary in (("adamw", True, 0), ("adamw", False, 1000), ("sgd", False, 0), ("adafactor", True, 1000)):
        assert step_temporary(work(optimizer=name, optimizer_fused=fused), 1000) == temporary
    assert step_temporary(work(optimizer="adamw", optimizer_fused=False, include_optimizer_step=False), 1000) == 0


def test_parts_add_up_to_two_totals() -> None:
    estimate = build_estimate({"weights": 100, "context": 20, "slack": 3, "optimizer": 0}, (0.9, 1.1), (0.8, 1.2))
    assert (estimate.allocated.value, estimate.allocated.low, estimate.allocated.high) == pytest.approx((100, 90, 110))
    assert (estimate.device.value, estimate.device.low, estimate.device.high) == pytest.approx((123, 98.4, 147.6))
    assert list(estimate.parts) == ["weights", "context", "slack"]


def memory_estimate(shape: Transformer = TINY, task: Task = "serve", gpu: Any = None, **fields: Any) -> MemoryEstimate:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 3, "seq_in": 100, "seq_out": 20, "engine": "pytorch"}
    return inference_memory(Workload(task, shape.name, **(plain | fields)), shape, gpu)


def sizes(estimate: MemoryEstimate) -> dict[str, float]:
    return {name: figure.value for name, figure in estimate.parts.items()}


CACHE = 3 * 120 * 4 * 2 * 2 * 8 * 2  # sequences, tokens, layers, keys and values, heads, dimensions, bytes


def test_eager_pytorch_by_hand() -> None:
    parts = sizes(memory_estimate())
    assert parts["kv_cache"] == CACHE
    assert parts["temporary"] == CACHE // 8  # one layer's keys, reallocated one token longer
    prompt = 300 * max(2 * 64 + 3 * 256, 2 * 64 + 4 * 64 + 32) * 2
    head = 300 * 64 * 2 + 3 * 1000 * (2 + 8)
    assert parts["activations"] == max(prompt, head)
    assert parts["workspace"] == 65 * MIB
    assert parts["slack"] == int(20 * MIB + 0.2 * (parts["activations"] + parts["temporary"]) + 0.05 * CACHE)
    assert "cuda_graphs" not in parts


def test_memory_parts_by_task() -> None:
    assert sizes(memory_estimate(task="prefill"))["kv_cache"] == CACHE * 100 // 120
    assert "temporary" not in sizes(memory_estimate(task="prefill"))
    decode = sizes(memory_estimate(task="decode", engine="cuda-graphs"))
    assert decode["activations"] == max(3 * (2 * 64 + 3 * 256) * 2, 3 * 64 * 2 + 3 * 1000 * 2)
    assert decode["cuda_graphs"] == 64 * MIB
    forward = sizes(memory_estimate(task="forward"))
    assert "kv_cache" not in forward
    assert forward["activations"] == max(300 * (128 + 768) * 2, 300 * 64 * 2 + 300 * 1000 * 2)


def test_managed_engines_page_their_cache_and_profile_a_step() -> None:
    vllm = sizes(memory_estimate(engine="vllm"))
    assert vllm["kv_cache"] == CACHE * 128 // 120  # pages of 16
    assert vllm["cuda_graphs"] == 4 * 8 * MIB
    assert vllm["activations"] == max(8192 * (128 + 768) * 2, 8192 * 64 * 2 + 256 * 1000 * (2 + 39))
    assert vllm["slack"] == 150 * MIB
    llama_cpp = sizes(memory_estimate(engine="llama.cpp"))
    assert llama_cpp["kv_cache"] == CACHE * 256 // 120
    assert llama_cpp["activations"] == max(512 * (128 + 768) * 4, 512 * 64 * 4 + 512 * 1000 * 4)
    many = sizes(memory_estimate(engine="vllm", batch=300))
    assert many["activations"] == max(8192 * 896 * 2, 8192 * 64 * 2 + 300 * 1000 * 41)


def test_written_out_scores_by_engine() -> None:
    plain, eager = (sizes(memory_estimate(task="prefill", attention=kind))["activations"] for kind in ("sdpa", "eager"))
    assert eager == 300 * (2 * 64 + 4 * 64 + 32) * 2 + 300 * 100 * 8 * 8  # 2, 4 and 2 bytes
    assert plain < eager
    narrow = sizes(memory_estimate(engine="llama.cpp", attention="eager", seq_in=4000))["activations"]
    assert narrow == 512 * (128 + 160) * 4 + 512 * 4000 * 8 * 4


def test_late_tokens_attend_to_the_whole_context() -> None:
    """Prompts of one token, answers of 200: the scores of the last token are what is widest."""
    activations = sizes(memory_estimate(seq_in=1, seq_out=200, attention="eager", engine="pytorch"))["activations"]
    assert activations == 3 * (2 * 64 + 4 * 64 + 32) * 2 + 3 * 201 * 8 * 8


def test_images_are_patches_and_an_encoder_has_its_own_length() -> None:
    transformer = replace(TINY, causal=False, patches=Patches(224, 16), head=False)
    image_parts = sizes(memory_estimate(transformer, "forward", batch=1))
    assert (
        image_parts["activations"] == (14 * 14 + 1) * (128 + 768) * 2
    )  # 224 pixels a side in patches of 16, and one class token
    both = replace(TINY, encoder_layers=4, encoder_context=50)
    encoder_parts = sizes(memory_estimate(both))
    assert encoder_parts["kv_cache"] == 3 * (20 + 50) * 4 * 2 * 2 * 8 * 2


def test_autocast_casts_by_hand() -> None:
    linear = 4 * (64 * 64 + 2 * 64 * 16 + 64 * 64 + 3 * 64 * 256)
    copied = sizes(memory_estimate(task="prefill", precision="amp-bf16"))["temporary"]
    assert copied == 2 * (linear + 64 * 1000)
    halved = sizes(memory_estimate(task="prefill", precision="amp-bf16", parallel=Parallel(tp=2)))["temporary"]
    assert halved == copied // 2


def test_ranges_add_as_squares() -> None:
    estimate = memory_estimate(engine="vllm", gpu=None)
    spreads = {
        "activations": (0.6, 1.6),
        "workspace": (0.5, 2.0),
        "cuda_graphs": (0.3, 2.5),
        "context": (0.7, 1.3),
        "slack": (0.0, 2.5),
    }
    below = above = 0.0
    for name, (low, high) in spreads.items():
        part = estimate.parts[name]
        assert (part.low, part.high) == pytest.approx((low * part.value, high * part.value))
        below += (part.value * (1 - low)) ** 2
        above += (part.value * (high - 1)) ** 2
    assert estimate.device.low == pytest.approx(estimate.device.value - sqrt(below))
    assert estimate.device.high == pytest.approx(estimate.device.value + sqrt(above))
    plain = memory_estimate()
    assert plain.parts["activations"].high == pytest.approx(1.3 * plain.parts["activations"].value)
    assert plain.parts["temporary"].low == pytest.approx(0.8 * plain.parts["temporary"].value)
    split = memory_estimate(parallel=Parallel(tp=2))
    assert split.parts["context"].high == pytest.approx(2.0 * split.parts["context"].value)
    assert isinstance(split.device, Figure)


def test_engines_take_their_share_at_start() -> None:
    total = H100.memory_bytes
    for engine, year, share in (("vllm", 2025, 0.90), ("vllm", 2026, 0.92)):
        estimate = memory_estimate(engine=engine, year=year, gpu=H100)
        beside = (4 * 132 + 150) * MIB + (0 if year == 2026 else 4 * 8 * MIB)  # graphs outside the share until 2026
        assert estimate.device.value == int(total * share + (4 * 132 + 150) * MIB) + (beside - (4 * 132 + 150) * MIB)
    nvidia = memory_estimate(engine="tensorrt-llm", gpu=H100)
    used = sum(value for name, value in sizes(nvidia).items() if name != "kv_cache")
    assert nvidia.device.value == used + int((total - used) * 0.9)
    assert memory_estimate(engine="llama.cpp", gpu=H100).device.value < 2 * GIB


def test_sglang_leaves_its_reserve() -> None:
    estimate = memory_estimate(engine="sglang", gpu=H100)
    share = 1 - (512 + 1.5 * 8192 + 2 * 256 + 128) * MIB / H100.memory_bytes
    parts = sizes(estimate)
    static = H100.memory_bytes - int((H100.memory_bytes - parts["context"]) * (1 - share))
    assert estimate.device.value == static + parts["cuda_graphs"] + parts["activations"]


def test_a_perceptron_s_training_step_by_hand() -> None:
    """Two layers of 1024 x 1024 with biases: weights, gradients and two states of 4 bytes; autocast's copies of 2."""
    net = Mlp("net", (1024, 1024, 1024))
    weights = 2 * (1024 * 1024 + 1024)

    def mlp_sizes(**fields: Any) -> dict[str, int]:
        plain: dict[str, Any] = {"precision": "fp32", "batch": 16, "optimizer": "adamw"}
        return mlp_parts(Workload("train", "net", **(plain | fields)), net)[0]

    full = mlp_sizes()
    assert full["weights"] == 4 * weights
    assert full["optimizer"] == 8 * weights
    assert full["gradients"] == 4 * weights
    assert full["cast_weights"] == 0
    assert mlp_sizes(precision="bf16")["weights"] == 2 * weights
    mixed = mlp_sizes(precision="amp-bf16", batch=20000)  # so large a batch that the loss is the fullest moment
    assert mixed["cast_weights"] == 2 * weights
    assert mixed["weights"] == 4 * weights
    assert mlp_sizes(accumulation=2)["gradients"] == 2 * 4 * weights  # in addition to those of earlier accumulation steps
    assert mlp_sizes(optimizer="sgd")["optimizer"] == 0
    assert mlp_sizes(optimizer="sgd-momentum")["optimizer"] == 4 * weights
