"""`whichgpu cpus` and `whichgpu regions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.request.catalog import CpusRequest, RegionsRequest
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.host import Cpu, Region
from whichgpu.surface.cells import sorted_by
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources, say_where_from
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.facts.catalog import CpusAnswer, RegionsAnswer

CPU_COLUMNS = ("name", "cores", "threads", "boost_clock_hz", "memory_channels", "pcie_lanes")
REGION_COLUMNS = ("provider", "region", "city", "country", "latitude", "longitude")


@command("cpus", CpusRequest, has_examples=True)
def cpus(session: Session, request: Request) -> CpusAnswer:
    """Host processors."""
    return verbs.cpus(sorted_by(request, Cpu, session.language), session.context())  # type: ignore[arg-type]


@cpus.shows
def show_cpus(session: Session, answer: CpusAnswer) -> None:
    """A list, or every fact about the one named."""
    headline = _sentence(answer.cpus[0]) if len(answer.cpus) == 1 else msg("cpus.count", n=len(answer.cpus))
    if session.named and len(answer.cpus) == 1:
        session.show_one(answer, answer.cpus[0], headline)
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.cpus, CPU_COLUMNS, headline)
        say_where_from(session, answer.cpus, answer.sources)


def _sentence(cpu: Cpu) -> Message:
    clock = f"{cpu.boost_clock_hz / 10**9:g} GHz" if cpu.boost_clock_hz else "–"
    return msg("cpus.sentence", name=cpu.name, cores=cpu.cores or "–", threads=cpu.threads or "–", clock=clock)


@command("regions", RegionsRequest, has_examples=True)
def regions(session: Session, request: Request) -> RegionsAnswer:
    """Places."""
    return verbs.regions(sorted_by(request, Region, session.language), session.context())  # type: ignore[arg-type]


@regions.shows
def show_regions(session: Session, answer: RegionsAnswer) -> None:
    """A list."""
    session.show(answer, answer.regions, REGION_COLUMNS, msg("regions.count", n=len(answer.regions)))
    say_where_from(session, answer.regions, answer.sources)
