"""`whichgpu instances`, `cpus` and `regions`: list cloud machines and servers, host processors and cloud regions."""

from __future__ import annotations

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.request.catalog import CpusRequest, InstancesRequest, RegionsRequest
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.host import Cpu, Instance, Region
from whichgpu.catalog.names.instances import NamePart
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import say_source_count, show_listing
from whichgpu.surface.commands.session import Session

INSTANCE_COLUMNS = ("provider", "instance", "gpus", "gpu_name", "vcpus", "ram_bytes")
CPU_COLUMNS = ("name", "cores", "threads", "boost_clock_hz", "memory_channels", "pcie_lanes")
REGION_COLUMNS = ("provider", "region", "city", "country", "latitude", "longitude")


@command("instances", InstancesRequest, verbs.instances, row_type=Instance)
def show_instances(session: Session, answer: verbs.InstancesAnswer) -> None:
    """Print a list of machines, or every fact about the one named and the parts of its name."""
    parts = [name_part(session.language, part) for part in answer.name_parts]
    count = msg("instances.count", n=len(answer.instances))
    show_listing(session, answer, answer.instances, answer.sources, INSTANCE_COLUMNS, count, machine_sentence, parts)
    if answer.undated:
        session.say(msg("instances.undated", n=answer.undated))


def name_part(language: Language, part: NamePart) -> tuple[str, str]:
    """Return a part of an instance's name and its meaning, as texts."""
    meaning = language.fact(part.meaning) if part.meaning else language.text(f"instances.part-{part.kind}", part=part.part)
    return language.text("instances.part", part=part.part), meaning


def machine_sentence(row: Instance) -> Message:
    """Return a sentence about an instance: provider, GPUs and host."""
    is_complete = row.vcpus is not None and row.ram_bytes is not None
    return msg(
        "instances.sentence" if is_complete else "instances.sentence-short",
        instance=row.instance,
        provider=row.provider,
        count=f"{row.gpus:g}",
        gpu=row.gpu_name,
        vcpus=f"{row.vcpus or 0:g}",
        ram=format_memory(row.ram_bytes or 0),
    )


@command("cpus", CpusRequest, verbs.cpus, row_type=Cpu)
def show_cpus(session: Session, answer: verbs.CpusAnswer) -> None:
    """Print a list of processors, or every fact about the one named."""
    headline = _sentence(answer.cpus[0]) if len(answer.cpus) == 1 else msg("cpus.count", n=len(answer.cpus))
    show_listing(session, answer, answer.cpus, answer.sources, CPU_COLUMNS, headline, _sentence)


def _sentence(cpu: Cpu) -> Message:
    clock = f"{cpu.boost_clock_hz / 10**9:g} GHz" if cpu.boost_clock_hz else "–"
    return msg("cpus.sentence", name=cpu.name, cores=cpu.cores or "–", threads=cpu.threads or "–", clock=clock)


@command("regions", RegionsRequest, verbs.regions, row_type=Region)
def show_regions(session: Session, answer: verbs.RegionsAnswer) -> None:
    """Print a list of cloud regions."""
    session.show(answer, answer.regions, REGION_COLUMNS, msg("regions.count", n=len(answer.regions)))
    say_source_count(session, answer.regions, answer.sources)
