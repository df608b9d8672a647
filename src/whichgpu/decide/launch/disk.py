"""Disk that a machine needs: system, container image and packages, and the weights it downloads."""

from __future__ import annotations

from whichgpu.base.units import GIB
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Shape

SYSTEM_BYTES = 100e9  # system, image and packages (assumed; images of engines take 20 to 60 GB unpacked)
MARGIN = 1.1  # times the weights: tokenizer and config, files of another format beside them (assumed)
STEP_GB, STEP_GIB = 50, 10  # of which a size is a multiple


def download_bytes(shape: Shape, precision: str, checkpoint: str | None) -> int:
    """Return the bytes of a model's weights on disk: of its checkpoint in a precision, or as published if that is larger."""
    own = weight_bytes(shape, precision)
    if checkpoint is not None or PRECISION_BY_NAME[precision].is_gguf:
        return own
    return max(own, weight_bytes(shape, shape.native or "bf16"))


def disk_gb(download_bytes: int) -> int:
    """Return the disk of a machine in GB; 0 if the size of the weights is unknown.

    >>> disk_gb(16_060_000_000), disk_gb(141_000_000_000), disk_gb(0)
    (150, 300, 0)
    """
    return -int(-(SYSTEM_BYTES + MARGIN * download_bytes) // (STEP_GB * 1e9)) * STEP_GB if download_bytes else 0


def cache_gib(download_bytes: int) -> int:
    """Return the GiB of a volume for the weights alone.

    >>> cache_gib(16_060_000_000)
    20
    """
    return -int(-MARGIN * download_bytes // (STEP_GIB * GIB)) * STEP_GIB
