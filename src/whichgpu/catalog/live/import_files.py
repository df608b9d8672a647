"""Import of files to the price store: SkyPilot's catalog, gpuhunt's, or the user's own price list."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import IO, cast

from whichgpu.base.errors import DataError, UsageError, WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.base.units import MIB
from whichgpu.catalog.live.layouts import focus, gpuhunt, price_list, skypilot
from whichgpu.catalog.live.price_store import open_for_writing_lazily
from whichgpu.catalog.live.refresh import RefreshOutcome, SourceProblem, read_first_row, reader_digest
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import OWN_LIST, PriceBatch, ReadCounts
from whichgpu.catalog.live.save import save_batch
from whichgpu.catalog.live.sources.gpuhunt import version_day, zip_batches
from whichgpu.catalog.live.sources.skypilot import known_content
from whichgpu.catalog.live.staging import BatchSummary
from whichgpu.catalog.store import Catalog

ENDINGS = (".csv", ".csv.gz", ".json", ".zip")
MAX_FILE_BYTES = 4096 * MIB  # Largest file after decompression; it is read line by line.
MAX_JSON_BYTES = 64 * MIB  # Largest JSON file, which is read as a whole.
MAX_LINE_BYTES = MIB
_DAY = re.compile(r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")


def import_prices(
    path: Path,
    catalog: Catalog,
    today: date,
    *,
    observed_on: date | None = None,
    folder: Path | None = None,
    trusting: bool = False,
) -> tuple[tuple[RefreshOutcome, ...], tuple[str, ...]]:
    """Import a price file or all files of a folder; return the outcomes by file format and the files skipped."""
    files, single_file = _files(path), not path.is_dir()
    resolver, skipped = Resolver(catalog), []
    summaries: dict[str, list[BatchSummary]] = {}
    problems: dict[str, list[SourceProblem]] = {}
    with open_for_writing_lazily(folder) as store:
        reader = reader_digest(catalog)
        for file in files:
            with ExitStack() as stack:
                try:
                    batches = _batches(file, single_file, observed_on or day_of(file) or today, resolver, stack)
                    if batches is None:
                        skipped.append(file.name)
                        continue
                    for batch in batches:
                        summaries.setdefault(batch.source, []).append(
                            save_batch(store(), read_first_row(batch), resolver, today, reader, trusting)
                        )
                except (WhichGpuError, OSError, UnicodeDecodeError, csv.Error, EOFError, zlib.error) as problem:
                    if isinstance(problem, WhichGpuError) and problem.kind.startswith("store-"):
                        raise
                    problems.setdefault("import", []).append(_problem(file, problem))
    if not summaries and not problems:
        raise DataError("not-a-catalog", msg("error.nothing-to-import", path=str(path)), msg("hint.not-a-catalog"))
    names = dict.fromkeys((*summaries, *problems))
    return tuple(RefreshOutcome(name, tuple(summaries.get(name, ())), tuple(problems.get(name, ()))) for name in names), tuple(
        skipped
    )


def day_of(path: Path) -> date | None:
    """Return the day that a path names, its last part first: prices_2026-08-22/aws.csv; None if it names none."""
    for part in reversed(path.absolute().parts):
        for match in _DAY.finditer(part):
            try:
                return date(int(match[1]), int(match[2]), int(match[3]))
            except ValueError:
                continue
    return None


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.rglob("*") if file.name.endswith(ENDINGS) and not file.name.startswith("."))
        os.stat(path)
    except OSError as problem:
        message = msg("error.cannot-import", path=str(path), why=problem.strerror or str(problem))
        raise UsageError("cannot-import", message, msg("hint.cannot-import")) from problem
    return [path]


def _batches(path: Path, single_file: bool, day: date, resolver: Resolver, stack: ExitStack) -> Iterator[PriceBatch] | None:
    """Return the price batches (snapshots of one provider's prices) in a file; None if it is no price list."""
    name = path.name
    stream = stack.enter_context(_open(path))
    if name.endswith(".zip"):
        return zip_batches(stream, version_day(path.parent.name) or day, resolver.machine_of)
    if name.endswith(".json"):
        content = stream.read(MAX_JSON_BYTES + 1)
        if len(content) > MAX_JSON_BYTES:
            raise _too_large(MAX_JSON_BYTES)
        items, read = price_list.own_json_items(content), ReadCounts(digest=hashlib.sha256(content).hexdigest())
        complete = not any(price_list.is_dated(item) for item in items)
        rows = price_list.own_json_rows(items, read, resolver.count_in_name)
        return iter([PriceBatch(OWN_LIST, _stem(path), rows, day, complete=complete, read=read)])
    if name.endswith(".gz"):
        stream = stack.enter_context(cast("IO[bytes]", gzip.GzipFile(fileobj=stream)))
    header = next(csv.reader([stream.readline(65536).decode("utf-8-sig")]), [])
    stream.seek(0)
    read = ReadCounts()
    lines = _lines(stream, read)
    scope = path.parent.name if name == "vms.csv" else _stem(path)
    if skypilot.is_layout(header):
        rows = skypilot.skypilot_rows(lines, scope, resolver.machine_of, read)
        return iter([PriceBatch("skypilot", scope, rows, day, read=read, seen_of_digest=known_content())])
    if gpuhunt.is_layout(header):
        return iter(
            [PriceBatch("gpuhunt", scope, gpuhunt.gpuhunt_rows(lines, scope, resolver.machine_of, read), day, day, read=read)]
        )
    if focus.is_layout(header):
        rows = focus.focus_rows(lines, resolver.machine_of, read)
        return iter([PriceBatch(OWN_LIST, scope, rows, day, complete=False, read=read)])
    if price_list.is_layout(header):
        complete = not price_list.is_dated(header)
        rows = price_list.own_csv_rows(lines, read, resolver.count_in_name)
        return iter([PriceBatch(OWN_LIST, scope, rows, day, complete=complete, read=read)])
    if single_file:  # A single file must be a price list; in a folder, other files are skipped.
        raise DataError("not-a-catalog", msg("error.unknown-layout", path=str(path)), msg("hint.not-a-catalog"))
    return None


def _open(path: Path) -> IO[bytes]:
    """Open a regular file; a pipe or a device might never end."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DataError("not-a-catalog", msg("error.unknown-layout", path=str(path)), msg("hint.not-a-catalog"))
    return file


def _lines(stream: IO[bytes], read: ReadCounts) -> Iterator[str]:
    """Yield the lines of a price file as text, and store the digest of all of them in `read`."""
    digest, size = hashlib.sha256(), 0
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")):
        size += len(line)
        if len(line) > MAX_LINE_BYTES:  # A few bytes can unpack to an endless line.
            raise _too_large(MAX_LINE_BYTES)
        if size > MAX_FILE_BYTES:
            raise _too_large(MAX_FILE_BYTES)
        digest.update(line)
        yield line.decode("utf-8-sig" if number == 0 else "utf-8")
    read.digest = digest.hexdigest()


def _too_large(max_bytes: int) -> DataError:
    return DataError("not-a-catalog", msg("error.import-too-large", most=max_bytes // MIB), msg("hint.not-a-catalog"))


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _problem(path: Path, problem: Exception) -> SourceProblem:
    if isinstance(problem, WhichGpuError):
        return SourceProblem(path.name, problem.kind, problem.message)
    why = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
    return SourceProblem(path.name, "cannot-import", msg("error.cannot-import", path=str(path), why=why))
