"""The user's folder of measurement records: own and imported ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path

from msgspec.structs import replace

from whichgpu.base.errors import DataError, NoAnswer, UsageError, WhichGpuError
from whichgpu.base.figure import Basis
from whichgpu.base.files import data_folder, read_regular_file, write_atomically
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.own_corrections import OwnCorrections, calibration_version
from whichgpu.measure.record import FittedCorrections, Record, from_json, redacted, to_json, with_digest

MAX_RECORD_BYTES = 2 << 20  # Larger files are rejected (assumed; a record takes under 100 KiB).
OWN, IMPORTED = "own", "imported"
_ODD = re.compile(r"[^0-9A-Za-z.-]+")


def records_folder() -> Path | None:
    """Return the folder of the user's measurement records; None if there is no home directory."""
    folder = data_folder()
    return folder / "records" if folder else None


def save_record(record: Record, kind: str = OWN, folder: Path | None = None) -> Path:
    """Write a measurement record of a kind (own or imported) to the user's folder; return the file's path."""
    folder = folder or records_folder()
    if folder is None:
        raise DataError("cannot-write", msg("error.record-no-folder"), msg("hint.data-folder"))
    stamp = _ODD.sub("", record.made)
    return write_record(record, folder / kind / f"{record.where.gpu}-{stamp}-{record.digest[:8]}.json")


def write_record(record: Record, path: Path) -> Path:
    """Write a measurement record to a file as JSON, atomically; return the path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_json(record).encode())
    except OSError as problem:
        message = msg("error.cannot-write-file", name=str(path), why=problem.strerror or str(problem))
        raise UsageError("cannot-write", message, msg("hint.data-folder")) from problem
    return path


def read_record(path: Path) -> Record:
    """Return the measurement record in a JSON file; raise if it is unreadable or was altered."""
    try:
        return from_json(read_regular_file(path, MAX_RECORD_BYTES), path.name)
    except OSError as problem:
        message = msg("error.record-unreadable", path=str(path), why=problem.strerror or str(problem))
        raise UsageError("record-unreadable", message, msg("hint.bad-record")) from problem


def newest_record(gpu: str | None = None, folder: Path | None = None) -> Record:
    """Return the newest record measured on this machine, of one GPU or of any; raise if there is none."""
    records = [record for record in _stored_records(OWN, folder or records_folder()) if gpu in (None, record.where.gpu)]
    if not records:
        raise NoAnswer("no-record", msg("error.no-record"), msg("hint.measure-first"))
    return max(records, key=lambda record: record.made)


def export_record(path: Path, gpu: str | None = None, folder: Path | None = None) -> Record:
    """Write the newest own measurement record, without private data, to a file for sharing; return it."""
    record = redacted(newest_record(gpu, folder))
    write_record(record, path)
    return record


def import_record(path: Path, catalog: Catalog, calibration: Calibration, today: date, folder: Path | None = None) -> Record:
    """Store another user's measurement record if it is plausible, with corrections of estimated times fitted to it."""
    from whichgpu.measure.physics import find_problems

    record = read_record(path)
    problems = find_problems(record, catalog, today, calibration=calibration)
    if problems:
        message = msg("error.record-impossible", name=path.name, n=len(problems), why=problems[:5])
        raise UsageError("record-impossible", message, msg("hint.bad-record"))
    fit = fit_record(record, catalog, calibration) if record.steps else None
    ready = with_digest(replace(record, made=record.made[:10], fitted=fit))
    save_record(ready, IMPORTED, folder)
    return ready


def own_calibrations(
    catalog: Catalog, calibration: Calibration, folder: Path | None = None
) -> dict[str, tuple[OwnCorrections, ...]]:
    """Return corrections of estimated times by GPU, one per usable record: own ones before imported ones, the newest first."""
    folder = folder or records_folder()
    corrections: dict[str, tuple[OwnCorrections, ...]] = {}
    for kind in (OWN, IMPORTED):
        for record in sorted(_stored_records(kind, folder), key=lambda one: one.made, reverse=True):
            gpu = record.where.gpu
            if not record.steps or gpu not in catalog.gpu_by_id or _is_superseded(record, corrections.get(gpu, ())):
                continue
            try:
                current = with_current_fit(record, catalog, calibration)
            except WhichGpuError:  # The record has steps that this version cannot read, so it is skipped.
                continue
            if current.fitted is not None and current.fitted.kinds:  # `kinds` is empty if no step was plausible.
                corrections[gpu] = (*corrections.get(gpu, ()), own_calibration(current, kind))
            if current is not record:
                with suppress(UsageError, DataError):  # If the folder is read-only, the record is fitted again next time.
                    save_record(current, kind, folder)
    return corrections


def _is_superseded(record: Record, preferred: tuple[OwnCorrections, ...]) -> bool:
    """Whether preferred records measured every kind of step that a record did."""
    kinds = record.fitted.kinds if record.fitted else ()
    return bool(kinds) and set(kinds) <= {kind for one in preferred for kind in one.kinds}


def with_current_fit(record: Record, catalog: Catalog, calibration: Calibration) -> Record:
    """Return the record with its corrections fitted again if the shipped calibration has changed since they were fitted."""
    if record.fitted is not None and record.fitted.against == calibration_version(calibration):
        return record
    return replace(record, fitted=fit_record(record, catalog, calibration))


def own_calibration(record: Record, kind: str) -> OwnCorrections:
    """Return the corrections of estimated times in a fitted record; `kind` is own or imported, which sets their basis."""
    fit = record.fitted
    assert fit is not None
    basis: Basis = "measured" if kind == OWN else "calibrated"
    return OwnCorrections(record.where.gpu, record.source, basis, fit.kinds, fit.multipliers, fit.spreads, fit.against)


def fit_record(record: Record, catalog: Catalog, calibration: Calibration) -> FittedCorrections:
    """Return multipliers of estimated times, fitted to the measured steps of a record."""
    from whichgpu.measure.fit import example, fit_steps

    gpu = catalog.gpu_by_id[record.where.gpu]
    return fit_steps([example(step, gpu, catalog) for step in record.steps], calibration)


def stored_files(kind: str, folder: Path | None = None) -> Iterator[tuple[Path, Record | Message]]:
    """Yield the files of records of a kind (own or imported), each with its record or the message why it is not usable."""
    folder = folder or records_folder()
    if folder is None:
        return
    try:
        paths = sorted((folder / kind).glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            yield path, read_record(path)
        except UsageError as problem:
            yield path, problem.message


def remove_record(path: str) -> None:
    """Delete the file of a stored record."""
    Path(path).unlink()


def _stored_records(kind: str, folder: Path | None) -> Iterator[Record]:
    return (record for _, record in stored_files(kind, folder) if isinstance(record, Record))
