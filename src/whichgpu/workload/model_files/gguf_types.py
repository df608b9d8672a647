"""Precision and bytes per weight of a GGUF file's matrices, from the types of its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from whichgpu.workload.model_files.gguf_header import GgufTensor, Value
from whichgpu.workload.precisions import PRECISION_BY_NAME, tensor_types

# File types that share one type of most matrices (q4_k_s, q4_k_m) differ in the others: the file says which one it is, and is
# believed if at least this share of the weights has that type (set by judgement; iq3_xs has the smallest share, about a half).
MIN_SHARE = 0.25
FILE_TYPES: Mapping[int, str] = {int(one.file_type): name for name, one in PRECISION_BY_NAME.items() if one.file_type}
_MATRIX = re.compile(r"(?:blk\.\d+\.)?(\w+)\.weight")
# Roles of the matrices of latent attention (MLA) by the names of their tensors.
_ROLES: Mapping[str, str] = {
    **dict.fromkeys(("attn_q_a", "attn_kv_a_mqa"), "latent_down"),
    **dict.fromkeys(("attn_q_b", "attn_kv_b", "attn_k_b", "attn_v_b"), "latent_up"),
}


def file_precision(tensors: Sequence[GgufTensor], metadata: Mapping[str, Value]) -> str:
    """Return the precision of a GGUF file by the type of most weights in its layers' matrices; empty if it has no tensors."""
    matrices = [tensor for tensor in tensors if len(tensor.sizes) > 1] or list(tensors)
    weights: dict[str, int] = {}
    for tensor in [one for one in matrices if one.name.startswith("blk.")] or matrices:
        weights[tensor.type.lower()] = weights.get(tensor.type.lower(), 0) + tensor.weights
    if not weights:
        return ""
    number = metadata.get("general.file_type")
    stated = FILE_TYPES.get(number) if isinstance(number, int) else None
    if stated and weights.get(_type_of(stated), 0) >= MIN_SHARE * sum(weights.values()):
        return stated
    return _usual_precision(max(weights, key=lambda name: weights[name]))


def role_widths(tensors: Iterable[GgufTensor]) -> tuple[tuple[str, float], ...]:
    """Return the bytes per weight of the matrices with each role (llama.cpp's name, such as ffn_down), over all layers."""
    sizes: dict[str, tuple[int, int]] = {}
    for tensor in tensors:
        match = _MATRIX.fullmatch(tensor.name)
        if match and len(tensor.sizes) > 1:
            role = _ROLES.get(match[1], match[1])
            size, weights = sizes.get(role, (0, 0))
            sizes[role] = size + tensor.bytes, weights + tensor.weights
    return tuple((role, size / weights) for role, (size, weights) in sizes.items() if weights)


def _type_of(precision: str) -> str:
    """Return the tensor type of most matrices in a GGUF file of a precision."""
    return PRECISION_BY_NAME[precision].tensor_type or precision


def _usual_precision(tensor_type: str) -> str:
    """Return the precision that most files of a tensor type have; for a type that none has, that of the nearest size."""
    alias = PRECISION_BY_NAME[tensor_type].alias_of if tensor_type in PRECISION_BY_NAME else ""
    bits = {name: tensor_types()[_type_of(name)].block.bits for name in FILE_TYPES.values()}
    same = [name for name in bits if _type_of(name) == tensor_type]
    own = tensor_types()[tensor_type].block.bits
    return alias or (tensor_type if tensor_type in same else next(iter(same), min(bits, key=lambda name: abs(bits[name] - own))))
