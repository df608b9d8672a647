"""GGUF types of a model's tensors in a mix such as `q4_k_m`, by llama.cpp's `llama_tensor_get_type` (src/llama-quant.cpp).

Most matrices have the mix's base type; a few that matter more get more bits, by role and layer. One-dimensional tensors stay f32.
A matrix whose rows do not divide into blocks falls back to a type with smaller blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from whichgpu.workload.precisions import PRECISION_BY_NAME, WeightBlock, tensor_types

TYPES: Mapping[str, WeightBlock] = {name: one.block for name, one in tensor_types().items()}
# MIXES: type of most matrices by mix. ALIASES: long mix name by llama-quantize's short name.
MIXES: Mapping[str, str] = {name: one.tensor_type for name, one in PRECISION_BY_NAME.items() if one.tensor_type}
ALIASES: Mapping[str, str] = {name: one.alias_of for name, one in PRECISION_BY_NAME.items() if one.alias_of}

TINY_MIXES = frozenset(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"))
LARGE_IQ2_MIXES = frozenset(("iq2_s", "iq2_m"))
# Mixes whose attention output gets more bits in models of eight experts, where attention is a small part of the weights.
OUTPUT_MIXES_EIGHT_EXPERTS = frozenset(
    ("q2_k", "iq3_xs", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_s", "iq3_m", "iq4_xs")
)


class GgufModelTraits(msgspec.Struct, frozen=True):
    """Properties of a model that decide the GGUF type of its tensors, such as the number of layers."""

    layers: int
    groups: int  # query heads per KV head
    experts: int
    falcon: bool = False

    @property
    def seventy(self) -> bool:
        """Whether llama.cpp's quantisation treats the model as Llama-70B: 80 layers and grouped KV heads."""
        return self.layers == 80 and self.groups > 1


class MatrixPosition(msgspec.Struct, frozen=True):
    """Position of a matrix in a model: its layer, and the GGUF mix (such as q4_k_m) with the mix's base type."""

    mix: str
    base: str
    layer: int
    traits: GgufModelTraits


def has_more_bits(layer: int, layers: int) -> bool:
    """Whether llama.cpp gives a layer more bits: the first and last eighth of layers, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensor_type(mix: str, role: str, layer: int, traits: GgufModelTraits, row: int) -> str:
    """Return a matrix's GGUF type by `role` (llama.cpp's name, such as ffn_down) and layer; a row has `row` weights.

    >>> llama = GgufModelTraits(layers=32, groups=4, experts=1)
    >>> [tensor_type("q4_k_m", "ffn_down", layer, llama, 14336) for layer in (0, 4, 6)]
    ['q6_k', 'q4_k', 'q6_k']
    """
    name = _preferred_type(mix, role, layer, traits, row)
    if row % TYPES[name].weights == 0:
        return name
    name = tensor_types()[name].fallback or "f16"
    return name if row % TYPES[name].weights == 0 else "f16"


def _preferred_type(mix: str, role: str, layer: int, traits: GgufModelTraits, row: int) -> str:
    """Return the GGUF type of a matrix before any fallback for rows that do not divide into blocks."""
    base = MIXES[mix]
    if base in ("f32", "f16"):
        return base
    if role == "output":
        return _output(mix, base, traits, row)
    if mix == "mxfp4_moe":
        return "mxfp4" if role.endswith("_exps") else "q8_0"
    rule = _RULES.get(role.removesuffix("_exps").removesuffix("_shexp"))
    return rule(MatrixPosition(mix, base, layer, traits)) if rule else base


def _output(mix: str, base: str, traits: GgufModelTraits, row: int) -> str:
    if mix == "mxfp4_moe" or traits.falcon or row % TYPES[base].weights:
        return "q8_0"
    if mix in TINY_MIXES or mix == "iq3_xxs":
        return "q5_k"
    return base if base == "q8_0" else "q6_k"


def _embedding(at: MatrixPosition) -> str:
    if at.mix in ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs"):
        return "q2_k"
    if at.mix in ("iq2_s", "iq2_m", "iq3_xxs"):
        return "iq3_s"
    return "q4_k" if at.mix in ("tq1_0", "tq2_0") else at.base


def _value(at: MatrixPosition) -> str:
    if at.mix in TINY_MIXES:
        many = at.traits.groups >= 4 or at.traits.experts >= 4
        return "q4_k" if many else "iq3_s" if at.mix in LARGE_IQ2_MIXES else "q2_k"
    chosen = at.base
    grouped = at.traits.groups >= 4
    if at.mix == "q2_k":
        chosen = "q4_k" if grouped else "q3_k"
    elif at.mix in ("q2_k_s", "iq3_xxs", "iq3_xs", "iq3_s"):
        chosen = "q4_k" if grouped else at.base
    elif at.mix == "iq3_m":
        chosen = "q4_k"
    elif at.mix == "q3_k_m":
        chosen = "q5_k" if at.layer < 2 else "q4_k"
    elif at.mix == "q3_k_l":
        chosen = "q5_k"
    elif at.mix in ("iq4_nl", "iq4_xs"):
        chosen = "q5_k" if grouped else at.base
    elif at.mix in ("q4_k_m", "q5_k_m") and has_more_bits(at.layer, at.traits.layers):
        chosen = "q6_k"
    elif at.mix == "q4_k_s" and at.layer < 4:
        chosen = "q5_k"
    if at.traits.seventy and chosen in ("q3_k", "q4_k"):
        chosen = "q5_k"
    return "q8_0" if at.traits.experts == 8 else chosen


def _key(at: MatrixPosition) -> str:
    if at.traits.experts == 8:
        return "q4_k" if at.mix in TINY_MIXES else "q8_0"
    return _query(at)


def _query(at: MatrixPosition) -> str:
    return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(at.mix, at.base)


def _down(at: MatrixPosition) -> str:
    first_eighth = at.layer < at.traits.layers // 8
    more = has_more_bits(at.layer, at.traits.layers)
    if at.mix in TINY_MIXES:
        return ("iq3_s" if at.mix in LARGE_IQ2_MIXES else "q2_k") if first_eighth else at.base
    if at.mix == "q2_k":
        return "q3_k"
    if at.mix == "q3_k_m":
        return "q5_k" if at.layer < at.traits.layers // 16 else "q4_k" if more or not at.traits.falcon else "q3_k"
    if at.mix == "q3_k_l":
        return "q4_k" if at.traits.falcon else "q5_k"
    if at.mix == "q4_k_m" and at.traits.falcon:
        return "q6_k" if at.layer < at.traits.layers // 16 else "q5_k" if more else "q4_k"
    if at.mix in ("q4_k_m", "q5_k_m"):
        return "q6_k" if more else at.base
    if at.mix == "iq3_m":
        return "q4_k" if first_eighth or (at.traits.experts == 8 and more) else at.base
    early = {"q2_k_s": "q4_k", "q4_k_s": at.base if at.traits.falcon else "q5_k"}
    return early.get(at.mix, at.base) if first_eighth else at.base


def _attention_output(at: MatrixPosition) -> str:
    if at.traits.falcon:
        return "q4_k" if at.mix == "q3_k_l" else at.base
    if at.traits.experts == 8:
        return "q5_k" if at.mix in OUTPUT_MIXES_EIGHT_EXPERTS or at.mix in TINY_MIXES else at.base
    if at.mix in TINY_MIXES:
        return "iq3_s" if at.mix in LARGE_IQ2_MIXES else "iq2_xxs" if at.mix in ("iq1_s", "iq1_m") else at.base
    return {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}.get(at.mix, at.base)


def _fused(at: MatrixPosition) -> str:
    return {"q3_k_m": "q4_k", "q3_k_l": "q4_k", "iq3_m": "q4_k", "q4_k_m": "q5_k", "q5_k_m": "q6_k"}.get(at.mix, at.base)


def _gate(at: MatrixPosition) -> str:
    middle = at.traits.layers // 8 <= at.layer < 7 * at.traits.layers // 8
    return "iq3_xxs" if at.mix == "iq3_xs" and middle else at.base


_RULES: Mapping[str, Callable[[MatrixPosition], str]] = {
    "token_embd": _embedding,
    "attn_v": _value,
    "attn_k": _key,
    "attn_q": _query,
    "attn_output": _attention_output,
    "attn_qkv": _fused,
    "ffn_down": _down,
    "ffn_gate": _gate,
    "ffn_up": _gate,
}
