"""Memory of PyTorch other than tensors: library workspaces and the CUDA context."""

from __future__ import annotations

from collections.abc import Mapping

from whichgpu.base.units import MIB
from whichgpu.catalog.architecture import TYPICAL, architecture_named, architecture_of
from whichgpu.catalog.engines.record import EngineMemory
from whichgpu.catalog.gpu import Gpu

# Device memory in use less what the allocator reserved, measured on an H200 (132 SMs, driver 580, CUDA 13, PyTorch 2.11): 527 MiB
# before any kernel, 751 MiB with GEMMs only, 771 to 798 MiB with convolutions and attention. It grows with the SMs. The same jobs
# under CUDA_MODULE_LOADING=EAGER: 1803 MiB, and 2059 MiB with convolutions.
CONTEXT_PER_SM = 4 * MIB
LOADED_KERNELS = 257 * MIB  # bytes of the kernels that a training step loads
DEFAULT_SMS = 132  # SMs assumed if no GPU is given
AMPERE = 8.0  # compute capability from which a GPU needs CUDA 11
# 90% range of the context's bytes if all kernels were loaded at start: measured over estimated is 0.95 to 1.27 on five GPUs.
EAGER_CONTEXT_RANGE = (0.8, 1.2)


def context_bytes(gpu: Gpu | None, kernels: int = LOADED_KERNELS) -> int:
    """Return the bytes of the CUDA context and loaded kernels."""
    return CONTEXT_PER_SM * (gpu.sms if gpu and gpu.sms else DEFAULT_SMS) + kernels


def kernel_bytes(memory: EngineMemory, gpu: Gpu | None, run: int = LOADED_KERNELS, convolutions: bool = False) -> int:
    """Return the bytes of the kernels in the CUDA context: `run`, those of kernels that ran, or all if loaded eagerly."""
    newer = gpu is None or gpu.compute_capability is None or float(gpu.compute_capability) >= AMPERE
    eager = memory.eager_kernels_ampere if newer else memory.eager_kernels
    if not eager or (gpu is not None and gpu.vendor != "nvidia"):
        return run
    return int(eager + (memory.eager_convolution_kernels if convolutions else 0.0))


def device_range(spread: tuple[float, float], parts: Mapping[str, int], kernels: int, run: int) -> tuple[float, float]:
    """Return the range of the bytes on the device as factors, wider than `spread` if all kernels were loaded at start."""
    if kernels == run:
        return spread
    share = parts["context"] / sum(parts.values())
    return spread[0] - (1.0 - EAGER_CONTEXT_RANGE[0]) * share, spread[1] + (EAGER_CONTEXT_RANGE[1] - 1.0) * share


def workspace_bytes(gpu: Gpu | None) -> int:
    """Return the bytes of the cuBLAS workspace that PyTorch allocates on first use."""
    return (architecture_of(gpu) if gpu else architecture_named(TYPICAL)).gemm_workspace_mib * MIB
