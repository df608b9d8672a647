"""`whichgpu cpus` and `whichgpu regions`: list host processors and cloud regions."""

from __future__ import annotations

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.request.catalog import CpusRequest, RegionsRequest
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.host import Cpu, Region
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import say_source_count, show_listing
from whichgpu.surface.commands.session import Session

CPU_COLUMNS = ("name", "cores", "threads", "boost_clock_hz", "memory_channels", "pcie_lanes")
REGION_COLUMNS = ("provider", "region", "city", "country", "latitude", "longitude")


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
