"""`whichgpu models`: what can be named without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.api.facts import models as verbs
from whichgpu.api.request.catalog import ModelsRequest
from whichgpu.base.messages import msg
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.facts.models import ModelsAnswer

USUAL = ("id", "kind", "parameters", "layers", "license", "released")


@command("models", ModelsRequest, has_examples=True)
def models(session: Session, request: Request) -> ModelsAnswer:
    """Built-in models."""
    return verbs.models(request, session.context())  # type: ignore[arg-type]


@models.shows
def show(session: Session, answer: ModelsAnswer) -> None:
    """A list, or every fact about the one named."""
    headline = msg("models.count", n=len(answer.models))
    if session.named and len(answer.models) == 1:
        session.show_one(answer, answer.models[0], headline)
        if kind := answer.models[0].denoiser:
            session.say(msg("fit.warning", what=msg(f"note.denoiser-{kind}")))
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.models, USUAL, headline)
