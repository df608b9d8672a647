"""List the stored records of measurements with what each of them changes, and forget one."""

from __future__ import annotations

from math import exp, log

import msgspec

from whichgpu.base.display import Displayable
from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.own_corrections import OwnCorrections
from whichgpu.measure import records
from whichgpu.measure.record import Record


class StoredRecord(msgspec.Struct, frozen=True):
    """A stored record: where it comes from, what it measured, and which estimates it changes by how much."""

    id: str  # name under which answers cite it
    origin: str  # own or imported
    gpu: str
    day: str  # with UTC time in own records
    steps: int
    used_for: tuple[str, ...]  # kinds of steps, as `engine/task`, for which this record is the preferred one
    ratio: float | None  # measured over estimated seconds, geometric mean over the steps
    path: str
    problem: Message | None = None


class RecordsAnswer(Displayable, msgspec.Struct, frozen=True):
    """The stored records of measurements, own ones first, the newest first; or the one that was forgotten."""

    records: tuple[StoredRecord, ...]
    forgotten: str | None = None


def list_records(catalog: Catalog) -> RecordsAnswer:
    """Return every stored record with the kinds of steps whose estimates use it."""
    corrections = records.own_calibrations(catalog, load_calibration())
    rows: list[StoredRecord] = []
    for origin in (records.OWN, records.IMPORTED):
        stored = list(records.stored_files(origin))
        readable = [(path, record) for path, record in stored if isinstance(record, Record)]
        for path, record in sorted(readable, key=lambda one: one[1].made, reverse=True):
            rows.append(_row(record, origin, str(path), corrections.get(record.where.gpu, ())))
        for path, problem in stored:
            if not isinstance(problem, Record):
                rows.append(StoredRecord(path.stem, origin, "", "", 0, (), None, str(path), problem))
    return RecordsAnswer(tuple(rows))


def forget_record(id: str, catalog: Catalog) -> RecordsAnswer:
    """Delete the stored record of an id, or of the end of one; raise if none or several match."""
    rows = list_records(catalog).records
    matches = [row for row in rows if row.id == id] or [row for row in rows if len(id) >= 4 and row.id.endswith(id)]
    choices = tuple(row.id for row in matches or rows)
    if len(matches) != 1:
        hint = msg("hint.choices", choices=choices) if choices else msg("hint.measure-first")
        raise UnknownName("unknown-record", msg("error.unknown-record", name=id[:80]), hint, choices)
    try:
        records.remove_record(matches[0].path)
    except OSError as problem:
        message = msg("error.cannot-write-file", name=matches[0].path, why=problem.strerror or str(problem))
        raise UsageError("cannot-write", message, msg("hint.data-folder")) from problem
    return RecordsAnswer(tuple(row for row in rows if row is not matches[0]), matches[0].id)


def _row(record: Record, origin: str, path: str, preferred: tuple[OwnCorrections, ...]) -> StoredRecord:
    used: list[str] = []
    claimed: set[str] = set()
    for one in preferred:
        if one.source == record.source:
            used += [kind for kind in one.kinds if kind not in claimed]
        claimed |= set(one.kinds)
    ratios = [log(step.seconds / step.predicted.value) for step in record.steps if step.predicted and step.seconds > 0]
    ratio = exp(sum(ratios) / len(ratios)) if ratios else None
    return StoredRecord(record.source, origin, record.where.gpu, record.made, len(record.steps), tuple(used), ratio, path)
