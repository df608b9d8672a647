"""Bytes of weights by precision: what each scheme stores for a matrix, and what it leaves in 16 bit.

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

Serving engines quantise the linear layers of the blocks and skip embedding, head and a mixture's router: `ignore: lm_head` in
compressed-tensors, `modules_to_not_convert` in GPTQ and AWQ, ModelOpt's defaults for NVFP4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from whichgpu.base.names import unknown_word
from whichgpu.estimate.memory.gguf_mix import ALIASES, MIXES, TYPES, GgufModelTraits, tensor_type
from whichgpu.workload.layouts import expert_shards
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.precisions import PRECISION_BY_NAME, PRECISIONS, TRAINED_PRECISIONS, Block
from whichgpu.workload.shapes import Shape, Transformer, WeightsOnly
from whichgpu.workload.workload import Parallel

DEFAULT_PRECISION = "bf16"
# A file's own size stands in for the rule where the precision asked for is plainly the file's.
STORED_TOLERANCE = 0.12


@dataclass(frozen=True, slots=True)
class WeightScheme:
    """How a precision stores weights: linear layers in blocks, with bytes a row and a matrix beside; all else at `other`."""

    linear: Block
    other: int
    row_bytes: int = 0
    matrix_bytes: int = 0
    experts_only: bool = False  # an MoE model keeps every matrix that is no expert's at `other` bytes a weight

    def size(self, weights: int, row: int, matrices: int) -> int:
        """Bytes of that many weights in so many matrices with `row` weights a row."""
        return self.linear.size(weights) + self.row_bytes * (weights // max(1, row)) + self.matrix_bytes * matrices


SCHEMES: Mapping[str, WeightScheme] = {
    name: WeightScheme(one.block, one.other_bytes, one.row_bytes, one.matrix_bytes, one.experts_only)
    for name, one in PRECISION_BY_NAME.items()
    if one.block
}
# Weight bytes are exact in 16 and 32 bit; files of one quantised precision differ in group size and in what they skip.
WEIGHT_RANGES = {"exact": (1.0, 1.0), "quantised": (0.98, 1.03)}

# Families whose GGUF has one matrix for query, key and value.
FUSED_QKV = frozenset(("gpt2", "falcon", "bloom", "mpt", "gpt_neox", "phi", "phi3"))


@dataclass(frozen=True, slots=True)
class MatrixGroup:
    """Matrices alike: their role in llama.cpp's names, how many weights together, and weights in a row."""

    role: str
    layer: int
    weights: int
    row: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of a model's weights, apart as layouts split them."""

    embedding: int
    head: int
    experts: int
    keys_values: int  # their projections: split by key heads, replicated beyond
    linear: int
    replicated: int  # norms, biases, routers, latent down-projections: on every GPU of a tensor-parallel group

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.head + self.experts + self.keys_values + self.linear + self.replicated


def precisions() -> tuple[str, ...]:
    """Every spelling of a precision: the plain ones and GGUF's."""
    return tuple(dict.fromkeys((*PRECISIONS, *MIXES, *ALIASES)))


def canonical_precision(name: str) -> str:
    """A precision by its one name; an unknown one is an error with the nearest."""
    lowered = name.lower()
    lowered = ALIASES.get(lowered, lowered)
    if lowered in SCHEMES or lowered in MIXES:
        return lowered
    raise unknown_word("precision", name, precisions())


def is_gguf(precision: str) -> bool:
    """Whether a precision is one of llama.cpp's."""
    return precision in MIXES


def activation_bytes(precision: str) -> int:
    """Bytes of an activation element where weights have that precision."""
    return PRECISION_BY_NAME[precision].compute_bytes


def weight_range(precision: str | None) -> tuple[float, float]:
    """90% range of the weights' bytes as factors."""
    exact = precision is None or precision in TRAINED_PRECISIONS or precision in ("f16", "f32")
    return WEIGHT_RANGES["exact" if exact else "quantised"]


def weight_bytes(shape: Shape, precision: str | None = None, parallel: Parallel | None = None) -> int:
    """Bytes of the weights, on the fullest GPU where a layout is given. Without a precision: as stored in the file, else bf16."""
    name = canonical_precision(precision or DEFAULT_PRECISION)
    whole = split_weights(shape, name).total if isinstance(shape, Transformer) else _plain_bytes(shape, name)
    stored = _stored(shape)
    if stored and (precision is None or abs(stored - whole) <= STORED_TOLERANCE * whole):
        return stored if parallel is None else _share(stored, parallel)
    if parallel is None:
        return whole
    return _fullest(split_weights(shape, name), shape, parallel) if isinstance(shape, Transformer) else _share(whole, parallel)


@lru_cache(maxsize=256)
def split_weights(shape: Transformer, precision: str) -> WeightBytes:
    """Bytes of a transformer's weights by how they are split."""
    counted = count_parameters(shape)
    sizes = {"experts": 0, "keys_values": 0, "linear": 0, "replicated": 0}
    known = 0
    for matrices in layer_matrices(shape):
        if matrices.role == "router":
            continue  # left in 16 bit: counted with what is small
        known += matrices.weights
        sizes[_group(matrices.role)] += matrix_bytes(matrices, shape, precision)
    beyond = max(0, counted.linear - known)  # encoders, projections and others the rule does not name
    sizes["linear"] += matrix_bytes(MatrixGroup("other", 0, beyond, shape.hidden), shape, precision) if beyond else 0
    small = max(0, counted.total - counted.embedding - counted.head - known - beyond)
    sizes["replicated"] += small * _other_bytes(precision)
    return WeightBytes(
        table_bytes(shape, precision, counted.embedding, shape.tied), _head_bytes(shape, precision, counted.head), **sizes
    )


def layer_matrices(shape: Transformer) -> Iterator[MatrixGroup]:
    """The matrices of the decoder's layers (of the encoder's where there is only one)."""
    for layer in range(shape.layers):
        yield from _attention_matrices(shape, layer)
        yield from _mlp_matrices(shape, layer)


def is_moe_layer(shape: Transformer, layer: int) -> bool:
    """Whether a layer has experts in place of its MLP."""
    experts = shape.experts
    return experts is not None and layer >= experts.dense_layers and (layer + 1) % experts.every == 0


def _attention_matrices(shape: Transformer, layer: int) -> Iterator[MatrixGroup]:
    h = shape.hidden
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
        yield MatrixGroup("attn_k", layer, h * key, h)
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


def _group(role: str) -> str:
    if role.endswith("_exps"):
        return "experts"
    if role in ("attn_k", "attn_v"):
        return "keys_values"
    return "replicated" if role == "latent_down" else "linear"


def matrix_bytes(matrices: MatrixGroup, shape: Transformer, precision: str) -> int:
    """Bytes of these matrices as a precision stores them."""
    if is_gguf(precision):
        return TYPES[tensor_type(precision, matrices.role, matrices.layer, _traits(shape), matrices.row)].size(matrices.weights)
    scheme = SCHEMES[precision]
    if scheme.experts_only and shape.experts and not matrices.role.endswith("_exps"):
        return matrices.weights * scheme.other
    return scheme.size(matrices.weights, matrices.row, matrices.count)


def _traits(shape: Transformer) -> GgufModelTraits:
    experts = shape.experts.count if shape.experts else 1
    return GgufModelTraits(shape.layers, shape.heads // max(1, shape.kv_heads), experts, shape.model_type == "falcon")


def _other_bytes(precision: str) -> int:
    return TYPES["f32"].bytes if is_gguf(precision) else SCHEMES[precision].other


def table_bytes(shape: Transformer, precision: str, weights: int, tied: bool) -> int:
    """Bytes of an embedding of so many weights, or of an output head (`tied`: the table serves as one)."""
    if not is_gguf(precision):
        return weights * SCHEMES[precision].other
    row = shape.embedding or shape.hidden
    return TYPES[tensor_type(precision, "output" if tied else "token_embd", 0, _traits(shape), row)].size(weights)


def _head_bytes(shape: Transformer, precision: str, weights: int) -> int:
    return table_bytes(shape, precision, weights, tied=True) if weights else 0


def _plain_bytes(shape: Shape, precision: str) -> int:
    """Where roles are not known, every weight alike."""
    total = count_parameters(shape).total
    return TYPES[MIXES[precision]].size(total) if is_gguf(precision) else SCHEMES[precision].linear.size(total)


def _stored(shape: Shape) -> int:
    return shape.weight_bytes if isinstance(shape, WeightsOnly) else shape.stored_bytes


def _share(size: int, parallel: Parallel) -> int:
    """An even share: what is known of weights whose roles are not."""
    return -(-size // (parallel.tp * parallel.pp))


def _fullest(weights: WeightBytes, shape: Transformer, parallel: Parallel) -> int:
    """Bytes on the fullest GPU: tp splits matrices and vocabulary, ep experts, pp layers; dp nothing.

    The first stage holds the embedding, the last the head (the embedding again where they are tied).
    """
    tp, pp = parallel.tp, parallel.pp
    head_split = min(tp, max(1, shape.kv_heads))
    layers = _ceil(weights.linear, tp) + _ceil(weights.keys_values, head_split) + weights.replicated
    layers += _ceil(weights.experts, expert_shards(parallel))
    stage = -(-layers * -(-shape.layers // pp) // shape.layers) if pp > 1 else layers
    head = weights.head or (weights.embedding if shape.tied and pp > 1 else 0)
    ends = weights.embedding + head if pp == 1 else max(weights.embedding, head)
    return stage + _ceil(ends, tp)


def _ceil(size: int, ways: int) -> int:
    return -(-size // ways)
