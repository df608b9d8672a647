"""KV cache: bytes per token and per batch, by the kind of attention.

A decoder layer stores a key and a value of `kv_heads * head_dim` elements per token (MHA, GQA, MQA). MLA stores one latent and
one rotary part per token for all heads (DeepSeek-V2, arXiv 2405.04434); the indexer of sparse attention adds one key in fp8.
Layers with a sliding window store the window only; layers that share the keys and values of earlier ones store nothing. Linear-
attention and state-space layers store no tokens but a state of fixed size per sequence. The decoder of an encoder-decoder model
also stores keys and values of the encoder's output. Paged caches come in whole blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from whichgpu.base.names import unknown_word
from whichgpu.catalog.engines.record import EngineMemory
from whichgpu.workload.layer_pattern import attention_layers, full_attention_shape, full_layers, recurrent_layers
from whichgpu.workload.precisions import PRECISION_BY_NAME, WeightBlock
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel

BLOCK_TOKENS = 16  # vLLM's default block size
WINDOWED = EngineMemory(windowed_cache=True)
INDEX_SCALE_BYTES = 4  # fp32 scale of an indexer's key, whose elements are fp8 (vLLM's DeepseekV32IndexerCache)
KV_TYPES: Mapping[str, WeightBlock] = {name: one.kv_block for name, one in PRECISION_BY_NAME.items() if one.kv_block}


def kv_type(precision: str) -> WeightBlock:
    """Return how a KV cache precision (fp8, q8_0, …) stores elements: how many a block has, in how many bytes."""
    block = KV_TYPES.get(precision.lower())
    if block is None:
        raise unknown_word("precision", precision, tuple(KV_TYPES))
    return block


def kv_bytes_per_token(shape: Transformer, precision: str = "bf16") -> int:
    """Return the bytes that one more token adds to the KV cache, before any sliding window is full.

    >>> from whichgpu.workload.shapes import Transformer
    >>> llama = Transformer("", "llama", 4096, 32, 32, 8, 128, 14336, 128256, True, "rms", "silu", False, True, 0, 8192)
    >>> kv_bytes_per_token(llama) // 1024
    128
    """
    full, local = _layers(shape, 1)
    return local * _layer_token_bytes(shape, precision, 1) + full * _full_layer_token_bytes(shape, precision, 1)


def state_bytes(shape: Transformer, precision: str = "bf16", tp: int = 1, element: int = 4) -> int:
    """Return the bytes that the recurrent layers of a hybrid model store per sequence on one tensor-parallel rank.

    `element` is the engine's bytes of a state's element if the config states no type (default: fp32); windows of the
    convolutions have the activations' 16 bits.
    """
    mixer = shape.recurrent
    if mixer is None:
        return 0
    wide = 4 if precision == "fp32" else 2
    return recurrent_layers(shape) * -(-(mixer.state * (mixer.state_bytes or element) + mixer.conv_state * wide) // tp)


def kv_bytes(
    shape: Shape,
    sequences: int,
    context: int,
    precision: str = "bf16",
    block: int = BLOCK_TOKENS,
    *,
    source: int = 0,
    parallel: Parallel | None = None,
    memory: EngineMemory = WINDOWED,
) -> int:
    """Return KV cache bytes of `sequences` sequences of `context` tokens each; with a layout, those on the fullest GPU.

    `source` is the encoder's length in tokens (default: the model's fixed one); `memory` is the engine's, which may
    ignore sliding windows and chooses the type of recurrent states if the config states none.
    """
    if not isinstance(shape, Transformer) or not shape.has_kv_cache:
        return 0
    layout = parallel or Parallel()
    token = _layer_token_bytes(shape, precision, layout.tp)
    own = -(-context // layout.cp)
    full, local = _layers(shape, layout.pp)
    stored = full * cached_tokens(own, 0, block) * _full_layer_token_bytes(shape, precision, layout.tp)
    stored += local * cached_tokens(own, shape.window if memory.windowed_cache else 0, block) * token
    if shape.encoder_layers:
        stored += (full + local) * cached_tokens(source or shape.encoder_context or context, 0, block) * token
    states = -(-state_bytes(shape, precision, layout.tp, memory.state_bytes) // layout.pp)
    return sequences * (stored + states)


def cached_tokens(context: int, window: int, block: int) -> int:
    """Return the tokens for which a layer allocates cache, in whole blocks; a sliding window may straddle one more block.

    >>> cached_tokens(1000, 0, 16), cached_tokens(1000, 4096, 16), cached_tokens(100000, 4096, 16), cached_tokens(100000, 4096, 1)
    (1008, 1008, 4112, 4096)
    """
    if window and context > window:
        return (-(-(window - 1) // block) + 1) * block
    return -(-context // block) * block


def admission_bytes(
    shape: Transformer, context: int, precision: str, block: int, in_flight: int, parallel: Parallel | None = None
) -> int:
    """Return the bytes that vLLM grants one sequence of `context` tokens when it admits it, from which its log states KV tokens.

    Layers are managed in groups of equal size, the last of a kind padded. A sliding-window layer is granted its window, the
    tokens in flight and a block, since blocks that leave the window are freed only when a step has ended.
    """
    layout = parallel or Parallel()
    full, local = _layers(shape, layout.pp)
    size = max(1, _group_layers(full, local))
    token, wide = (count(shape, precision, layout.tp) for count in (_layer_token_bytes, _full_layer_token_bytes))
    longer = max(1, token // wide) if local else 1  # Pages of all layers have the same bytes, so narrow ones hold more tokens.
    granted = -(-full // size) * -(-context // (longer * block)) * longer * wide
    if local:
        granted += -(-local // size) * (-(-min(context, shape.window - 1 + in_flight) // block) + 1) * token
    states = -(-state_bytes(shape, precision, layout.tp) // layout.pp)
    return granted * size * block + states


def _group_layers(full: int, local: int) -> int:
    """Return the layers of a group of vLLM's hybrid KV cache manager (`_get_kv_cache_groups_uniform_page_size`).

    >>> _group_layers(32, 0), _group_layers(12, 12), _group_layers(10, 52), _group_layers(13, 12)
    (32, 12, 10, 13)
    """
    fewer, more = sorted((full, local))
    return more if more < 1.5 * fewer or not fewer else fewer


def _layers(shape: Transformer, pp: int) -> tuple[int, int]:
    """Return the number of layers with full attention and with a sliding window on the fullest pipeline stage."""
    stage = -(-(attention_layers(shape) - shape.kv_shared) // pp)
    full = min(stage, -(-full_layers(shape, shape.kv_shared) // pp))
    return full, stage - full


def _full_layer_token_bytes(shape: Transformer, precision: str, tp: int) -> int:
    """Return one token's bytes in a layer with full attention, which may have other heads."""
    return _layer_token_bytes(full_attention_shape(shape), precision, tp)


def _layer_token_bytes(shape: Transformer, precision: str, tp: int) -> int:
    """Return one token's bytes in one layer. Each tensor rank has at least one KV head; every rank has the MLA latent."""
    kind = kv_type(precision)
    index = shape.sparse.dim + INDEX_SCALE_BYTES if shape.sparse else 0
    if shape.mla:
        return kind.size(shape.mla.kv_rank + shape.mla.rope_dim) + index
    heads = max(1, -(-shape.kv_heads // tp))
    return 2 * kind.size(heads * shape.head_dim) + index
