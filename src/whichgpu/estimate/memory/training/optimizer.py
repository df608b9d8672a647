"""Memory of optimizer states, and of an optimizer step's temporaries."""

from __future__ import annotations

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.workload.workload import Workload

STATES = {"adamw": 2, "adam": 2, "sgd-momentum": 1, "sgd": 0}  # number of states, each of the size and width of the parameters
EIGHT_BIT = 2 * (1 + 4 / 256)  # bytes per parameter: two one-byte moments, each with an fp32 scale per 256 (arXiv 2110.02861)
LOOP_COPIES = {"adamw": 2, "adam": 2}  # copies of a tensor, beside its states, while it is updated alone: root and quotient
ADAFACTOR = 0.01  # bytes of row and column sums (arXiv 1804.04235) as a share of the parameters' bytes


def state_sizes(workload: Workload, trained: int, width: int, master: int = 0) -> list[int]:
    """Return the bytes of each optimizer state of a parameter tensor of `trained` bytes with elements of `width` bytes.

    An optimizer with master weights of `master` bytes keeps them and states of the same width.
    """
    if not workload.include_optimizer_step:
        return []
    if master:
        weights = trained // width * master
        return [weights, *state_sizes(workload, weights, master)]
    if workload.optimizer == "adamw-8bit":
        return [int(trained / width * EIGHT_BIT / 2)] * 2
    if workload.optimizer == "adafactor":
        return [int(trained * ADAFACTOR)]
    return [trained] * STATES[workload.optimizer or "adamw"]


def optimizer_bytes(workload: Workload, trained: int, width: int) -> int:
    """Return the bytes of all optimizer states for `trained` bytes of parameters with elements of `width` bytes."""
    return sum(state_sizes(workload, trained, width))


def step_temporary(workload: Workload, trained: int, largest: int = 0) -> int:
    """Return the bytes of an optimizer step's temporaries: unfused optimizers hold about one more copy of the parameters.

    One that loops over the tensors holds copies of one tensor at a time, at most of that of `largest` bytes.
    """
    if not workload.include_optimizer_step or workload.optimizer == "sgd":
        return 0
    if not workload.optimizer_fused and loops_over_tensors(workload):
        return LOOP_COPIES.get(workload.optimizer or "", 1) * largest
    return trained if not workload.optimizer_fused or workload.optimizer == "adafactor" else 0


def loops_over_tensors(workload: Workload) -> bool:
    """Whether unfused optimizer steps of this engine in this year update one tensor after another (PyTorch before 2.0)."""
    return engine_record(workload.engine, workload.year).optimizer_kernels == "loop"
