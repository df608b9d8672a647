"""Shapes of well-known models, written by hand from their config.json, for tests of what shapes lead to."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.workload.shapes import Experts, LatentAttention, Transformer

LLAMA_3_8B = Transformer(
    name="llama-3-8b",
    model_type="llama",
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn=14336,
    vocab=128256,
    gated=True,
    norm="rms",
    activation="silu",
    tied=False,
    rope=True,
    positions=0,
    max_context=8192,
)
LLAMA_3_70B = replace(LLAMA_3_8B, name="llama-3-70b", hidden=8192, layers=80, heads=64, ffn=28672)
LLAMA_2_7B = replace(LLAMA_3_8B, name="llama-2-7b", kv_heads=32, ffn=11008, vocab=32000, max_context=4096)
LLAMA_32_1B = replace(LLAMA_3_8B, name="llama-3.2-1b", hidden=2048, layers=16, head_dim=64, ffn=8192, tied=True)
MIXTRAL = replace(
    LLAMA_3_8B, name="mixtral-8x7b", model_type="mixtral", vocab=32000, experts=Experts(8, 2, 14336), max_context=32768
)
MISTRAL_V01 = replace(LLAMA_3_8B, name="mistral-7b-v0.1", model_type="mistral", vocab=32000, window=4096, max_context=32768)
QWEN_05B = replace(
    LLAMA_3_8B,
    name="qwen2.5-0.5b",
    model_type="qwen2",
    hidden=896,
    layers=24,
    heads=14,
    kv_heads=2,
    head_dim=64,
    ffn=4864,
    vocab=151936,
    tied=True,
    qkv_bias=True,
)
QWEN_32B = replace(LLAMA_3_8B, name="qwen2.5-32b", hidden=5120, layers=64, heads=40, ffn=27648, vocab=152064, qkv_bias=True)
DEEPSEEK_V3 = replace(
    LLAMA_3_8B,
    name="deepseek-v3",
    model_type="deepseek_v3",
    hidden=7168,
    layers=61,
    heads=128,
    kv_heads=128,
    head_dim=192,
    ffn=18432,
    vocab=129280,
    experts=Experts(256, 8, 2048, shared_ffn=2048, dense_layers=3),
    mla=LatentAttention(kv_rank=512, q_rank=1536, nope_dim=128, rope_dim=64, value_dim=128),
    max_context=163840,
)
GEMMA_2_9B = replace(
    LLAMA_3_8B,
    name="gemma-2-9b",
    hidden=3584,
    layers=42,
    heads=16,
    head_dim=256,
    vocab=256000,
    tied=True,
    window=4096,
    global_every=2,
)
GEMMA_3_27B = replace(
    LLAMA_3_8B,
    name="gemma-3-27b",
    hidden=5376,
    layers=62,
    kv_heads=16,
    ffn=21504,
    vocab=262208,
    tied=True,
    window=1024,
    global_every=6,
    max_context=131072,
)
GPT_OSS_20B = replace(
    LLAMA_3_8B,
    name="gpt-oss-20b",
    model_type="gpt_oss",
    hidden=2880,
    layers=24,
    heads=64,
    head_dim=64,
    ffn=2880,
    vocab=201088,
    experts=Experts(32, 4, 2880, bias=True),
    window=128,
    global_every=2,
    max_context=131072,
)
FALCON_7B = replace(
    LLAMA_3_8B,
    name="falcon-7b",
    model_type="falcon",
    hidden=4544,
    heads=71,
    kv_heads=1,
    head_dim=64,
    ffn=18176,
    vocab=65024,
    gated=False,
    norm="layer",
    activation="gelu",
    tied=True,
    parallel_block=True,
    norms=1,
)
BERT_LARGE = replace(
    LLAMA_3_8B,
    name="bert-large",
    model_type="bert",
    hidden=1024,
    layers=24,
    heads=16,
    kv_heads=16,
    head_dim=64,
    ffn=4096,
    vocab=30522,
    gated=False,
    norm="layer",
    activation="gelu",
    tied=True,
    rope=False,
    positions=512,
    max_context=512,
    causal=False,
)
WHISPER_SMALL = replace(
    LLAMA_3_8B,
    name="whisper-small",
    model_type="whisper",
    hidden=768,
    layers=12,
    heads=12,
    kv_heads=12,
    head_dim=64,
    ffn=3072,
    vocab=51865,
    gated=False,
    norm="layer",
    activation="gelu",
    tied=True,
    rope=False,
    positions=448,
    max_context=448,
    encoder_layers=12,
    encoder_context=1500,
)
