"""Kinds of layers in a model and their counts, so that each kind is lowered only once."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from whichgpu.estimate.memory.quantisation import is_moe_layer
from whichgpu.workload.layer_pattern import WHOLE_LAYER, LayerParts, full_attention_shape, has_full_attention, layer_parts
from whichgpu.workload.layouts import stage_layers
from whichgpu.workload.parameters import attention_matrices, mlp_matrices, recurrent_matrices
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel


class LayerKind(msgspec.Struct, frozen=True):
    """A kind of layer: its sliding window in tokens (0: full attention), whether it is an MoE layer, and its other parts."""

    window: int
    mixture: bool
    parts: LayerParts = WHOLE_LAYER

    def shape(self, shape: Transformer) -> Transformer:
        """Return the model's shape with the heads of such a layer."""
        return shape if self.window else full_attention_shape(shape)


@lru_cache(maxsize=256)
def layer_kinds(shape: Transformer, parallel: Parallel, stage: int = 0) -> tuple[tuple[LayerKind, int], ...]:
    """Return the kinds of decoder layers (encoder layers if there is no decoder) and their counts on a pipeline stage."""
    return tuple(Counter(layer_kind(shape, index) for index in stage_layers(shape.layers, parallel.pp, stage)).items())


@lru_cache(maxsize=256)
def slowest_stage(shape: Transformer, stages: int) -> int:
    """Return the pipeline stage with the most arithmetic in training; the last one also has the output head.

    >>> from whichgpu.catalog.store import Catalog
    >>> from whichgpu.workload.models import find_model
    >>> [slowest_stage(find_model(name, Catalog()), 8) for name in ("llama-3-70b", "llama-3.1-405b")]
    [7, 0]
    """
    if stages == 1 or shape.encoder_layers:
        return 0
    work = [sum(_layer_work(shape, index) for index in stage_layers(shape.layers, stages, stage)) for stage in range(stages)]
    work[-1] += float(shape.hidden * shape.vocab if shape.head else 0)
    return max(range(stages), key=work.__getitem__)


def _layer_work(shape: Transformer, index: int) -> float:
    """Return the weights that a token is multiplied by in a layer; attention scores are left out, as layers share them."""
    experts = shape.experts if is_moe_layer(shape, index) else None
    widths = [experts.ffn] * experts.active + [experts.shared_ffn] if experts else [shape.ffn]
    parts = layer_parts(shape, index)
    matrices = [
        *(attention_matrices(shape) if parts.attention else ()),
        *(recurrent_matrices(shape) if parts.recurrent else ()),
        *(matrix for ffn in widths if parts.mlp for matrix in mlp_matrices(shape, ffn)),
    ]
    return float(sum(rows * columns for rows, columns in matrices))


def layer_kind(shape: Transformer, index: int) -> LayerKind:
    """Return the kind of the layer at an index: its sliding window, and whether it has experts."""
    parts = layer_parts(shape, index)
    full = not parts.attention or has_full_attention(shape, index)
    return LayerKind(0 if full else shape.window, parts.experts, replace(parts, experts=False))


def encoder_layers_per_stage(shape: Transformer, parallel: Parallel) -> int:
    """Return the number of encoder layers on the first pipeline stage of an encoder-decoder model."""
    return -(-shape.encoder_layers // parallel.pp)
