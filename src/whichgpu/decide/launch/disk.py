"""Disk of a launched machine: system, container image and packages, beside the weights and checkpoints it holds."""

from __future__ import annotations

from math import ceil

from whichgpu.base.units import GIB
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Shape, Transformer

SYSTEM_GB = 100  # Operating system, driver, container image and Python packages (assumed).
STEP_GB, STEP_GIB = 50, 10  # Sizes of disks and volumes are rounded up to a multiple of these.
MARGIN, MARGIN_BYTES = 1.3, 10e9  # times the weights and more: tokenizer, files of another format beside them (assumed)
# Families whose first checkpoints are published in bf16 or fp16 (assumed of all in a family, not looked up one by one); others
# may be in fp32, as that of StarCoder 2 15B is.
HALF_FAMILIES = frozenset(
    "llama llama4 llama4_text mllama mistral mistral3 ministral3 mixtral pixtral qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen3 "
    "qwen3_moe qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text gemma3 gemma3_text gemma4_text phi3 "
    "cohere cohere2 deepseek_v2 glm4 glm4_moe granite".split()
)
# Disks that a target rents if its file names none (https://docs.skypilot.co/en/latest/reference/yaml-spec.html and
# https://dstack.ai/docs/reference/dstack.yml/task/, 2026-11-18).
DEFAULT_GB = {"skypilot": 256, "dstack": 100}


def disk_gb(*contents_bytes: float) -> int:
    """Return the gigabytes of a disk that holds these contents beside the system, rounded up.

    >>> disk_gb(16e9), disk_gb(141e9, 846e9)
    (150, 1100)
    """
    return STEP_GB * ceil((SYSTEM_GB + sum(contents_bytes) / 1e9) / STEP_GB)


def download_bytes(shape: Shape, precision: str, checkpoint: str | None) -> int:
    """Return the bytes of a model's weights on disk: of its checkpoint in a precision, or as published if that is larger."""
    own = weight_bytes(shape, precision)
    if checkpoint is not None or PRECISION_BY_NAME[precision].is_gguf:
        return own
    return max(own, published_bytes(shape))


def published_bytes(shape: Shape) -> int:
    """Return the bytes of a model's published weights, at most: in fp32 unless they are known to be in fewer bits."""
    is_half = isinstance(shape, Transformer) and shape.model_type in HALF_FAMILIES
    return weight_bytes(shape, shape.native or ("bf16" if is_half else "fp32"))


def weights_disk_gb(size: int) -> int:
    """Return the gigabytes of a disk for weights that are downloaded; 0 if their size in bytes is unknown.

    >>> weights_disk_gb(16_060_000_000), weights_disk_gb(0)
    (150, 0)
    """
    return disk_gb(_with_margin(size)) if size else 0


def cache_gib(size: int) -> int:
    """Return the GiB of a volume for downloaded weights alone.

    >>> cache_gib(16_060_000_000)
    30
    """
    return STEP_GIB * ceil(_with_margin(size) / (STEP_GIB * GIB))


def extra_disk(target: str, gigabytes: int) -> int | None:
    """Return the gigabytes that a target's file must name; None if its default is enough."""
    return gigabytes if gigabytes > DEFAULT_GB[target] else None


def _with_margin(size: int) -> float:
    return MARGIN * size + MARGIN_BYTES
