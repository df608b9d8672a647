"""The optimizer's step: kernels over all parameters at once, so bytes a parameter decide."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.time.operators import Op
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class OptimizerTraffic:
    """How often a step reads and writes something as large as the parameters, and in how many kernels."""

    reads: float
    writes: float
    kernels: int = 1
    state: float = 0.0  # bytes a parameter besides, of states held narrow


# As torch.optim runs them. Fused: one kernel reads parameter, gradient and states and writes parameter and states. Foreach (SGD
# has no fused default): one kernel for each line of the update, each reading and writing whole tensors.
FUSED = {"adamw": OptimizerTraffic(4, 3), "adam": OptimizerTraffic(4, 3)}
FOREACH = {
    "sgd": OptimizerTraffic(2, 1),
    "sgd-momentum": OptimizerTraffic(5, 3, 3),  # buf *= momentum; buf += grad; p -= lr * buf
    "adamw": OptimizerTraffic(14, 8, 9),
    "adam": OptimizerTraffic(13, 7, 8),
    "adafactor": OptimizerTraffic(9, 4, 12),
    "adamw-8bit": OptimizerTraffic(2, 1, 1, 4.0),
}
# Framework calls of a step for each parameter tensor: fused and foreach both sort the tensors into lists.
CALLS_PER_TENSOR = 0.27


def optimizer_ops(workload: Workload, parameters: float, tensors: float, width: float) -> list[Op]:
    """One step over so many parameters of `width` bytes in so many tensors."""
    if not workload.include_optimizer_step:
        return []
    name = workload.optimizer or "sgd-momentum"
    known = FUSED if workload.optimizer_fused and name in FUSED else FOREACH
    passes = known.get(name, FUSED["adamw"])
    op = Op(
        "optimizer",
        "fp32" if width == 4 else "bf16",
        read=parameters * (passes.reads * width + passes.state / 2) / passes.kernels,
        write=parameters * (passes.writes * width + passes.state / 2) / passes.kernels,
        sizes={"elements": parameters, "resident": 0.0},
        count=float(passes.kernels),
        phase="optimizer",
        calls=tensors * CALLS_PER_TENSOR / passes.kernels,
        role=name,
    )
    return [op]


def accumulation_op(parameters: float, tensors: float, width: float) -> Op:
    """Gradients of a further micro-batch added to those there are, tensor by tensor."""
    each = parameters / tensors
    return Op(
        "pointwise",
        "fp32" if width == 4 else "bf16",
        read=2 * each * width,
        write=each * width,
        sizes={"elements": each, "resident": 0.0},
        count=tensors,
        phase="backward",
        role="add",
    )
