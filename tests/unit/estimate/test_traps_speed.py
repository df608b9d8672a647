"""Traps that tools of this kind fall into, where they concern time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.api.workloads.estimate import estimate
from whichgpu.base.units import GB, GIB
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    "max_position_embeddings": 32768,
}  # fmt: skip
H200 = "H200 SXM"


def seconds(task: str, model: str | dict[str, Any], gpu: str = H200, **fields: Any) -> float:
    answer = estimate(task, model, gpu=gpu, **fields)
    assert answer.time is not None
    return answer.time.value


def test_bandwidth_is_in_gigabytes_not_gibibytes() -> None:
    """4.8 TB/s is 4.8e12 bytes: reading it as GiB makes every bandwidth-bound step 7% too fast.

    The floor of one token of an 8B model in bf16 is 16.06 GB less the embedding, of which one row is read.
    """
    assert Catalog().gpu_by_id["h200-sxm"].memory_bandwidth == 4800 * GB
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    floor = weights / (4800 * GB)
    time = seconds("decode", "llama-3.1-8b", precision="bf16", batch=1, seq_in=128)
    assert time >= floor
    assert time > weights / (4800 * GIB) * 1.07
    assert time <= 1.6 * floor


def test_grouped_query_attention_reduces_kv_cache_reads() -> None:
    """32 heads on 8 key-value heads: a quarter of the cache. Long contexts and large batches must show it."""
    fields: dict[str, Any] = {"precision": "bf16", "batch": 32, "seq_in": 8192}
    full, grouped = (seconds("decode", {**LLAMA, "num_key_value_heads": heads}, **fields) for heads in (32, 8))
    cache = 2 * 32 * 8192 * 32 * 128 * 32 * 2  # K and V, batch, context, heads, width, layers, bytes: 137 GB
    saved = full - grouped
    floor = 0.75 * cache / (4800 * GB)  # a kernel that shares keys among queries may reach less of the bandwidth
    assert 0.7 * floor <= saved <= 2.5 * floor


def test_a_gated_mlp_has_three_matrices() -> None:
    """Gate, up and down: counting two leaves a quarter of an 8B model's weights out."""
    shape = find_model("llama-3.1-8b", Catalog())
    assert isinstance(shape, Transformer)
    assert count_parameters(shape).total - count_parameters(replace(shape, gated=False)).total == 32 * 4096 * 14336
    time = seconds("decode", "llama-3.1-8b", precision="bf16", batch=1, seq_in=128)
    assert time >= 2 * (8_030_261_248 - 128_256 * 4096) / (4800 * GB)


@pytest.mark.parametrize("batch", [1, 2, 4, 16, 64])
def test_moe_reads_the_distinct_experts_of_its_batch(batch: int) -> None:
    """2 of 8 experts for one token, 1-(1-2/8)^B of them for B: all but all at 16. Neither 2/8 always nor all always."""
    layer = 3 * 4096 * 14336
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    share = 1 - (1 - 2 / 8) ** batch
    weights = 2 * (32 * (attention + 8 * share * layer) + 32000 * 4096)
    time = seconds("decode", MIXTRAL, precision="bf16", batch=batch, seq_in=128, engine="vllm")
    floor = weights / (4800 * GB)
    assert time >= 0.98 * floor
    assert time <= 2.2 * floor + 1.5e-3


def test_moe_step_grows_with_the_batch_more_than_a_dense_one() -> None:
    def growth(model: dict[str, Any]) -> float:
        one, eight = (seconds("decode", model, precision="bf16", batch=batch, seq_in=128, engine="vllm") for batch in (1, 8))
        return eight / one

    assert growth(MIXTRAL) > 2
    assert growth(LLAMA) < 1.4


def test_only_active_experts_compute() -> None:
    """Prefill of Mixtral costs what its 13 billion active parameters cost, not its 47 billion."""
    time = seconds("prefill", MIXTRAL, precision="bf16", batch=4, seq_in=2048, engine="vllm")
    peak = Catalog().gpu_by_id["h200-sxm"].peaks["bf16"]
    active = 2 * 12.6e9 * 4 * 2048 / peak
    assert time >= active
    assert time < 2 * 46.4e9 * 4 * 2048 / peak


def test_8b_in_fp16_is_not_for_a_16_gb_t4() -> None:
    """16.06 GB of weights against 15 GiB that the driver shows: it does not fit, although 16 >= 16. Time is still estimated."""
    answer = estimate("decode", "llama-3.1-8b", gpu="T4", precision="fp16", batch=1, seq_in=512, engine="pytorch")
    assert answer.fits == "no"
    assert answer.time is not None
    assert answer.time.value >= 2 * (8_030_261_248 - 128_256 * 4096) / (320 * GB)
    assert estimate("decode", "llama-3.1-8b", gpu="T4", precision="int4", batch=1, seq_in=512, engine="vllm").fits != "no"


def test_the_output_head_computes_for_the_last_token_only_in_prefill() -> None:
    """A prompt needs logits for its last token: 128,256 x 4,096 for every token would add a seventh."""
    small = {**LLAMA, "num_hidden_layers": 8}
    wide, narrow = (
        seconds("prefill", {**small, "vocab_size": size}, batch=4, seq_in=4096, engine="vllm") for size in (256_000, 32_000)
    )
    head = 2 * 224_000 * 4096 * 4 * 4096 / Catalog().gpu_by_id["h200-sxm"].peaks["bf16"]
    assert wide - narrow < 0.5 * head


def test_causal_attention_is_half_the_work() -> None:
    """Quadratic in the prompt, halved by the mask: 32k tokens of an 8B model cost more than 16 times 2k, not 64."""
    short, long = (seconds("prefill", "llama-3.1-8b", batch=1, seq_in=length, engine="vllm") for length in (2048, 32768))
    flops = 2 * 7.5e9 * 32768 + 0.5 * 4 * 32 * 4096 * 32768**2
    assert long >= flops / Catalog().gpu_by_id["h200-sxm"].peaks["bf16"]
    assert 16 < long / short < 32


def test_peaks_are_dense() -> None:
    """Marketing rates with sparsity are twice these; no step of dense weights reaches them."""
    assert Catalog().gpu_by_id["h200-sxm"].peaks["bf16"] == pytest.approx(989.4e12, rel=0.01)
    time = seconds("train", "llama-3.1-8b", batch=8, seq_in=2048, precision="bf16")
    assert time >= 6 * 7.5e9 * 8 * 2048 / 989.5e12
