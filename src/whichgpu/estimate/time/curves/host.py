"""Seconds of reading weights from host memory: by the CPU that computes with them, or over PCIe."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters
from whichgpu.workload.decoding.offload import HOST_BANDWIDTH


def seconds(stack: OperatorStack, gpus: GpuColumns, _: Parameters) -> Array:
    """Return the seconds of each read, [gpus, operators, batches]; memory that GPU and CPU share is not read over PCIe."""
    by_cpu = np.where(stack.has_role("cpu"), HOST_BANDWIDTH, 0.0)
    rate: Array = np.where(by_cpu > 0, np.minimum(by_cpu, gpus.bandwidth), gpus.pcie)
    read_seconds: Array = stack.read / rate
    return read_seconds
