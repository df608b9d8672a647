"""`whichgpu instances`: cloud machines and servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.request.catalog import InstancesRequest
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.host import Instance
from whichgpu.catalog.instance_names import NamePart
from whichgpu.surface.cells import sorted_by
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources, say_where_from
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.facts.catalog import InstancesAnswer

USUAL = ("provider", "instance", "gpus", "gpu_name", "vcpus", "ram_bytes")


@command("instances", InstancesRequest, has_examples=True)
def instances(session: Session, request: Request) -> InstancesAnswer:
    """Machines, and the parts of a name."""
    return verbs.instances(sorted_by(request, Instance, session.language), session.context())  # type: ignore[arg-type]


@instances.shows
def show(session: Session, answer: InstancesAnswer) -> None:
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
