"""The key-value cache: bytes a token and for a batch, by kind of attention.

A decoder layer keeps a key and a value of `kv_heads * head_dim` elements for every token it may look back at
(multi-head, grouped and multi-query attention alike). Latent attention keeps one latent and one rotary part a token,
shared by all heads (DeepSeek-V2, arXiv 2405.04434). Layers with a sliding window keep the window's tokens only. The
decoder of an encoder-decoder model keeps keys and values of the encoder's output beside its own. Engines that page the
cache hand it out in blocks of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

from whichgpu.base.names import unknown_word
from whichgpu.workload.precisions import PRECISION_BY_NAME, Block
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel

BLOCK_TOKENS = 16  # vLLM's default page

KV_TYPES: Mapping[str, Block] = {name: one.kv_block for name, one in PRECISION_BY_NAME.items() if one.kv_block}


def kv_type(precision: str) -> Block:
    """How a cache precision stores its elements."""
    found = KV_TYPES.get(precision.lower())
    if found is None:
        raise unknown_word("precision", precision, tuple(KV_TYPES))
    return found


def kv_bytes_per_token(shape: Transformer, precision: str = "bf16") -> int:
    """Bytes one more token adds while every layer still looks at it.

    >>> from whichgpu.workload.shapes import Transformer
    >>> llama = Transformer("", "llama", 4096, 32, 32, 8, 128, 14336, 128256, True, "rms", "silu", False, True, 0, 8192)
    >>> kv_bytes_per_token(llama) // 1024
    128
    """
    return shape.layers * _layer_token_bytes(shape, precision, tp=1)


def kv_bytes(
    shape: Shape,
    sequences: int,
    context: int,
    precision: str = "bf16",
    block: int = BLOCK_TOKENS,
    *,
    source: int = 0,
    parallel: Parallel | None = None,
    windowed: bool = True,
) -> int:
    """Bytes of the cache of so many sequences of `context` tokens, on the fullest GPU where a layout is given.

    `source` is the encoder's length for encoder-decoder models (the model's own fixed one by default). With `windowed` off
    an engine is meant that keeps every token whatever the layer's window.
    """
    if not isinstance(shape, Transformer) or not shape.has_kv_cache:
        return 0
    layout = parallel or Parallel()
    token = _layer_token_bytes(shape, precision, layout.tp)
    own = -(-context // layout.cp)
    full, local = _layers(shape, layout.pp, windowed)
    tokens = full * cached_tokens(own, 0, block) + local * cached_tokens(own, shape.window, block)
    if shape.encoder_layers:
        tokens += (full + local) * cached_tokens(source or shape.encoder_context or context, 0, block)
    return sequences * tokens * token


def cached_tokens(context: int, window: int, block: int) -> int:
    """Tokens a layer has room for: whole blocks; a window that slides may straddle one more.

    >>> cached_tokens(1000, 0, 16), cached_tokens(1000, 4096, 16), cached_tokens(100000, 4096, 16), cached_tokens(100000, 4096, 1)
    (1008, 1008, 4112, 4096)
    """
    if window and context > window:
        return (-(-(window - 1) // block) + 1) * block
    return -(-context // block) * block


def full_layers(shape: Transformer) -> int:
    """Layers that see everything: all without a window, every n-th with one (Gemma-2: 2, Gemma-3: 6, gpt-oss: 2)."""
    if not shape.window:
        return shape.layers
    return shape.layers // shape.global_every if shape.global_every else 0


def _layers(shape: Transformer, pp: int, windowed: bool) -> tuple[int, int]:
    """Layers on the fullest stage: those that see everything, those with a window."""
    stage = -(-shape.layers // pp)
    if not windowed:
        return stage, 0
    full = min(stage, -(-full_layers(shape) // pp))
    return full, stage - full


def _layer_token_bytes(shape: Transformer, precision: str, tp: int) -> int:
    """Of one token in one layer. Heads are split over tensor-parallel ranks, at least one each; a latent is on all of them."""
    kind = kv_type(precision)
    if shape.mla:
        return kind.size(shape.mla.kv_rank + shape.mla.rope_dim)
    heads = max(1, -(-shape.kv_heads // tp))
    return 2 * kind.size(heads * shape.head_dim)
