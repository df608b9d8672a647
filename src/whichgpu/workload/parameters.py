"""Exact parameter counts of a model from its shape."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import msgspec

from whichgpu.workload.layer_pattern import LayerParts, full_attention_shape, full_layers, layer_counts
from whichgpu.workload.shapes import Dlrm, Experts, Mlp, Shape, TracedShape, Transformer, WeightsOnly


class Parameters(msgspec.Struct, frozen=True):
    """Parameter counts of a model: in total, active for one token, and by part (embedding, layer, head ...)."""

    total: int
    active: int  # parameters used for one token: all except those of inactive experts
    embedding: int = 0  # embeddings of tokens, learned positions and token types; patch projection of images
    head: int = 0  # output head (0 if tied to the embedding) and the dense layers before it
    layer: int = 0  # one decoder layer (encoder layer if there is no decoder); an MoE layer if only some are MoE
    encoder_layer: int = 0  # one encoder layer of an encoder-decoder model
    linear: int = 0  # weight matrices of all layers without routers, which quantisation and LoRA apply to
    norm: int = 0  # all normalisations
    experts: int = 0  # all routed experts, active or not


def count_parameters(shape: Shape) -> Parameters:
    """Return the exact parameter counts of a model from its sizes (shape), whatever its kind.

    >>> count_parameters(Mlp("", (9000, 4000, 4000, 32))).total
    52136032
    """
    if isinstance(shape, Transformer):
        return _transformer(shape)
    if isinstance(shape, Mlp):
        return _perceptron(shape.units)
    if isinstance(shape, Dlrm):
        return _dlrm(shape)
    if isinstance(shape, WeightsOnly):
        return Parameters(shape.parameters, shape.parameters, linear=shape.parameters)
    return _traced(shape)


def mixture_layers(shape: Transformer) -> int:
    """Return the number of a model's layers whose MLP is a mixture of experts (MoE)."""
    return sum(count for parts, count in layer_counts(shape) if parts.experts) if shape.experts else 0


def recurrent_matrices(shape: Transformer) -> tuple[tuple[int, int], ...]:
    """Return (input width, output width) of each matrix of a recurrent mixer; none if the model has no such layers."""
    mixer = shape.recurrent
    return ((shape.hidden, mixer.inward), *mixer.inner, (mixer.outward, shape.hidden)) if mixer else ()


def indexer_matrices(shape: Transformer) -> tuple[tuple[int, int], ...]:
    """Return (input width, output width) of the matrices of a sparse attention's indexer: queries, keys, head weights."""
    if shape.sparse is None:
        return ()
    index, queries = shape.sparse, shape.mla.q_rank if shape.mla and shape.mla.q_rank else shape.hidden
    return ((queries, index.heads * index.dim), (shape.hidden, index.dim), (shape.hidden, index.heads))


def attention_matrices(shape: Transformer) -> tuple[tuple[int, int], ...]:
    """Return (input width, output width) of each projection of one self-attention, in the order of execution."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.mla is None:
        values = () if shape.keys_are_values else ((shape.hidden, keys),)
        return ((shape.hidden, queries), (shape.hidden, keys), *values, (queries, shape.hidden))
    mla = shape.mla  # Names and sizes are those of arXiv 2405.04434, section 2.1.
    to_queries = ((shape.hidden, mla.q_rank), (mla.q_rank, queries)) if mla.q_rank else ((shape.hidden, queries),)
    return (
        *to_queries,
        (shape.hidden, mla.kv_rank + mla.rope_dim),
        (mla.kv_rank, shape.heads * (mla.nope_dim + mla.value_dim)),
        (shape.heads * mla.value_dim, shape.hidden),
    )


def mlp_matrices(shape: Transformer, ffn: int) -> tuple[tuple[int, int], ...]:
    """Return (input width, output width) of each matrix of an MLP whose inner width is `ffn`."""
    up = (shape.hidden, ffn)
    return (*((up, up) if shape.gated else (up,)), (ffn, shape.hidden))


def norm_parameters(shape: Transformer) -> int:
    """Return the number of parameters of one normalisation over the hidden size."""
    if not shape.norm_affine:
        return 0
    return shape.hidden * (2 if shape.norm == "layer" and shape.norm_bias else 1)


@lru_cache(maxsize=1024)
def _transformer(shape: Transformer) -> Parameters:
    attention = _matrices(attention_matrices(shape)) + _matrices(indexer_matrices(shape))
    mlp, mixer = _matrices(mlp_matrices(shape, shape.ffn)), _matrices(recurrent_matrices(shape))
    cross = bool(shape.encoder_layers)
    norm, inner = norm_parameters(shape), _inner_norms(shape)
    self_attention = attention + _attention_bias(shape) + inner + shape.layer_other
    mlp_bias = (1 + shape.gated) * shape.ffn + shape.hidden if shape.mlp_bias else 0
    across = self_attention - inner - shape.layer_other + norm if cross else 0
    of_mixture, visited, routed, routed_linear = _mixture(shape) if shape.experts else (0, 0, 0, 0)
    shared_linear = _matrices(mlp_matrices(shape, shape.experts.shared_ffn)) if shape.experts and shape.experts.shared_ffn else 0
    recurrent = mixer + (shape.recurrent.other if shape.recurrent else 0)

    def layer(parts: LayerParts) -> int:
        mixing = parts.attention * self_attention + parts.recurrent * recurrent
        return mixing + _norms(shape, parts) * norm + parts.mlp * (of_mixture if parts.experts else mlp + mlp_bias)

    def matrices(parts: LayerParts) -> int:
        after = (routed_linear + shared_linear) if parts.experts else mlp
        return parts.attention * attention + parts.recurrent * mixer + parts.mlp * after

    counts = layer_counts(shape)
    reused, reused_norm = _reused_keys(shape)
    mixtures = mixture_layers(shape)
    dense = layer(LayerParts())
    layers = sum(count * layer(parts) for parts, count in counts) + shape.layers * across + shape.encoder_layers * dense
    wider, wider_norm = _full_heads(shape)
    layers += wider + wider_norm - reused - reused_norm
    outside = norm * ((1 + cross) * (shape.final_norm + shape.embedding_norm) + (shape.lm_transform and shape.head))
    embedding, head = _embedding(shape), _head(shape)
    total = embedding + head + layers + outside + shape.other
    norms = sum(count * (_norms(shape, parts) * norm + parts.attention * inner) for parts, count in counts)
    norms += shape.encoder_layers * (shape.norms * norm + inner) + (shape.layers * norm if cross else 0) + outside
    norms += wider_norm - reused_norm
    linear = sum(count * matrices(parts) for parts, count in counts) + shape.encoder_layers * (attention + mlp)
    return Parameters(
        total=total,
        active=total - mixtures * (routed - visited),
        embedding=embedding,
        head=head,
        layer=layer(LayerParts(experts=mixtures > 0)) + across,
        encoder_layer=dense if cross else 0,
        linear=linear + wider - reused + (shape.layers * attention if cross else 0),
        norm=norms,
        experts=mixtures * routed,
    )


def _full_heads(shape: Transformer) -> tuple[int, int]:
    """Return the weights of projections and norms that layers with full attention have more if their heads are others."""
    full, count = full_attention_shape(shape), full_layers(shape)
    more = _matrices(attention_matrices(full)) - _matrices(attention_matrices(shape))
    return count * more, count * (_inner_norms(full) - _inner_norms(shape))


def _reused_keys(shape: Transformer) -> tuple[int, int]:
    """Return the weights of key and value projections, and of key norms, that layers which share keys and values lack."""
    full = full_layers(shape) - full_layers(shape, shape.kv_shared) if shape.kv_shared and shape.window else 0
    kinds = ((shape, shape.kv_shared - full), (full_attention_shape(shape), full))
    keys = sum(count * (2 - one.keys_are_values) * one.hidden * one.kv_heads * one.head_dim for one, count in kinds)
    return keys, sum(count * one.head_dim for one, count in kinds) if shape.qk_norm else 0


def _norms(shape: Transformer, parts: LayerParts) -> int:
    """Return the normalisations of a layer: one before each part if it has a single part, else those of the family."""
    return shape.norms if parts.mixes and parts.mlp else 1


def _matrices(sizes: tuple[tuple[int, int], ...]) -> int:
    return sum(rows * columns for rows, columns in sizes)


def _attention_bias(shape: Transformer) -> int:
    keys = shape.kv_heads * shape.head_dim
    if shape.mla is not None:
        one = shape.mla.q_rank + shape.mla.kv_rank + shape.mla.rope_dim
        return (one if shape.qkv_bias else 0) + (shape.hidden if shape.out_bias else 0)
    inward = shape.heads * shape.head_dim + keys * (1 + shape.key_bias)
    return (inward if shape.qkv_bias else 0) + (shape.hidden if shape.out_bias else 0)


def _inner_norms(shape: Transformer) -> int:
    """Return the parameters of the norms inside attention: of queries and keys, or of MLA's compressed vectors."""
    index = 2 * shape.sparse.dim if shape.sparse else 0  # The indexer's keys have a layer norm.
    if shape.mla is not None:
        return shape.mla.q_rank + shape.mla.kv_rank + index
    return index + (2 * shape.head_dim if shape.qk_norm else 0)


def _mixture(shape: Transformer) -> tuple[int, int, int, int]:
    """Return the parameters of an MoE layer: total, of a token's active experts, of all routed experts, and of their matrices."""
    experts = shape.experts or Experts(0, 0, 0)
    matrices = _matrices(mlp_matrices(shape, experts.ffn))
    one = matrices + ((1 + shape.gated) * experts.ffn + shape.hidden if experts.bias else 0)
    shared = _matrices(mlp_matrices(shape, experts.shared_ffn)) if experts.shared_ffn else 0
    routed = experts.count * one
    router = shape.hidden * experts.count
    return routed + shared + router + experts.other, experts.active * one, routed, experts.count * matrices


def _embedding(shape: Transformer) -> int:
    width = shape.embedding or shape.hidden
    tokens = shape.vocab * width
    projections = 2 * shape.embedding * shape.hidden  # OPT-350M projects its embeddings to the hidden size and back.
    tables = (shape.positions + shape.token_types) * shape.hidden
    if shape.patches is None:
        return tokens + projections + tables
    patch = shape.patches
    return tables + shape.hidden * (patch.channels * patch.size**2 + patch.extra + patch.bias)


def _head(shape: Transformer) -> int:
    pooler = shape.hidden * (shape.hidden + 1) if shape.pooler else 0
    if not shape.head:
        return pooler
    table = 0 if shape.tied else shape.vocab * (shape.embedding or shape.hidden)
    transform = shape.hidden * (shape.hidden + shape.mlp_bias) if shape.lm_transform else 0
    return pooler + table + transform + (shape.vocab if shape.head_bias else 0)


def _perceptron(units: tuple[int, ...]) -> Parameters:
    matrices = sum(rows * columns for rows, columns in pairwise(units))
    total = matrices + sum(units[1:])
    return Parameters(total, total, linear=matrices)


def _dlrm(shape: Dlrm) -> Parameters:
    towers = [_perceptron(shape.bottom), _perceptron((shape.interaction, *shape.top))]
    embedding = shape.embedding_dim * sum(shape.tables)
    dense = sum(tower.total for tower in towers)
    looked_up = shape.embedding_dim * len(shape.tables)  # Each sample looks up one row of each table.
    return Parameters(embedding + dense, looked_up + dense, embedding, linear=sum(tower.linear for tower in towers))


def _traced(shape: TracedShape) -> Parameters:
    from whichgpu.workload.tables import load_table  # Imported here, since the tables are large and most requests need none.

    count = load_table(shape.table, shape.image or None).parameters
    return Parameters(count, count, linear=count)
