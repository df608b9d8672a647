"""The verb `engines`: the engines a request can name, the GPUs they support, and the measurements behind their speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec.structs import asdict

from whichgpu.api.context import Context
from whichgpu.api.request.catalog import EnginesRequest
from whichgpu.api.request.read import read
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer, UnknownName
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest, squash, words
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.engines.registry import engine_synonyms
from whichgpu.catalog.host import Source
from whichgpu.catalog.select import sort_rows
from whichgpu.catalog.store import Catalog

MEASURED_TASKS = ("train", "forward", "prefill", "decode", "generate")


class EngineEvidence(msgspec.Struct, frozen=True):
    """Measured rows behind an engine's speeds: how many, on which GPUs, of which tasks, from which years."""

    _mapping_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"tasks": MEASURED_TASKS}
    rows: int = 0
    gpus: tuple[str, ...] = ()
    tasks: Mapping[str, int] = msgspec.field(default_factory=dict)
    years: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


class EngineRow(Engine, frozen=True):
    """An engine (inference or training software), and the measurements behind the speeds estimated for it."""

    evidence: EngineEvidence = EngineEvidence()


class EnginesAnswer(Displayable, msgspec.Struct, frozen=True):
    """Engines (inference and training software) that match a request."""

    engines: tuple[EngineRow, ...]
    sources: tuple[Source, ...]


def engines(request: EnginesRequest, context: Context) -> EnginesAnswer:
    """Return engines by name, synonym or beginning of a name (`tensorrt`), or by what they do (`train`, `serve`)."""
    catalog, values = context.catalog, read(EnginesRequest, request, context.spell)
    names = values.get("names", ())
    if not catalog.engines:
        raise NoAnswer("no-engine", msg("error.no-engine"), msg("hint.nothing-known"))
    chosen = {engine.id: engine for name in names for engine in _find(catalog, name)}.values() if names else catalog.engines
    evidence = _evidence()
    rows = sort_rows(
        [EngineRow(**asdict(engine), evidence=_read(evidence.get(engine.id, {}))) for engine in chosen],
        values.get("sort"),
        EngineRow,
    )
    return EnginesAnswer(rows, catalog.cited_sources(*((*row.sources, *row.evidence.sources) for row in rows)))


def _find(catalog: Catalog, name: str) -> tuple[Engine, ...]:
    name_words, joined = set(words(name)), squash(engine_synonyms().get(squash(name), name))
    tests: tuple[Callable[[Engine], bool], ...] = (
        lambda engine: joined in map(squash, (engine.id, engine.name)),
        lambda engine: any(squash(text).startswith(joined) for text in (engine.id, engine.name)),
        lambda engine: name_words <= {*engine.tasks, *words(f"{engine.name} {engine.maker}")},
    )
    for test in tests:
        if joined and (matches := tuple(engine for engine in catalog.engines if test(engine))):
            return matches
    engine_names = [engine.id for engine in catalog.engines]
    choices = nearest(name, engine_names) or tuple(engine_names)
    raise UnknownName("unknown-engine", msg("error.unknown-engine", name=name), msg("hint.nearest", choices=choices), choices)


def _evidence() -> Mapping[str, Any]:
    """Return counts of the measurements that the time model was fitted to, by engine; empty if there are none."""
    from whichgpu.estimate.time.calibration import load_calibration

    evidence = load_calibration().evidence.get("engines", {})
    return evidence if isinstance(evidence, Mapping) else {}


def _read(record: Mapping[str, Any]) -> EngineEvidence:
    return EngineEvidence(
        rows=int(record.get("rows", 0)),
        gpus=tuple(record.get("gpus", ())),
        tasks=dict(record.get("tasks", {})),
        years=tuple(record.get("years", ())),
        sources=tuple(record.get("sources", ())),
    )
