"""Bases of rotary embeddings: from the config.json that a request names, else of the families whose base is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.workload.shapes import Transformer


class Rotary(msgspec.Struct, frozen=True):
    """Base of rotary embeddings, and the factor by which Llama 3.1 and later scale them (0 if they do not)."""

    base: float
    scaling: float = 0.0
    other: str = ""  # a scaling of another kind, which Megatron-LM's arguments written here do not have


# By `model_type`, vocabulary, longest context and tied embeddings: `rotary_base` and `rope_scaling_factor` of the model providers
# in https://github.com/NVIDIA-NeMo/Megatron-Bridge (llama, qwen and mistral); Mixtral's is in
# https://github.com/NVIDIA/Megatron-LM, examples/mixtral (2026-11-18).
KNOWN_BASES = {
    ("llama", 128256, 8192, False): Rotary(500_000),
    ("llama", 128256, 131072, False): Rotary(500_000, 8),
    ("llama", 128256, 131072, True): Rotary(500_000, 32),
    ("llama", 32000, 4096, False): Rotary(10_000),
    ("mixtral", 32000, 32768, False): Rotary(1_000_000),
    ("mistral", 32768, 32768, False): Rotary(1_000_000),
    ("qwen2", 151936, 32768, True): Rotary(1_000_000),
    ("qwen2", 151936, 131072, True): Rotary(1_000_000),
    ("qwen2", 152064, 131072, False): Rotary(1_000_000),
    ("qwen3", 151936, 40960, True): Rotary(1_000_000),
    ("qwen3", 151936, 40960, False): Rotary(1_000_000),
    ("qwen3_moe", 151936, 40960, False): Rotary(1_000_000),
}


def known_rotary(shape: Transformer) -> Rotary | None:
    """Return the rotary embeddings of a family; None if they are not known, as those of Qwen 1.5, which has no GQA."""
    if shape.model_type == "qwen2" and shape.kv_heads == shape.heads:
        return None
    return KNOWN_BASES.get((shape.model_type, shape.vocab, shape.max_context, shape.tied))


def config_rotary(config: Mapping[str, Any]) -> Rotary | None:
    """Return the rotary embeddings that a config.json states, as transformers 4 and 5 write them; None if it does not.

    >>> config_rotary({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}})
    Rotary(base=500000.0, scaling=8.0, other='')
    >>> config_rotary({"rope_parameters": {"rope_theta": 10000, "rope_type": "yarn", "factor": 4.0}})
    Rotary(base=10000.0, scaling=0.0, other='yarn')
    """
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    fields = scaling if isinstance(scaling, Mapping) else {}
    base = fields.get("rope_theta", config.get("rope_theta"))
    if not isinstance(base, int | float):
        return None
    kind = str(fields.get("rope_type") or fields.get("type") or "default")
    factor = fields.get("factor")
    if kind == "llama3" and isinstance(factor, int | float):
        return Rotary(float(base), float(factor))
    return Rotary(float(base), other="" if kind == "default" else kind[:20])
