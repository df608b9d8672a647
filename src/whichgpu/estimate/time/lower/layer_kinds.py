"""Kinds of layers in a model and their counts, so that each kind is lowered only once."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import msgspec

from whichgpu.estimate.memory.quantisation import is_moe_layer
from whichgpu.workload.layouts import stage_layers
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel


class LayerKind(msgspec.Struct, frozen=True):
    """A kind of layer: its sliding window in tokens (0: full attention), and whether it is an MoE layer."""

    window: int
    mixture: bool


@lru_cache(maxsize=256)
def layer_kinds(shape: Transformer, parallel: Parallel) -> tuple[tuple[LayerKind, int], ...]:
    """Return the kinds of decoder layers (encoder layers if there is no decoder) and their counts on the fullest stage."""
    return tuple(Counter(layer_kind(shape, index) for index in stage_layers(shape.layers, parallel.pp, 0)).items())


def layer_kind(shape: Transformer, index: int) -> LayerKind:
    """Return the kind of the layer at an index: its sliding window, and whether it has experts."""
    full = not shape.window or (shape.global_every > 0 and (index + 1) % shape.global_every == 0)
    return LayerKind(0 if full else shape.window, is_moe_layer(shape, index))


def encoder_layers_per_stage(shape: Transformer, parallel: Parallel) -> int:
    """Return the number of encoder layers on the first pipeline stage of an encoder-decoder model."""
    return -(-shape.encoder_layers // parallel.pp)
