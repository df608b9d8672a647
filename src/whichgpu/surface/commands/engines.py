"""`whichgpu engines`: the inference and training software that requests can name, and the evidence for each."""

from __future__ import annotations

from whichgpu.api.facts import engines as verbs
from whichgpu.api.request.catalog import EnginesRequest
from whichgpu.base.messages import Fact, Message, msg
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import show_listing
from whichgpu.surface.commands.session import Session

COLUMNS = ("id", "what", "tasks", "interfaces", "first_release", "evidence.rows")


@command("engines", EnginesRequest, verbs.engines)
def show(session: Session, answer: verbs.EnginesAnswer) -> None:
    """Print a list of engines, or every fact about the one named."""
    count = msg("engines.count", n=len(answer.engines))
    show_listing(session, answer, answer.engines, answer.sources, COLUMNS, count, _sentence)


def _sentence(row: verbs.EngineRow) -> Message:
    evidence = row.evidence
    id = "engines.sentence" if evidence.rows else "engines.sentence-unmeasured"
    return msg(id, name=row.name, what=Fact(row.what), n=evidence.rows, gpus=len(evidence.gpus))
