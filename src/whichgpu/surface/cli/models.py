"""`whichgpu models`: what can be named without a file."""

from __future__ import annotations

import click

from whichgpu import api
from whichgpu.base.messages import msg
from whichgpu.surface.cli.frame import catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources
from whichgpu.surface.cli.workload import MODEL

USUAL = ("id", "kind", "parameters", "layers", "license", "released")


@command("models", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, type=MODEL, metavar="[NAME…]")
@option("--sort", metavar="FIELD")
def models(session: Session, names: tuple[str, ...], sort: str | None) -> api.ModelsAnswer:
    """Built-in models."""
    return api.models(names, sort, catalog_of(session))


@models.shows
def show(session: Session, answer: api.ModelsAnswer) -> None:
    """A list, or every fact about the one named."""
    headline = msg("models.count", n=len(answer.models))
    if session.named and len(answer.models) == 1:
        session.show_one(answer, answer.models[0], headline)
        if kind := answer.models[0].denoiser:
            session.say(msg("fit.warning", what=msg(f"note.denoiser-{kind}")))
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.models, USUAL, headline)
