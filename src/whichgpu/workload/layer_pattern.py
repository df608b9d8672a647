"""What each layer of a decoder consists of: attention, a recurrent mixer, a dense MLP, experts."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from whichgpu.workload.shapes import Transformer


class LayerParts(msgspec.Struct, frozen=True):
    """Parts of one layer; it has experts instead of a dense MLP if `experts` is set."""

    attention: bool = True
    recurrent: bool = False
    mlp: bool = True
    experts: bool = False

    @property
    def mixes(self) -> bool:
        """Whether the layer has a part that mixes tokens: attention, a recurrent mixer, or both."""
        return self.attention or self.recurrent

    @property
    def is_hybrid(self) -> bool:
        """Whether the layer differs from attention followed by an MLP."""
        return self.recurrent or not (self.attention and self.mlp)


WHOLE_LAYER = LayerParts()  # attention and a dense MLP
LETTERS = {
    "A": WHOLE_LAYER,
    "R": LayerParts(attention=False, recurrent=True),
    "B": LayerParts(recurrent=True),
    "a": LayerParts(mlp=False),
    "r": LayerParts(attention=False, recurrent=True, mlp=False),
    "-": LayerParts(attention=False),
    "+": LayerParts(attention=False, experts=True),
}


def layer_parts(shape: Transformer, layer: int) -> LayerParts:
    """Return the parts of the decoder layer at an index."""
    letter = shape.pattern[layer] if shape.pattern else "A"
    parts = LETTERS[letter]
    experts = shape.experts
    if letter in "-+" or not parts.mlp or experts is None:
        return parts
    moe = layer >= experts.dense_layers and (layer + 1) % experts.every == 0
    return LayerParts(parts.attention, parts.recurrent, True, True) if moe else parts


@lru_cache(maxsize=256)
def layer_counts(shape: Transformer) -> tuple[tuple[LayerParts, int], ...]:
    """Return the different kinds of layers of a decoder, each with the number of such layers."""
    return tuple(Counter(layer_parts(shape, layer) for layer in range(shape.layers)).items())


@lru_cache(maxsize=256)
def full_attention_shape(shape: Transformer) -> Transformer:
    """Return the shape with the heads of its layers with full attention."""
    full = shape.full_heads
    if full is None:
        return shape
    return replace(shape, head_dim=full.head_dim, kv_heads=full.kv_heads, keys_are_values=full.keys_are_values, full_heads=None)


def has_full_attention(shape: Transformer, layer: int) -> bool:
    """Whether the attention of the layer at an index sees all tokens, not only those of a sliding window."""
    return not shape.window or (shape.global_every > 0 and (layer + 1) % shape.global_every == 0)


def full_layers(shape: Transformer, without: int = 0) -> int:
    """Return how many layers have full attention: all without a window, else every n-th (Gemma-2: 2, Gemma-3: 6, gpt-oss: 2).

    The last `without` layers are left out.
    """
    if not shape.window:
        return attention_layers(shape) - without
    return (shape.layers - without) // shape.global_every if shape.global_every else 0


def attention_layers(shape: Transformer) -> int:
    """Return the number of decoder layers with attention, full or windowed, which have a KV cache."""
    return sum(count for parts, count in layer_counts(shape) if parts.attention) if shape.pattern else shape.layers


def recurrent_layers(shape: Transformer) -> int:
    """Return the number of decoder layers with a recurrent mixer, which have a state of fixed size per sequence."""
    return sum(count for parts, count in layer_counts(shape) if parts.recurrent) if shape.pattern else 0
