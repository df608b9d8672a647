"""Usable memory of a GPU: below its marketed size and the driver's total, and further reduced if it is shared."""

from __future__ import annotations

from whichgpu.base.units import GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.engine_memory import budget_bytes
from whichgpu.workload.workload import Workload

# The driver reserves 1 to 1.5% of the total that nvidia-smi prints: PyTorch reports 15.78 of 16 GiB on a V100, 23.69 of 24 on
# an RTX 3090, 79.15 of 80 on an A100. Where only the marketed size is known, part of it may serve ECC as well.
USABLE_OF_REPORTED, USABLE_OF_MARKETED = 0.985, 0.97
# Metal's recommendedMaxWorkingSetSize: two thirds up to 36 GB, three quarters above; other systems reserve a tenth (assumed).
APPLE_SMALL, APPLE_LARGE, APPLE_STEP, SHARED = 2 / 3, 0.75, 37 * GIB, 0.9
FAST_970 = 7 * GIB // 2  # fast bytes of a GTX 970, the quirk `gtx-970-3.5gb`


def usable_bytes(gpu: Gpu, workload: Workload | None = None, allowed: float | None = None) -> int:
    """Return the bytes a process can use, within the engine's limit or the `allowed` share of the GPU."""
    share = USABLE_OF_REPORTED if gpu.memory_basis == "reported" else USABLE_OF_MARKETED
    if "apple-shared-memory" in gpu.quirk_ids:
        share = APPLE_LARGE if gpu.memory_bytes >= APPLE_STEP else APPLE_SMALL
    elif "unified-memory" in gpu.quirk_ids:
        share = SHARED
    own = int(gpu.memory_bytes * share)
    return min(own, budget_bytes(workload, gpu, allowed)) if workload and not workload.training else own


def fast_bytes(gpu: Gpu) -> int | None:
    """Return the bytes of fast memory of a GPU that also has slow memory; None for others."""
    return FAST_970 if "gtx-970-3.5gb" in gpu.quirk_ids else None
