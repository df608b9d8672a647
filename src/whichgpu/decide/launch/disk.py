"""Disk of a launched machine: system, container image and packages, beside the weights and checkpoints it holds."""

from __future__ import annotations

from math import ceil

SYSTEM_GB = 100  # Operating system, driver, container image and Python packages (assumed).
STEP_GB = 50  # Sizes are rounded up to a multiple of this.
# Disks that a target rents if its file names none (https://docs.skypilot.co/en/latest/reference/yaml-spec.html and
# https://dstack.ai/docs/reference/dstack.yml/task/, 2026-11-18).
DEFAULT_GB = {"skypilot": 256, "dstack": 100}


def disk_gb(*contents_bytes: float) -> int:
    """Return the gigabytes of a disk that holds these contents beside the system, rounded up.

    >>> disk_gb(16e9), disk_gb(141e9, 846e9)
    (150, 1100)
    """
    return STEP_GB * ceil((SYSTEM_GB + sum(contents_bytes) / 1e9) / STEP_GB)


def extra_disk(target: str, gigabytes: int) -> int | None:
    """Return the gigabytes that a target's file must name; None if its default is enough."""
    return gigabytes if gigabytes > DEFAULT_GB[target] else None
