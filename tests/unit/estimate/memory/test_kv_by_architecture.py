"""KV cache of published models, each with its arithmetic written out: windows, MLA, sparse attention, recurrent states."""

from __future__ import annotations

from whichgpu.catalog.engines.record import EngineMemory
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.kv import kv_bytes, kv_bytes_per_token, state_bytes
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer, as_transformer

CATALOG = Catalog()
BF16, KEY_AND_VALUE = 2, 2


def model(name: str) -> Transformer:
    return as_transformer(find_model(name, CATALOG))


def test_gemma_3_caches_a_window_in_five_of_six_layers() -> None:
    shape = model("gemma-3-27b")
    layer = KEY_AND_VALUE * 16 * 128 * BF16  # 16 KV heads of 128
    full, local = 10, 52  # of 62 layers, every sixth has full attention
    window = (1023 // 16 + 1 + 1) * 16  # A window of 1,024 tokens in blocks of 16 may straddle one more block.
    assert kv_bytes_per_token(shape) == 62 * layer
    assert kv_bytes(shape, 1, 32768, "bf16", 16) == full * 32768 * layer + local * window * layer


def test_gpt_oss_caches_128_tokens_in_every_second_layer_unless_windows_are_ignored() -> None:
    shape = model("gpt-oss-20b")
    layer = KEY_AND_VALUE * 8 * 64 * BF16  # 8 KV heads of 64
    assert kv_bytes_per_token(shape) == 24 * layer == 49152
    assert kv_bytes(shape, 1, 8192, "bf16", 1) == 12 * 8192 * layer + 12 * 128 * layer
    assert kv_bytes(shape, 1, 8192, "bf16", 1, memory=EngineMemory(windowed_cache=False)) == 24 * 8192 * layer


def test_deepseek_caches_one_latent_and_one_rotary_key_and_with_sparse_attention_an_index_key() -> None:
    latent = (512 + 64) * BF16
    assert kv_bytes_per_token(model("deepseek-v3")) == 61 * latent == 70272
    index = 128 + 4  # fp8 key of the indexer and its fp32 scale
    assert kv_bytes_per_token(model("deepseek-v3.2")) == 61 * (latent + index)
    assert kv_bytes_per_token(model("glm-5")) == 78 * (latent + index)


def test_qwen3_next_caches_tokens_in_every_fourth_layer_and_a_state_in_the_others() -> None:
    shape = model("qwen3-next-80b-a3b")
    layer = KEY_AND_VALUE * 2 * 256 * BF16  # 2 KV heads of 256
    delta = 32 * 128 * 128 * 4  # 32 value heads, a key of 128 by a value of 128, fp32
    convolution = (2 * 16 * 128 + 32 * 128) * 3 * BF16  # queries, keys and values of the last three tokens
    assert kv_bytes_per_token(shape) == 12 * layer == 24576
    assert state_bytes(shape) == 36 * (delta + convolution)
    assert kv_bytes(shape, 5, 4096, "bf16", 16) == 5 * (12 * 4096 * layer + 36 * (delta + convolution))
    qwen35 = model("qwen3.5-9b")
    assert kv_bytes_per_token(qwen35) == 8 * KEY_AND_VALUE * 4 * 256 * BF16
    assert state_bytes(qwen35) == 24 * (delta + convolution)


def test_states_of_unstated_type_have_the_engine_s_choice() -> None:
    state, convolution = 32 * 128 * 128, (2 * 16 * 128 + 32 * 128) * 3 * BF16
    for engine, unstated in (("vllm", 2), ("sglang", 4)):
        memory = engine_record(engine).memory
        for name, layers, element in (("qwen3-next-80b-a3b", 36, unstated), ("qwen3.5-9b", 24, 4)):  # Qwen3.5 states float32.
            shape = model(name)
            tokens = 16 * kv_bytes_per_token(shape)
            assert kv_bytes(shape, 1, 16, memory=memory) == tokens + layers * (state * element + convolution)


def test_nemotron_h_caches_tokens_in_four_of_52_layers_and_a_state_in_24() -> None:
    shape = model("nemotron-h-8b")
    mamba = 128 * 64 * 128 * 4  # 128 heads of 64 by a state of 128, fp32
    convolution = (128 * 64 + 2 * 8 * 128) * 3 * BF16
    assert kv_bytes_per_token(shape) == 4 * KEY_AND_VALUE * 8 * 128 * BF16
    assert state_bytes(shape) == 24 * (mamba + convolution)
    assert state_bytes(shape, tp=8) == 24 * (mamba + convolution) // 8


def test_kimi_linear_has_mla_in_six_layers_and_jamba_attention_in_four() -> None:
    assert kv_bytes_per_token(model("kimi-linear-48b-a3b")) == 6 * (512 + 64) * BF16
    assert kv_bytes_per_token(model("jamba-v0.1")) == 4 * KEY_AND_VALUE * 8 * 128 * BF16
