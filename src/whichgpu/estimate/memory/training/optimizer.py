"""Memory of optimizer states, and of the temporaries of an optimizer step."""

from __future__ import annotations

from whichgpu.workload.workload import Workload

STATES = {"adamw": 2, "adam": 2, "sgd-momentum": 1, "sgd": 0}  # copies of the parameters, in their own width
EIGHT_BIT = 2 * (1 + 4 / 256)  # two one-byte moments with an fp32 scale for each block of 256 (arXiv 2110.02861)
ADAFACTOR = 0.01  # row and column sums of each matrix (arXiv 1804.04235), as a share of the parameters


def state_sizes(workload: Workload, trained: int, width: int) -> list[int]:
    """Bytes of each optimizer state of a parameter of `trained` bytes with elements of `width` bytes."""
    if not workload.include_optimizer_step:
        return []
    if workload.optimizer == "adamw-8bit":
        return [int(trained / width * EIGHT_BIT / 2)] * 2
    if workload.optimizer == "adafactor":
        return [int(trained * ADAFACTOR)]
    return [trained] * STATES[workload.optimizer or "adamw"]


def optimizer_bytes(workload: Workload, trained: int, width: int) -> int:
    """Bytes of all optimizer states of `trained` bytes of parameters with elements of `width` bytes."""
    return sum(state_sizes(workload, trained, width))


def step_temporary(workload: Workload, trained: int) -> int:
    """Bytes of temporaries of an optimizer step: unfused optimizers hold about one more copy of the parameters."""
    if not workload.include_optimizer_step or workload.optimizer == "sgd":
        return 0
    return trained if not workload.optimizer_fused or workload.optimizer == "adafactor" else 0
