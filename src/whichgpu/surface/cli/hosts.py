"""`whichgpu cpus` and `whichgpu regions`."""

from __future__ import annotations

import click

from whichgpu import api
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.host import Cpu, Region
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.frame import PROVIDER, Names, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources, say_where_from
from whichgpu.surface.fields import field_named

CPU_COLUMNS = ("name", "cores", "threads", "boost_clock_hz", "memory_channels", "pcie_lanes")
REGION_COLUMNS = ("provider", "region", "city", "country", "latitude", "longitude")


def _cpu_ids(catalog: Catalog) -> list[str]:
    return [cpu.id for cpu in catalog.cpus]


def _region_names(catalog: Catalog) -> list[str]:
    return sorted({region.region for region in catalog.regions})


@command("cpus", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, type=Names(_cpu_ids), metavar="[NAME…]")
@option("--sort", metavar="FIELD")
def cpus(session: Session, names: tuple[str, ...], sort: str | None) -> api.CpusAnswer:
    """Host processors."""
    return api.cpus(names, field_named(sort, Cpu, session.language), catalog_of(session))


@cpus.shows
def show_cpus(session: Session, answer: api.CpusAnswer) -> None:
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


@command("regions", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, type=Names(_region_names), metavar="[NAME…]")
@option("--provider", type=PROVIDER, metavar="NAME")
@option("--sort", metavar="FIELD")
def regions(session: Session, names: tuple[str, ...], provider: str | None, sort: str | None) -> api.RegionsAnswer:
    """Places."""
    return api.regions(names, provider, field_named(sort, Region, session.language), session.as_of, catalog_of(session))


@regions.shows
def show_regions(session: Session, answer: api.RegionsAnswer) -> None:
    """A list."""
    session.show(answer, answer.regions, REGION_COLUMNS, msg("regions.count", n=len(answer.regions)))
    say_where_from(session, answer.regions, answer.sources)
