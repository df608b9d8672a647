"""The key-value cache: known models' bytes, windows, latents, pages and layouts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit import shapes
from whichgpu.base.errors import UnknownName
from whichgpu.base.units import GIB
from whichgpu.catalog.engines.record import EngineMemory
from whichgpu.estimate.memory.kv import cached_tokens, kv_bytes, kv_bytes_per_token
from whichgpu.workload.layer_pattern import full_layers
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Mlp
from whichgpu.workload.workload import Parallel


def test_llama_3_8b_takes_128_kib_a_token() -> None:
    assert kv_bytes_per_token(shapes.LLAMA_3_8B) == 128 * 1024


def test_llama_3_70b_for_32_sequences_of_8k_takes_80_gib_since_heads_are_grouped() -> None:
    assert kv_bytes(shapes.LLAMA_3_70B, 32, 8192) == 80 * GIB
    ungrouped = replace(shapes.LLAMA_3_70B, kv_heads=64)
    assert kv_bytes(ungrouped, 32, 8192) == 640 * GIB  # what leaving out grouped heads would say


def test_deepseek_v3_keeps_one_latent_and_one_rotary_part_a_token() -> None:
    assert kv_bytes_per_token(shapes.DEEPSEEK_V3) == 70_272 == 61 * (512 + 64) * 2
    assert kv_bytes(shapes.DEEPSEEK_V3, 1, 16) == 16 * 70_272


def test_a_latent_is_on_every_tensor_parallel_rank() -> None:
    assert kv_bytes(shapes.DEEPSEEK_V3, 8, 4096, parallel=Parallel(tp=8)) == kv_bytes(shapes.DEEPSEEK_V3, 8, 4096)


def test_mixtral_caches_like_a_dense_model() -> None:
    assert kv_bytes_per_token(shapes.MIXTRAL) == 2 * 32 * 8 * 128 * 2


def test_one_key_head_serves_all_queries() -> None:
    assert kv_bytes_per_token(shapes.FALCON_7B) == 32 * 2 * 64 * 2


def test_every_other_layer_of_gemma_2_forgets_beyond_its_window() -> None:
    token = 2 * 8 * 256 * 2
    assert full_layers(shapes.GEMMA_2_9B) == 21
    assert kv_bytes(shapes.GEMMA_2_9B, 1, 8192, block=1) == 21 * token * (8192 + 4096)
    assert kv_bytes(shapes.GEMMA_2_9B, 1, 4096, block=1) == 42 * token * 4096


def test_five_of_six_layers_of_gemma_3_forget_beyond_1024_tokens() -> None:
    token = 2 * 16 * 128 * 2
    assert full_layers(shapes.GEMMA_3_27B) == 10
    assert kv_bytes(shapes.GEMMA_3_27B, 1, 131072, block=1) == token * (10 * 131072 + 52 * 1024)
    kept_whole = kv_bytes(shapes.GEMMA_3_27B, 1, 131072, block=1, memory=EngineMemory(windowed_cache=False))
    assert kept_whole == token * 62 * 131072


def test_gpt_oss_alternates_and_mistral_has_a_window_everywhere() -> None:
    assert full_layers(shapes.GPT_OSS_20B) == 12
    assert kv_bytes(shapes.GPT_OSS_20B, 1, 4096, block=1) == 2 * 8 * 64 * 2 * 12 * (4096 + 128)
    assert full_layers(shapes.MISTRAL_V01) == 0
    assert kv_bytes(shapes.MISTRAL_V01, 1, 32768, block=1) == kv_bytes(shapes.MISTRAL_V01, 1, 4096, block=1)


def test_a_window_that_slides_touches_one_page_more() -> None:
    assert cached_tokens(4096, 4096, 16) == 4096
    assert cached_tokens(4097, 4096, 16) == 4112


@pytest.mark.parametrize(("context", "room"), [(1, 16), (16, 16), (17, 32), (1000, 1008)])
def test_pages_are_whole(context: int, room: int) -> None:
    assert kv_bytes(shapes.LLAMA_3_8B, 3, context) == 3 * room * 128 * 1024


@pytest.mark.parametrize(
    ("precision", "share"), [("fp32", 2.0), ("fp16", 1.0), ("fp8", 0.5), ("int8", 0.5), ("q8_0", 34 / 64), ("q4_0", 18 / 64)]
)
def test_narrower_caches_take_their_share(precision: str, share: float) -> None:
    assert kv_bytes(shapes.LLAMA_3_8B, 4, 4096, precision) == share * kv_bytes(shapes.LLAMA_3_8B, 4, 4096)


def test_an_encoder_decoder_keeps_the_encoder_s_keys_too() -> None:
    token = 12 * 2 * 768 * 2
    assert kv_bytes(shapes.WHISPER_SMALL, 2, 448, block=1) == 2 * token * (448 + 1500)
    t5 = replace(shapes.WHISPER_SMALL, encoder_context=0)
    assert kv_bytes(t5, 1, 64, block=1, source=512) == token * (64 + 512)


def test_models_without_decoding_have_no_kv_cache() -> None:
    assert not shapes.BERT_LARGE.has_kv_cache
    assert kv_bytes(shapes.BERT_LARGE, 8, 512) == 0
    assert kv_bytes(Mlp("", (8, 8)), 8, 512) == 0


@pytest.mark.parametrize(("tp", "share"), [(2, 2), (4, 4), (8, 8), (16, 8), (64, 8)])
def test_key_heads_are_split_and_then_replicated(tp: int, share: int) -> None:
    assert kv_bytes(shapes.LLAMA_3_70B, 4, 4096, parallel=Parallel(tp=tp)) * share == kv_bytes(shapes.LLAMA_3_70B, 4, 4096)


def test_stages_hold_their_layers_and_context_parallel_its_tokens() -> None:
    whole = kv_bytes(shapes.LLAMA_3_70B, 4, 4096)
    assert kv_bytes(shapes.LLAMA_3_70B, 4, 4096, parallel=Parallel(pp=4)) * 4 == whole
    assert kv_bytes(shapes.LLAMA_3_70B, 4, 4096, parallel=Parallel(cp=2)) * 2 == whole
    assert kv_bytes(shapes.LLAMA_3_70B, 4, 4096, parallel=Parallel(dp=8)) == whole


def test_kv_cache_has_the_activation_dtype_by_default() -> None:
    defaults = [PRECISION_BY_NAME[name].kv_default for name in ("tf32", "amp-bf16", "fp8", "q4_k_m")]
    assert defaults == ["fp32", "bf16", "bf16", "f16"]


def test_an_unknown_cache_precision_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as refused:
        kv_bytes(shapes.LLAMA_3_8B, 1, 16, "fp7")
    assert "fp8" in refused.value.choices
