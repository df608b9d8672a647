"""`whichgpu engines`: the software that can be named, and what is known of it."""

from __future__ import annotations

import click

from whichgpu import api
from whichgpu.base.messages import Fact, Message, msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.frame import Names, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources, say_where_from

USUAL = ("id", "what", "tasks", "interfaces", "first_release", "evidence.rows")


def _engine_ids(catalog: Catalog) -> list[str]:
    return [engine.id for engine in catalog.engines]


@command("engines", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, type=Names(_engine_ids), metavar="[NAME…]")
@option("--sort", metavar="FIELD")
def engines(session: Session, names: tuple[str, ...], sort: str | None) -> api.EnginesAnswer:
    """Engines."""
    return api.engines(names, sort, catalog_of(session))


@engines.shows
def show(session: Session, answer: api.EnginesAnswer) -> None:
    """A list, or every fact about the one named."""
    if session.named and len(answer.engines) == 1:
        session.show_one(answer, answer.engines[0], _sentence(answer.engines[0]))
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.engines, USUAL, msg("engines.count", n=len(answer.engines)))
        say_where_from(session, answer.engines, answer.sources)


def _sentence(row: api.EngineRow) -> Message:
    rests = row.evidence
    id = "engines.sentence" if rests.rows else "engines.sentence-unmeasured"
    return msg(id, name=row.name, what=Fact(row.what), n=rests.rows, gpus=len(rests.gpus))
