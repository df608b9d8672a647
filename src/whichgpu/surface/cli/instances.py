"""`whichgpu instances`: cloud machines and servers."""

from __future__ import annotations

import click

from whichgpu import api
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory, parse_bytes
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.host import Instance
from whichgpu.catalog.naming import NamePart
from whichgpu.catalog.select import InstanceFilter, parse_span
from whichgpu.surface.cli.frame import GPU, INSTANCE, PROVIDER, Parsed, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources, say_where_from
from whichgpu.surface.fields import field_named

USUAL = ("provider", "instance", "gpus", "gpu_name", "vcpus", "ram_bytes")


@command("instances", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, type=INSTANCE, metavar="[NAME…]")
@option("--provider", type=PROVIDER, metavar="NAME")
@option("--gpu", type=GPU, metavar="NAME")
@option("--gpus", type=Parsed("span", parse_span), metavar="N[..M]")
@option("--min-memory", type=Parsed("size", parse_bytes), metavar="SIZE", help="option.min-memory-all")
@option("--min-ram", type=Parsed("size", parse_bytes), metavar="SIZE")
@option("--sort", metavar="FIELD")
def instances(
    session: Session, names: tuple[str, ...], gpu: str | None, sort: str | None, **wanted: object
) -> api.InstancesAnswer:
    """Machines, and the parts of a name."""
    catalog = catalog_of(session)
    ids = frozenset(found.id for found in find_gpus(catalog, gpu)) if gpu is not None else None
    filter = InstanceFilter(**wanted, gpu_ids=ids, as_of=session.as_of)  # type: ignore[arg-type]
    return api.instances(names, filter, field_named(sort, Instance, session.language), catalog)


@instances.shows
def show(session: Session, answer: api.InstancesAnswer) -> None:
    """A list, or every fact about the one named with the parts of its name."""
    if session.named and len(answer.instances) == 1:
        row = answer.instances[0]
        session.show_one(answer, row, _sentence(row), [_told(session.language, part) for part in answer.name_parts])
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.instances, USUAL, msg("instances.count", n=len(answer.instances)))
        say_where_from(session, answer.instances, answer.sources)
    if answer.undated:
        session.say(msg("instances.undated", n=answer.undated))


def _told(language: Language, part: NamePart) -> tuple[str, str]:
    meaning = language.fact(part.meaning) if part.meaning else language.text(f"instances.part-{part.kind}", part=part.part)
    return language.text("instances.part", part=part.part), meaning


def _sentence(row: Instance) -> Message:
    known = row.vcpus is not None and row.ram_bytes is not None
    return msg(
        "instances.sentence" if known else "instances.sentence-short",
        instance=row.instance,
        provider=row.provider,
        count=f"{row.gpus:g}",
        gpu=row.gpu_name,
        vcpus=f"{row.vcpus or 0:g}",
        ram=format_memory(row.ram_bytes or 0),
    )
