"""`whichgpu engines`: the software that can be named, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.facts import engines as verbs
from whichgpu.api.request.catalog import EnginesRequest
from whichgpu.base.messages import Fact, Message, msg
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources, say_where_from
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.facts.engines import EngineRow, EnginesAnswer

USUAL = ("id", "what", "tasks", "interfaces", "first_release", "evidence.rows")


@command("engines", EnginesRequest, has_examples=True)
def engines(session: Session, request: Request) -> EnginesAnswer:
    """Engines."""
    return verbs.engines(request, session.context())  # type: ignore[arg-type]


@engines.shows
def show(session: Session, answer: EnginesAnswer) -> None:
    """A list, or every fact about the one named."""
    if session.named and len(answer.engines) == 1:
        session.show_one(answer, answer.engines[0], _sentence(answer.engines[0]))
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.engines, USUAL, msg("engines.count", n=len(answer.engines)))
        say_where_from(session, answer.engines, answer.sources)


def _sentence(row: EngineRow) -> Message:
    rests = row.evidence
    id = "engines.sentence" if rests.rows else "engines.sentence-unmeasured"
    return msg(id, name=row.name, what=Fact(row.what), n=rests.rows, gpus=len(rests.gpus))
