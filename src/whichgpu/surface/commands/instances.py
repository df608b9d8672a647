"""`whichgpu instances`: list cloud machines and servers."""

from __future__ import annotations

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.request.catalog import InstancesRequest
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.host import Instance
from whichgpu.catalog.names.instances import NamePart
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import show_listing
from whichgpu.surface.commands.session import Session

COLUMNS = ("provider", "instance", "gpus", "gpu_name", "vcpus", "ram_bytes")


@command("instances", InstancesRequest, verbs.instances, row_type=Instance)
def show(session: Session, answer: verbs.InstancesAnswer) -> None:
    """Print a list of machines, or every fact about the one named and the parts of its name."""
    parts = [_name_part(session.language, part) for part in answer.name_parts]
    count = msg("instances.count", n=len(answer.instances))
    show_listing(session, answer, answer.instances, answer.sources, COLUMNS, count, _sentence, parts)
    if answer.undated:
        session.say(msg("instances.undated", n=answer.undated))


def _name_part(language: Language, part: NamePart) -> tuple[str, str]:
    meaning = language.fact(part.meaning) if part.meaning else language.text(f"instances.part-{part.kind}", part=part.part)
    return language.text("instances.part", part=part.part), meaning


def _sentence(row: Instance) -> Message:
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
