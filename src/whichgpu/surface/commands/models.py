"""`whichgpu models`: list the built-in models."""

from __future__ import annotations

from whichgpu.api.facts import models as verbs
from whichgpu.api.request.catalog import ModelsRequest
from whichgpu.base.messages import msg
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.session import Session

COLUMNS = ("id", "kind", "parameters", "layers", "license", "released")


@command("models", ModelsRequest, verbs.models)
def show(session: Session, answer: verbs.ModelsAnswer) -> None:
    """Print a list of models, or every fact about the one named."""
    headline = msg("models.count", n=len(answer.models))
    if session.has_names and len(answer.models) == 1:
        session.show_one(answer, answer.models[0], headline)
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.models, COLUMNS, headline)
