"""`whichgpu models`: list the built-in models."""

from __future__ import annotations

from whichgpu.api.facts import models as verbs
from whichgpu.api.request.catalog import ModelsRequest
from whichgpu.base.messages import Message, msg
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.session import Session

SPEED_COLUMNS = ("throughput.value", "throughput.low", "throughput.high", "tier")
FITTING_COLUMNS = ("id", "parameters", "precision", "needed", *SPEED_COLUMNS)
LOCAL_COLUMNS = ("name", "place", "parameters", "path")
COLUMNS = ("id", "kind", "parameters", "layers", "license", "released")


@command("models", ModelsRequest, verbs.models)
def show(session: Session, answer: verbs.ModelsAnswer) -> None:
    """Print a list of models, or every fact about the one named."""
    if answer.local or not answer.models:
        session.show(answer, answer.local, LOCAL_COLUMNS, msg("models.local", n=len(answer.local)))
        return
    headline = msg("models.count", n=len(answer.models))
    if answer.models[0].needed is not None:
        session.show(answer, answer.models, FITTING_COLUMNS, fitting_headline(answer))
        return
    if session.has_names and len(answer.models) == 1:
        session.show_one(answer, answer.models[0], headline)
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.models, COLUMNS, headline)


def fitting_headline(answer: verbs.ModelsAnswer) -> Message:
    """Return the sentence above the models that fit a GPU: how many they are, and what their speeds are based on."""
    models = msg("models.fitting", gpu=answer.gpu_name, n=len(answer.models))
    return msg("models.fitting-speed", what=models, date=answer.calibrated) if answer.calibrated else models
