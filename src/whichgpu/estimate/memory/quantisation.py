"""Bytes of weights by precision: how each scheme stores a matrix, and which tensors stay in 16 bit.

| precision | linear layers | embedding and head | norms and biases |
|---|---|---|---|
| fp32, fp32-default, tf32, amp-* | 4 bytes (autocast keeps fp32 weights) | 4 | 4 |
| bf16, fp16 | 2 | 2 | 2 |
| fp8 | 1, and two fp32 scales (weight, input) a matrix | 2 | 2 |
| int8 | 1, and an fp32 scale a row (per output channel) | 2 | 2 |
| int4 | groups of 128: 64 bytes, fp16 scale, 4-bit zero (GPTQ, AWQ) | 2 | 2 |
| nvfp4 | blocks of 16: 8 bytes and an fp8 scale; two fp32 scales a matrix | 2 | 2 |
| mxfp4 | blocks of 32: 16 bytes and a one-byte scale; of an MoE model the experts alone | 2 | 2 |
| GGUF | by llama.cpp's rule (`gguf_mix`) | by the rule | 4 |

Serving engines quantise the linear layers of the blocks and skip embedding, head and MoE router: `ignore: lm_head` in
compressed-tensors, `modules_to_not_convert` in GPTQ and AWQ, ModelOpt's defaults for NVFP4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

from whichgpu.base.names import unknown_word
from whichgpu.estimate.memory.gguf_mix import ALIASES, MIXES, TYPES, GgufModelTraits, tensor_type
from whichgpu.workload.layer_pattern import full_attention_shape, has_full_attention, layer_parts
from whichgpu.workload.layouts import expert_shards
from whichgpu.workload.parameters import count_parameters, indexer_matrices, recurrent_matrices
from whichgpu.workload.precisions import PRECISION_BY_NAME, PRECISIONS, TRAINED_PRECISIONS, WeightBlock
from whichgpu.workload.shapes import Shape, Transformer, WeightsOnly
from whichgpu.workload.workload import Parallel

DEFAULT_PRECISION = "bf16"
# Within this relative difference another precision is assumed to be that of the model's file, and the file's size is used.
STORED_TOLERANCE = 0.12


class WeightScheme(msgspec.Struct, frozen=True):
    """How a precision stores weights: linear layers in blocks plus bytes per row and matrix; all else at `other` bytes."""

    linear: WeightBlock
    other: int
    row_bytes: int = 0
    matrix_bytes: int = 0
    experts_only: bool = False  # in an MoE model all matrices but the experts' take `other` bytes per weight

    def size(self, weights: int, row: int, matrices: int) -> int:
        """Return the bytes of `weights` weights in `matrices` matrices with `row` weights per row."""
        return self.linear.size(weights) + self.row_bytes * (weights // max(1, row)) + self.matrix_bytes * matrices


SCHEMES: Mapping[str, WeightScheme] = {
    name: WeightScheme(one.block, one.other_bytes, one.row_bytes, one.matrix_bytes, one.experts_only)
    for name, one in PRECISION_BY_NAME.items()
    if one.block
}
# Sizes are exact in 16 and 32 bit; files of one quantised precision differ in group size and in the tensors they skip.
WEIGHT_RANGES = {"exact": (1.0, 1.0), "quantised": (0.98, 1.03)}

# Families whose GGUF files store query, key and value as one matrix.
FUSED_QKV = frozenset(("gpt2", "falcon", "bloom", "mpt", "gpt_neox", "phi", "phi3"))


class MatrixGroup(msgspec.Struct, frozen=True):
    """Equal matrices: their role in llama.cpp's names, the number of weights in all, and of weights per row."""

    role: str
    layer: int
    weights: int
    row: int
    count: int = 1


class WeightBytes(msgspec.Struct, frozen=True):
    """Bytes of a model's weights, grouped by how layouts shard them."""

    embedding: int
    head: int
    experts: int
    keys_values: int  # K and V projections: sharded by KV heads, replicated beyond
    linear: int
    replicated: int  # norms, biases, routers, MLA down-projections: on every tensor-parallel rank

    @property
    def total(self) -> int:
        """Bytes of all weights."""
        return self.embedding + self.head + self.experts + self.keys_values + self.linear + self.replicated


def precisions() -> tuple[str, ...]:
    """Return every accepted name of a precision, including GGUF's."""
    return tuple(dict.fromkeys((*PRECISIONS, *MIXES, *ALIASES)))


def canonical_precision(name: str) -> str:
    """Return the canonical name of a precision; raise UnknownName with the nearest ones."""
    lowered = name.lower()
    lowered = ALIASES.get(lowered, lowered)
    if lowered in SCHEMES or lowered in MIXES:
        return lowered
    raise unknown_word("precision", name, precisions())


def is_gguf(precision: str) -> bool:
    """Whether a precision is a GGUF mix of llama.cpp."""
    return precision in MIXES


def activation_bytes(precision: str) -> int:
    """Return the bytes of an activation element that goes with weights of a precision."""
    return PRECISION_BY_NAME[precision].compute_bytes


def weight_range(precision: str | None) -> tuple[float, float]:
    """Return the 90% range of the bytes of weights, as factors."""
    exact = precision is None or precision in TRAINED_PRECISIONS or precision in ("f16", "f32")
    return WEIGHT_RANGES["exact" if exact else "quantised"]


def weight_bytes(shape: Shape, precision: str | None = None, parallel: Parallel | None = None) -> int:
    """Return the bytes of the weights (on the fullest GPU if a layout is given), by default in the file's precision or bf16."""
    name = canonical_precision(precision or DEFAULT_PRECISION)
    total = split_weights(shape, name).total if isinstance(shape, Transformer) else _uniform_bytes(shape, name)
    stored = shape.weight_bytes if isinstance(shape, WeightsOnly) else shape.stored_bytes
    own = precision is None or name == shape.native
    as_stored = stored and (own or abs(stored - total) <= STORED_TOLERANCE * total)
    size = stored if as_stored else total
    if parallel is None:
        return size
    if isinstance(shape, Transformer) and not as_stored:
        return _fullest(split_weights(shape, name), shape, parallel)
    return _ceil(size, parallel.tp * parallel.pp)


@lru_cache(maxsize=256)
def split_weights(shape: Transformer, precision: str) -> WeightBytes:
    """Return the bytes of a transformer's weights, grouped by how layouts shard them."""
    parameters = count_parameters(shape)
    sizes = {"experts": 0, "keys_values": 0, "linear": 0, "replicated": 0}
    counted = 0
    for matrices in layer_matrices(shape):
        if matrices.role == "router":
            continue  # Routers stay in 16 bit and are counted with the small parameters.
        counted += matrices.weights
        sizes[_shard_group(matrices.role)] += matrix_bytes(matrices, shape, precision)
    others = max(0, parameters.linear - counted)  # These are encoders, projections and matrices without a role.
    sizes["linear"] += matrix_bytes(MatrixGroup("other", 0, others, shape.hidden), shape, precision) if others else 0
    small = max(0, parameters.total - parameters.embedding - parameters.head - counted - others)
    sizes["replicated"] += small * (TYPES["f32"].bytes if is_gguf(precision) else SCHEMES[precision].other)
    embedding = table_bytes(shape, precision, parameters.embedding, shape.tied)
    head = table_bytes(shape, precision, parameters.head, tied=True) if parameters.head else 0
    return WeightBytes(embedding, head, **sizes)


def layer_matrices(shape: Transformer) -> Iterator[MatrixGroup]:
    """Yield the matrices of the decoder's layers, or of the encoder's if there is no decoder."""
    for layer in range(shape.layers):
        parts = layer_parts(shape, layer)
        if parts.attention:
            own = full_attention_shape(shape) if has_full_attention(shape, layer) else shape
            yield from _attention_matrices(own, layer)
        if parts.recurrent:
            for rows, columns in recurrent_matrices(shape):
                yield MatrixGroup("ssm", layer, rows * columns, rows)
        if parts.mlp:
            yield from _mlp_matrices(shape, layer)


def is_moe_layer(shape: Transformer, layer: int) -> bool:
    """Whether a layer has experts instead of a dense MLP."""
    return shape.experts is not None and layer_parts(shape, layer).experts


def _attention_matrices(shape: Transformer, layer: int) -> Iterator[MatrixGroup]:
    h = shape.hidden
    for rows, columns in indexer_matrices(shape):
        yield MatrixGroup("latent_down", layer, rows * columns, rows)
    if mla := shape.mla:
        query = shape.heads * (mla.nope_dim + mla.rope_dim)
        down = h * (mla.q_rank + mla.kv_rank + mla.rope_dim)
        yield MatrixGroup("latent_down", layer, down, h, 2)
        yield MatrixGroup("latent_up", layer, (mla.q_rank or h) * query, mla.q_rank or h)
        yield MatrixGroup("latent_up", layer, mla.kv_rank * shape.heads * (mla.nope_dim + mla.value_dim), mla.kv_rank)
        yield MatrixGroup("attn_output", layer, h * shape.heads * mla.value_dim, shape.heads * mla.value_dim)
        return
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.model_type in FUSED_QKV:
        yield MatrixGroup("attn_qkv", layer, h * (query + 2 * key), h)
    else:
        yield MatrixGroup("attn_q", layer, h * query, h)
        if layer < shape.layers - shape.kv_shared:
            yield MatrixGroup("attn_k", layer, h * key, h)
            if not shape.keys_are_values:
                yield MatrixGroup("attn_v", layer, h * key, h)
    yield MatrixGroup("attn_output", layer, h * query, query)


def _mlp_matrices(shape: Transformer, layer: int) -> Iterator[MatrixGroup]:
    h = shape.hidden
    experts = shape.experts
    widths = [("", shape.ffn, 1)]
    if experts and is_moe_layer(shape, layer):
        yield MatrixGroup("router", layer, h * experts.count, h)
        widths = [("_exps", experts.ffn, experts.count), ("_shexp", experts.shared_ffn, 1)]
    for kind, width, count in widths:
        if not width:
            continue
        if shape.gated:
            yield MatrixGroup(f"ffn_gate{kind}", layer, h * width * count, h, count)
        yield MatrixGroup(f"ffn_up{kind}", layer, h * width * count, h, count)
        yield MatrixGroup(f"ffn_down{kind}", layer, h * width * count, width, count)


def _shard_group(role: str) -> str:
    if role.endswith("_exps"):
        return "experts"
    if role in ("attn_k", "attn_v"):
        return "keys_values"
    return "replicated" if role == "latent_down" else "linear"


def matrix_bytes(matrices: MatrixGroup, shape: Transformer, precision: str) -> int:
    """Return the bytes of a group of matrices in a precision."""
    if is_gguf(precision):
        return TYPES[tensor_type(precision, matrices.role, matrices.layer, _traits(shape), matrices.row)].size(matrices.weights)
    scheme = SCHEMES[precision]
    if scheme.experts_only and shape.experts and not matrices.role.endswith("_exps"):
        return matrices.weights * scheme.other
    return scheme.size(matrices.weights, matrices.row, matrices.count)


def _traits(shape: Transformer) -> GgufModelTraits:
    experts = shape.experts.count if shape.experts else 1
    return GgufModelTraits(shape.layers, shape.heads // max(1, shape.kv_heads), experts, shape.model_type == "falcon")


def table_bytes(shape: Transformer, precision: str, weights: int, tied: bool) -> int:
    """Return the bytes of an embedding with this many weights; with `tied`, it is stored in the type of the output head."""
    if not is_gguf(precision):
        return weights * SCHEMES[precision].other
    row = shape.embedding or shape.hidden
    return TYPES[tensor_type(precision, "output" if tied else "token_embd", 0, _traits(shape), row)].size(weights)


def _uniform_bytes(shape: Shape, precision: str) -> int:
    """Return the bytes of a model whose tensors have unknown roles, all in the precision's main format."""
    total = count_parameters(shape).total
    return TYPES[MIXES[precision]].size(total) if is_gguf(precision) else SCHEMES[precision].linear.size(total)


def _fullest(weights: WeightBytes, shape: Transformer, parallel: Parallel) -> int:
    """Return the bytes on the fullest GPU: TP shards matrices and vocabulary, EP shards experts, PP layers, DP nothing.

    The first pipeline stage has the embedding, the last the output head (a second copy of the embedding if they are tied).
    """
    tp, pp = parallel.tp, parallel.pp
    head_split = min(tp, max(1, shape.kv_heads))
    layers = _ceil(weights.linear, tp) + _ceil(weights.keys_values, head_split) + weights.replicated
    layers += _ceil(weights.experts, expert_shards(parallel))
    stage = -(-layers * -(-shape.layers // pp) // shape.layers) if pp > 1 else layers
    head = weights.head or (weights.embedding if shape.tied and pp > 1 else 0)
    tables = weights.embedding + head if pp == 1 else max(weights.embedding, head)
    return stage + _ceil(tables, tp)


def _ceil(size: int, shards: int) -> int:
    return -(-size // shards)
