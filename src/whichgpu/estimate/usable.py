"""How much of a GPU's memory a program gets: less than the label, less than the driver's total, less where it is shared."""

from __future__ import annotations

from whichgpu.base.units import GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.engine_memory import budget_bytes
from whichgpu.workload.workload import Workload

# Of the total nvidia-smi prints, the driver keeps 1 to 1.5% for itself: PyTorch names 15.78 of 16 GiB on a V100, 23.69 of 24 on
# an RTX 3090, 79.15 of 80 on an A100. Where only the marketed size is known, part of it may serve ECC as well.
REPORTED, MARKETED = 0.985, 0.97
# Metal's recommendedMaxWorkingSetSize: two thirds up to 36 GB, three quarters above; elsewhere the system keeps a tenth.
APPLE_SMALL, APPLE_LARGE, APPLE_STEP, SHARED = 2 / 3, 0.75, 37 * GIB, 0.9
FAST_970 = 7 * GIB // 2  # the quirk `gtx-970-3.5gb`


def usable_bytes(gpu: Gpu, workload: Workload | None = None, allowed: float | None = None) -> int:
    """Bytes a process can fill, at the engine's own limit where it has one, or at the share of the GPU it is `allowed`."""
    share = REPORTED if gpu.memory_basis == "reported" else MARKETED
    if "apple-shared-memory" in gpu.quirk_ids:
        share = APPLE_LARGE if gpu.memory_bytes >= APPLE_STEP else APPLE_SMALL
    elif "unified-memory" in gpu.quirk_ids:
        share = SHARED
    own = int(gpu.memory_bytes * share)
    return min(own, budget_bytes(workload, gpu, allowed)) if workload and not workload.training else own


def fast_bytes(gpu: Gpu) -> int | None:
    """Where part of the memory is slow: how much of it is not."""
    return FAST_970 if "gtx-970-3.5gb" in gpu.quirk_ids else None
