"""Optimizer steps and gradient accumulation: kernels over all parameters, whose time depends on bytes per parameter."""

from __future__ import annotations

import msgspec

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.workload import Workload


class OptimizerTraffic(msgspec.Struct, frozen=True):
    """Numbers of parameter-sized tensors that an optimizer step reads and writes, and of its kernels."""

    reads: float
    writes: float
    kernels: int = 1
    state: float = 0.0  # additional bytes moved per parameter, for 8-bit states


# Traffic in torch.optim. Fused: one kernel reads parameter, gradient and states and writes parameter and states. Foreach (the
# default of SGD): one kernel per line of the update, each of which reads and writes whole tensors. A loop (PyTorch before 2.0)
# launches the same kernels for every tensor.
FUSED = {"adamw": OptimizerTraffic(4, 3), "adam": OptimizerTraffic(4, 3)}
FOREACH = {
    "sgd": OptimizerTraffic(2, 1),
    "sgd-momentum": OptimizerTraffic(5, 3, 3),  # buf *= momentum; buf += grad; p -= lr * buf
    "adamw": OptimizerTraffic(14, 8, 9),
    "adam": OptimizerTraffic(13, 7, 8),
    "adafactor": OptimizerTraffic(9, 4, 12),
    "adamw-8bit": OptimizerTraffic(2, 1, 1, 4.0),
}
# Framework calls per parameter tensor (measured): both fused and foreach optimizers sort the tensors into lists.
CALLS_PER_TENSOR = 0.27


def optimizer_ops(workload: Workload, parameters: float, tensors: float, width: float) -> list[Op]:
    """Return the operators of one optimizer step over parameters of `width` bytes; none if the request leaves the step out."""
    if not workload.include_optimizer_step:
        return []
    name = workload.optimizer or "sgd-momentum"
    traffic_by_name = FUSED if workload.optimizer_fused and name in FUSED else FOREACH
    traffic = traffic_by_name.get(name, FUSED["adamw"])
    looped = traffic_by_name is FOREACH and engine_record(workload.engine, workload.year).optimizer_kernels == "loop"
    each = parameters / tensors if looped else parameters
    op = Op(
        "optimizer",
        "fp32" if width == 4 else "bf16",
        read=each * (traffic.reads * width + traffic.state / 2) / traffic.kernels,
        write=each * (traffic.writes * width + traffic.state / 2) / traffic.kernels,
        sizes={"elements": each, "resident": 0.0},
        count=traffic.kernels * (tensors if looped else 1.0),
        phase="optimizer",
        calls=1.0 if looped else tensors * CALLS_PER_TENSOR / traffic.kernels,
        role=name,
    )
    return [op]


def accumulation_op(parameters: float, tensors: float, width: float) -> Op:
    """Return the operator that adds a further micro-batch's gradients, tensor by tensor."""
    each = parameters / tensors
    return Op(
        "elementwise",
        "fp32" if width == 4 else "bf16",
        read=2 * each * width,
        write=each * width,
        sizes={"elements": each, "resident": 0.0},
        count=tensors,
        phase="backward",
        role="add",
    )


def weight_quantisation(parameters: float, tensors: float, width: float, operand: float) -> Op:
    """Return the operator that quantises updated weights for the next step's GEMMs, in rows and in columns."""
    each = parameters / tensors
    sizes = {"elements": each, "resident": 0.0}
    return Op("copy", "bf16", read=each * width, write=2 * each * operand, sizes=sizes, count=tensors, phase="optimizer")
