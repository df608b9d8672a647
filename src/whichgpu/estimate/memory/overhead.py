"""Memory of PyTorch other than tensors: library workspaces and the CUDA context."""

from __future__ import annotations

from whichgpu.base.units import MIB
from whichgpu.catalog.architecture import TYPICAL, architecture_named, architecture_of
from whichgpu.catalog.gpu import Gpu

# Device memory in use less what the allocator reserved, measured on an H200 (132 SMs, driver 580, CUDA 13, PyTorch 2.11): 527 MiB
# before any kernel, 751 MiB with GEMMs only, 771 to 798 MiB with convolutions and attention. It grows with the SMs.
CONTEXT_PER_SM = 4 * MIB
LOADED_KERNELS = 257 * MIB  # bytes of the kernels that a training step loads
DEFAULT_SMS = 132  # SMs assumed if no GPU is given


def context_bytes(gpu: Gpu | None, kernels: int = LOADED_KERNELS) -> int:
    """Return the bytes of the CUDA context and loaded kernels."""
    return CONTEXT_PER_SM * (gpu.sms if gpu and gpu.sms else DEFAULT_SMS) + kernels


def workspace_bytes(gpu: Gpu | None) -> int:
    """Return the bytes of the cuBLAS workspace that PyTorch allocates on first use."""
    return (architecture_of(gpu) if gpu else architecture_named(TYPICAL)).gemm_workspace_mib * MIB
