"""The machine around the GPUs: threads and memory to feed them, links they need, an image to start from, a build's parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import GIB, format_memory
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.loading import loading_remark
from whichgpu.workload.workload import Workload

VCPUS_A_GPU = (8, 16)  # four to eight cores, two threads each (AutoDL's guide; the 2022 seed)
IMAGES = {"aws": "aws-dlami", "gcp": "gcp-dlvm", "azure": "azure-dsvm"}
SPARE_WATTS, HEADROOM, STEP_WATTS = 250, 1.3, 50  # of a build beside its cards; supplies run best well below their rating
LANES = 16  # of PCIe a card wants
FRACTION = 0.4  # of a GPU, below which a slice of it would do
SPARE_RAM = 1.25  # times what the GPUs hold, for the system and what is read meanwhile (assumed)
RAM_TIMES, RAM_LEAST = 2, 16 * GIB  # of the GPUs' memory: weights are staged there, data are cached (assumed)


def host_advice(
    workload: Workload, group: Group, way: Configuration, instance: Instance | None, provider: str, sees: bool, term: str
) -> tuple[Message, ...]:
    """What to look for in the host of an answer."""
    said = []
    if workload.training and sees:
        said.append(loading_remark(way.rate, float(instance.vcpus) if instance and instance.vcpus else None))
    else:
        low, high = (count * group.gpus for count in VCPUS_A_GPU)
        have = int(instance.vcpus) if instance and instance.vcpus else None
        said.append(msg("host.vcpus-have" if have else "host.vcpus", low=low, high=high, have=have or 0))
    ram = int(way.need * group.per_machine)
    if instance and instance.ram_bytes:
        id = "host.ram-have" if instance.ram_bytes >= ram else "host.ram-short"
        said.append(msg(id, need=format_memory(ram), have=format_memory(instance.ram_bytes)))
    else:
        said.append(msg("host.ram", need=format_memory(max(int(ram * SPARE_RAM), 16 * GIB))))
    said.append(_links(workload, group, way))
    image = IMAGES.get(provider, "ngc")
    said.append(msg(f"host.image-{image}"))
    if term in ("on-demand", "spot"):
        said.append(msg("host.shut-down"))
    if group.gpus == 1 and way.need < FRACTION * way.usable and not workload.training and _idle(way):
        said.append(
            msg("host.fraction-mig" if "mig" in group.gpu.supports else "host.fraction", share=f"{way.need / way.usable:.0%}")
        )
    return tuple(said)


def _idle(way: Configuration) -> bool:
    """Whether a part of the GPU would bear the load as well, where there is one."""
    return way.served is None or way.served.rate * way.parallel.dp < FRACTION * (way.bears or 0.0)


def _links(workload: Workload, group: Group, way: Configuration) -> Message:
    """One or several GPUs and why; what the layout wants of links and network."""
    if group.gpus == 1:
        return msg("host.single")
    if group.machines > 1:
        rate = f"{group.fabric.network_bandwidth * 8 / 1e9:.3g}"
        return msg("host.network", n=group.machines, kind=group.fabric.network_kind, rate=rate)
    if way.parallel.tp > 1:
        return msg("host.tensor", tp=way.parallel.tp, links=msg(f"links.{group.fabric.kind}"))
    return msg(
        "host.copies" if not workload.training else "host.data-parallel", n=group.gpus, links=msg(f"links.{group.fabric.kind}")
    )


def build_advice(gpu: Gpu, gpus: int) -> tuple[Message, ...]:
    """Parts of a machine one builds: processor class, lanes, power supply, room for the cards."""
    said: list[Message] = []
    server = gpu.segment in ("datacenter", "server") or gpus > 2
    said.append(msg("build.cpu-server" if server else "build.cpu-desktop", lanes=LANES * gpus, cores=4 * gpus))
    if gpu.tdp_watts:
        watts = (float(gpu.tdp_watts) * gpus + SPARE_WATTS) * HEADROOM
        said.append(msg("build.power", watts=int(ceil(watts / STEP_WATTS) * STEP_WATTS), card=int(gpu.tdp_watts), n=gpus))
    said.append(msg("build.ram", need=format_memory(max(RAM_LEAST, RAM_TIMES * int(gpu.memory_marketed_bytes) * gpus))))
    form = _form(gpu)
    said.append(msg(f"build.form-{form}", gpu=gpu.name))
    return tuple(said)


def _form(gpu: Gpu) -> str:
    if gpu.form_factor not in ("pcie", "mxm"):
        return "module"
    return "passive" if gpu.cooling == "passive" else "card"


def quirks(gpu: Gpu) -> Sequence[str]:
    """What is odd about it, as the catalog says."""
    return gpu.quirks
