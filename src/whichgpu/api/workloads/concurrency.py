"""The default concurrency of offline inference on a GPU or group of GPUs, if the user gives no batch."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichgpu.api.workloads.advice import machine_of
from whichgpu.catalog.architecture import has_rates
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.shapes import Shape, WeightsOnly
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.group.fabric import Fabric


def can_be_timed(shape: Shape, gpu: Gpu) -> bool:
    """Return whether times can be estimated: the model's architecture is known, and the GPU has published rates."""
    return not isinstance(shape, WeightsOnly) and has_rates(gpu)


def with_offline_batch(
    workload: Workload, shape: Shape, gpu: Gpu, user_fields: Collection[str], lookups: LookupCache
) -> Workload:
    """Return an offline workload with the batch of highest throughput that fits, or with the part of its own batch that fits.

    Other workloads are returned unchanged.
    """
    if not workload.traits.offline:
        return workload
    from whichgpu.estimate.offline import fitting_batch, offline_batch, replica_seconds

    if not chooses_batch(workload, shape, user_fields):
        fitting = fitting_batch(workload, shape, gpu)
        return replace(workload, batch=fitting, micro_batch=None) if fitting < (workload.batch or 1) else workload
    from whichgpu.estimate.group.fabric import fabric_of

    def fabric() -> Fabric:
        machine = machine_of(workload, gpu, lookups.catalog)
        return fabric_of(gpu, machine, workload.interconnect, workload.network_gbps, workload.network)

    timed = can_be_timed(shape, gpu)
    seconds_of = replica_seconds(workload, shape, gpu, fabric, lookups.calibration) if timed else None
    return replace(workload, batch=offline_batch(workload, shape, gpu, lambda one: estimate_memory(one, shape, gpu), seconds_of))
