"""Warnings about a workload besides its speed: engine support, accuracy of its precision, data loading on the host."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.names import squash
from whichgpu.catalog.accuracy import accuracy_note
from whichgpu.catalog.find import exact_instances
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.loading import LOADERS, loading_remark
from whichgpu.estimate.memory.dispatch import check_training_units
from whichgpu.workload.engine_support import check_engine
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload


class Advice(msgspec.Struct, frozen=True):
    """Warnings to add to an answer about a workload, and the sources that they cite."""

    warnings: tuple[Message, ...] = ()
    sources: tuple[str, ...] = ()


def advice(
    workload: Workload,
    shape: Shape,
    gpu: Gpu | None,
    throughput: Figure | None,
    catalog: Catalog,
    user_fields: Collection[str],
) -> Advice:
    """Return warnings and sources for a workload; raise an error if the user named an engine that cannot run it."""
    if workload.training and gpu is not None:
        check_training_units(workload, gpu)
    warnings = [*check_engine(workload, shape, gpu, catalog.engines, user_fields)]
    sources: list[str] = []
    if not workload.training and (note := accuracy_note(catalog.accuracy, catalog.models, shape.name, workload.precision or "")):
        warnings.append(note.message)
        sources += note.sources
    if workload.training and throughput is not None and shape.reads_images:
        warnings.append(loading_remark(throughput.value, host_vcpus(workload, gpu, catalog)))
        sources += LOADERS["torchvision"].per_vcpu.sources
    return Advice(tuple(warnings), tuple(dict.fromkeys(sources)))


def host_vcpus(workload: Workload, gpu: Gpu | None, catalog: Catalog) -> float | None:
    """Return the hardware threads of the cloud machine if the request names one (p3.2xlarge) instead of a GPU; else None."""
    machine = machine_of(workload, gpu, catalog)
    return float(machine.vcpus) if machine and machine.vcpus else None


def machine_of(workload: Workload, gpu: Gpu | None, catalog: Catalog) -> Instance | None:
    """Return the cloud machine if the request names one (p3.2xlarge) instead of a GPU; else None."""
    name = workload.gpu or ""
    if gpu is not None and squash(name) in map(squash, (gpu.id, gpu.name, *gpu.aliases)):
        return None
    machines = exact_instances(catalog.instances, name)
    return machines[0] if machines else None
