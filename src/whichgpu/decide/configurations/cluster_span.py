"""How many GPUs a training run is searched with if the user gives no number: more than one machine for large runs."""

from __future__ import annotations

import msgspec

from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Shape

FLOPS_PER_PARAMETER = 6.0  # FLOPs of training per parameter and token, forward and backward (https://arxiv.org/abs/2001.08361).
REFERENCE_FLOPS = 989.4e12 * 0.4  # FLOP/s of an H100 SXM in bf16 (NVIDIA) at 40% MFU, as long training runs reach.
BYTES_PER_PARAMETER = 18.0  # Weights, gradients, master weights and both moments of Adam in mixed precision.
REFERENCE_MEMORY = 80e9  # Bytes of an H100 SXM.
FASTER, SLOWER = 4.0, 16.0  # GPUs up to this many times faster or slower than the reference are searched as well (assumed).
ROOM = 2.0  # Activations and GPUs with less memory may double the GPUs that memory needs (assumed).
CLUSTER_ENGINE = "ngc"  # NVIDIA's training stacks, which overlap and fuse more than a plain install, run most large clusters.
MACHINE_GPUS = 8.0  # More GPUs than this are searched over several machines.
MAX_CLUSTER_GPUS = 8192.0  # Largest cluster searched.


class ClusterSpan(msgspec.Struct, frozen=True):
    """Fewest and most GPUs to search, and the numbers that a run needs of the reference GPU: in all, and for its memory."""

    low: float
    high: float
    needed: float
    in_memory: float

    @property
    def several_machines(self) -> bool:
        """Return whether memory alone needs more than one machine, whatever the deadline."""
        return self.in_memory > MACHINE_GPUS


def training_span(shape: Shape, tokens: float | None, deadline: float | None) -> ClusterSpan | None:
    """Return the GPUs to search for training all weights of a language model; None if one machine may do.

    `tokens` are those of the run, `deadline` the seconds left for its work. Memory needs GPUs for weights and optimizer state,
    the deadline for the run's FLOPs.
    """
    parameters = count_parameters(shape)
    in_memory = parameters.total * BYTES_PER_PARAMETER / REFERENCE_MEMORY
    in_time = 0.0
    if deadline and tokens:
        in_time = FLOPS_PER_PARAMETER * parameters.active * tokens / (deadline * REFERENCE_FLOPS)
    if max(in_memory, in_time) * ROOM <= MACHINE_GPUS:
        return None
    low = in_time / FASTER if in_time / FASTER > MACHINE_GPUS else 1.0
    high = min(MAX_CLUSTER_GPUS, max(MACHINE_GPUS, in_memory * ROOM, in_time * SLOWER))
    return ClusterSpan(min(low, high), high, max(in_memory, in_time), in_memory)
