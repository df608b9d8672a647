"""Advice on the host of the GPUs: CPU threads, memory, links, a disk image, and the parts of a machine to build."""

from __future__ import annotations

from math import ceil

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import GIB, format_memory
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.loading import loading_remark
from whichgpu.workload.workload import Workload

VCPUS_PER_GPU = (8, 16)  # The range is four to eight cores per GPU with two threads each (AutoDL's guide).
IMAGES = {"aws": "aws-dlami", "gcp": "gcp-dlvm", "azure": "azure-dsvm"}
# Watts of a build besides its cards; power-supply rating over total draw; watts between the ratings sold (all assumed).
HOST_WATTS, POWER_HEADROOM, WATTS_STEP = 250, 1.3, 50
PCIE_LANES_PER_CARD = 16  # A card's slot has 16 lanes at full width (PCIe specification).
SLICE_SHARE = 0.4  # If the work uses less than this share of a GPU, a slice of one is suggested (assumed).
RAM_HEADROOM = 1.25  # Host memory over GPU memory used, to leave space for the system and input data (assumed).
BUILD_RAM_FACTOR, MIN_RAM = 2, 16 * GIB  # Host memory of a build over GPU memory, for staging and caching; least bytes (assumed).


def host_advice(
    request: WorkloadRequest, group: Group, one: Configuration, instance: Instance | None, provider: str, term: str
) -> tuple[Message, ...]:
    """Return what to check about the host of an answer; `instance` is None if the catalog does not describe it."""
    workload = request.workload
    vcpus = instance.vcpus if instance else None
    advice = []
    if workload.training and request.shape.reads_images:
        advice.append(loading_remark(one.rate, float(vcpus) if vcpus else None))
    else:
        low, high = (count * group.per_machine for count in VCPUS_PER_GPU)  # of each machine, as the instance states them
        advice.append(msg("host.vcpus-have" if vcpus else "host.vcpus", low=low, high=high, have=int(vcpus or 0)))
    ram = int(one.need * group.per_machine)
    if instance and instance.ram_bytes:
        id = "host.ram-have" if instance.ram_bytes >= ram else "host.ram-short"
        advice.append(msg(id, need=format_memory(ram), have=format_memory(instance.ram_bytes)))
    else:
        advice.append(msg("host.ram", need=format_memory(max(int(ram * RAM_HEADROOM), MIN_RAM))))
    advice.append(_links(workload, group, one))
    image = IMAGES.get(provider, "ngc")
    advice.append(msg(f"host.image-{image}"))
    if term in ("on-demand", "spot"):
        advice.append(msg("host.shut-down"))
    if group.gpus == 1 and one.need < SLICE_SHARE * one.usable and not workload.training and _slice_sustains_load(one):
        id = "host.fraction-mig" if "mig" in group.gpu.supports else "host.fraction"
        advice.append(msg(id, share=f"{one.need / one.usable:.0%}"))
    return tuple(advice)


def _slice_sustains_load(one: Configuration) -> bool:
    return one.simulation is None or one.simulation.rate * one.parallel.dp < SLICE_SHARE * (one.max_rate or 0.0)


def _links(workload: Workload, group: Group, one: Configuration) -> Message:
    """Return a message on the links and network that the layout's communication needs."""
    if group.gpus == 1:
        return msg("host.single")
    if group.machines > 1:
        rate = f"{group.fabric.network_bandwidth * 8 / 1e9:.3g}"
        return msg("host.network", n=group.machines, kind=group.fabric.network_kind, rate=rate)
    links = msg(f"links.{group.fabric.kind}")
    if one.parallel.tp > 1:
        return msg("host.tensor", tp=one.parallel.tp, links=links)
    return msg("host.data-parallel" if workload.training else "host.copies", n=group.gpus, links=links)


def build_advice(gpu: Gpu, gpus: int) -> tuple[Message, ...]:
    """Return the parts of a machine to build: processor class, PCIe lanes, power supply, memory, form factor of the cards."""
    server = gpu.segment in ("datacenter", "server") or gpus > 2
    cpu = "build.cpu-server" if server else "build.cpu-desktop"
    advice = [msg(cpu, lanes=PCIE_LANES_PER_CARD * gpus, cores=4 * gpus)]
    if gpu.tdp_watts:
        watts = (float(gpu.tdp_watts) * gpus + HOST_WATTS) * POWER_HEADROOM
        advice.append(msg("build.power", watts=int(ceil(watts / WATTS_STEP) * WATTS_STEP), card=int(gpu.tdp_watts), n=gpus))
    ram = max(MIN_RAM, BUILD_RAM_FACTOR * int(gpu.memory_marketed_bytes) * gpus)
    advice.append(msg("build.ram", need=format_memory(ram)))
    form = "module" if gpu.form_factor not in ("pcie", "mxm") else "passive" if gpu.cooling == "passive" else "card"
    advice.append(msg(f"build.form-{form}", gpu=gpu.name))
    return tuple(advice)
