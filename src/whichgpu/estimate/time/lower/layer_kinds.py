"""Which layers of a model are alike: counted by what sets them apart, so that each kind is lowered once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from whichgpu.estimate.memory.quantisation import is_moe_layer
from whichgpu.workload.layouts import stage_layers
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A kind of layer: the tokens it may look back at (0: all), and whether it is a mixture of experts."""

    window: int
    mixture: bool


@lru_cache(maxsize=256)
def layer_kinds(shape: Transformer, parallel: Parallel) -> tuple[tuple[LayerKind, int], ...]:
    """Kinds of decoder layers (of the encoder's where there is no other) on the fullest pipeline stage, and how many of each."""
    return tuple(Counter(layer_kind(shape, index) for index in stage_layers(shape.layers, parallel.pp, 0)).items())


def layer_kind(shape: Transformer, index: int) -> LayerKind:
    """The kind of the layer of that index."""
    everything = not shape.window or (shape.global_every > 0 and (index + 1) % shape.global_every == 0)
    return LayerKind(0 if everything else shape.window, is_moe_layer(shape, index))


def encoder_layers_per_stage(shape: Transformer, parallel: Parallel) -> int:
    """Encoder layers on the first stage of an encoder-decoder model."""
    return -(-shape.encoder_layers // parallel.pp)
