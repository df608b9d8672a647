"""Look-up of bundled engine records by engine and year."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec

from whichgpu.base.messages import msg
from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.engines.files import FOLDER, RecordLine, read_records, value_of
from whichgpu.catalog.engines.record import EngineRecord, RecordSection, Steps
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.tables import bad_data_error

SCALES = {"MiB": MIB, "GiB": GIB}
FACTS = frozenset(Engine.__struct_fields__) - set(EngineRecord.__struct_fields__)  # Fields that only `Engine` has.


@cache
def engine_entries() -> Mapping[str, tuple[RecordLine, ...]]:
    """Return the lines of the bundled engine files (`data/engines/<id>.csv`) by engine, in display order."""
    return read_records(DATA_DIR)


def engine_ids() -> tuple[str, ...]:
    """Return the ids of engines that a request can name."""
    return tuple(engine_entries())


@lru_cache(maxsize=1024)
def engine_record(name: str | None = None, year: int | None = None) -> EngineRecord:
    """Return the record of an engine (None: the default engine) as of a year (None: the newest).

    >>> engine_record("vllm", 2024).memory.share, engine_record("vllm").memory.share
    (0.9, 0.92)
    """
    id = name or default_engine()
    try:
        return build_record(id, engine_entries(), year)
    except ValueError as problem:
        detail = msg("finding.bad-record", why=str(problem))
        raise bad_data_error(str(DATA_DIR / FOLDER / f"{id}.csv"), id, "value", detail) from problem


def build_record(id: str, records: Mapping[str, Sequence[RecordLine]], year: int | None = None) -> EngineRecord:
    """Build an engine's record from the lines of all engines; raise ValueError for an invalid line."""
    return msgspec.convert(_fields(id, records, year), EngineRecord, strict=False)


@cache
def default_engine(use: str = "any") -> str:
    """Return the id of the default engine for a use (any, decode, serve, batch or gguf), from the engine records."""
    uses = {use: id for id, lines in engine_entries().items() for use in value_of(lines, "default_for").split(";")}
    return uses.get(use) or uses["any"]


@cache
def engine_synonyms() -> Mapping[str, str]:
    """Return engine ids by synonym, written without dashes and dots."""
    synonyms = {id: value_of(lines, "synonyms").split(";") for id, lines in engine_entries().items()}
    return {word: id for id, words in synonyms.items() for word in words if word}


def _fields(id: str, records: Mapping[str, Sequence[RecordLine]], year: int | None) -> dict[str, Any]:
    """Return the values of an engine's record in a year, by field; a section such as memory is a nested mapping."""
    own = {line.field for line in records[id] if "." not in line.field} - FACTS
    tree: dict[str, Any] = {name: _typed(EngineRecord, name, _as_of(records[id], name, year)) for name in own}
    sections = {line.field.partition(".")[0] for line in records[id] if "." in line.field}
    return tree | {"id": id} | {name: _section(id, name, records, year) for name in sections}


def _section(id: str, section: str, records: Mapping[str, Sequence[RecordLine]], year: int | None) -> dict[str, Any]:
    lines, kind = records[id], _types(EngineRecord)[section]
    like = value_of(lines, f"{section}.like")
    values = _section(like, section, records, year) if like else {}
    for field in {line.field for line in lines if line.field.startswith(f"{section}.")} - {f"{section}.like"}:
        name = field.removeprefix(f"{section}.")
        values[name] = _typed(kind, name, _as_of(lines, field, year))
    return values


def _as_of(lines: Sequence[RecordLine], field: str, year: int | None) -> RecordLine:
    """Return the line of an engine's file for a field that applies in a year; before any line's year, the earliest."""
    dated = sorted((line for line in lines if line.field == field), key=lambda line: line.since)
    return ([line for line in dated if year is None or int(line.since or 0) <= year] or dated[:1])[-1]


def _typed(kind: type[RecordSection | EngineRecord], name: str, line: RecordLine) -> Any:
    """Convert a cell of an engine's file to JSON types: lists split at `;`, pairs at `:`, sizes in bytes."""
    type_ = _types(kind).get(name)
    if type_ in (tuple[str, ...], Steps, dict[str, str]):
        parts = line.value.split(";") if line.value else []
        pairs = [part.partition(":")[::2] for part in parts]
        return dict(pairs) if type_ == dict[str, str] else pairs if type_ == Steps else parts
    return float(line.value) * SCALES[line.unit] if line.unit in SCALES else line.value


@cache
def _types(kind: type[RecordSection | EngineRecord]) -> Mapping[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}
