"""What lies beside tensors: library workspaces, the CUDA context, and what the caching allocator keeps in hand."""

from __future__ import annotations

from whichgpu.base.units import MIB
from whichgpu.catalog.architecture import TYPICAL, architecture_named, architecture_of
from whichgpu.catalog.gpu import Gpu

# Device memory in use less what the allocator reserved, on an H200 (132 SMs, driver 580, CUDA 13, PyTorch 2.11): 751 MiB with
# plain matrix products, 771 to 798 MiB once convolutions, attention and more kernels are loaded. It grows with the SMs.
CONTEXT_PER_SM = 4 * MIB
KERNELS = 257 * MIB
SMS = 132  # where no GPU is named


def context_bytes(gpu: Gpu | None) -> int:
    """Bytes of the CUDA context and loaded kernels."""
    return CONTEXT_PER_SM * (gpu.sms if gpu and gpu.sms else SMS) + KERNELS


def workspace_bytes(gpu: Gpu | None) -> int:
    """Bytes of matrix-product workspace the framework allocates on first use."""
    return (architecture_of(gpu) if gpu else architecture_named(TYPICAL)).gemm_workspace_mib * MIB
