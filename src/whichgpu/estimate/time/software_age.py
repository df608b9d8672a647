"""GPUs launched after the software that a request names: a warning, and a wider range of the time."""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.workload.workload import Workload

# Log factors added to both ends of a time's range, assumed: software older than a GPU has no kernels for its own instructions and
# compiles those of an older GPU for it, which on Hopper and Blackwell reach half to two thirds of the rate of their own.
NEWER_GPU_LOG_RANGE = (-0.1, 0.6)


def is_newer_than_software(workload: Workload, gpu: Gpu) -> bool:
    """Whether a GPU was launched in a later year than that of the software named; False if no year is named.

    >>> from whichgpu.catalog.store import Catalog
    >>> h100 = Catalog().gpu_by_id["h100-sxm"]
    >>> [is_newer_than_software(Workload("train", "gpt2", year=year), h100) for year in (2020, 2022, None)]
    [True, False, False]
    """
    return workload.year is not None and workload.year < int(gpu.launch_date[:4])


def age_warnings(workload: Workload, gpu: Gpu) -> tuple[Message, ...]:
    """Return a warning if the GPU is newer than the software named."""
    if not is_newer_than_software(workload, gpu):
        return ()
    return (msg("warning.gpu-newer", gpu=gpu.name, launched=gpu.launch_date[:4], year=str(workload.year)),)


def widened(log_range: tuple[float, float], workload: Workload, gpu: Gpu) -> tuple[float, float]:
    """Return a time's 90% range as log factors, wider if the GPU is newer than the software named."""
    if not is_newer_than_software(workload, gpu):
        return log_range
    return log_range[0] + NEWER_GPU_LOG_RANGE[0], log_range[1] + NEWER_GPU_LOG_RANGE[1]
