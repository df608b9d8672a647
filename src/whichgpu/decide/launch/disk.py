"""Disk of a launched machine: system, container image and packages, beside the weights and checkpoints it holds."""

from __future__ import annotations

from math import ceil

from whichgpu.base.units import GIB
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Shape

SYSTEM_GB = 100  # Operating system, driver, container image and Python packages (assumed).
STEP_GB, STEP_GIB = 50, 10  # Sizes of disks and volumes are rounded up to a multiple of these.
MARGIN = 1.1  # times the weights: tokenizer and config, files of another format beside them (assumed)
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
    return max(own, weight_bytes(shape, shape.native or "bf16"))


def weights_disk_gb(size: int) -> int:
    """Return the gigabytes of a disk for weights that are downloaded; 0 if their size in bytes is unknown.

    >>> weights_disk_gb(16_060_000_000), weights_disk_gb(0)
    (150, 0)
    """
    return disk_gb(MARGIN * size) if size else 0


def cache_gib(size: int) -> int:
    """Return the GiB of a volume for downloaded weights alone.

    >>> cache_gib(16_060_000_000)
    20
    """
    return STEP_GIB * ceil(MARGIN * size / (STEP_GIB * GIB))


def extra_disk(target: str, gigabytes: int) -> int | None:
    """Return the gigabytes that a target's file must name; None if its default is enough."""
    return gigabytes if gigabytes > DEFAULT_GB[target] else None
