"""Export of stored prices: CSV and JSON that can be imported again, Parquet with typed columns (an extra)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO

import msgspec

from whichgpu.base.codec import csv_cell
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.offer import Observation

COLUMNS = (
    "provider instance region gpu gpus term payment price currency upfront includes observed last_observed ended source recorded"
).split()
ENDINGS = (".csv", ".json", ".parquet")
CHUNK_ROWS = 50_000  # rows in memory at a time (set by judgement)


def write_csv(offers: Iterable[Observation], stream: TextIO) -> int:
    """Write one CSV line per price observation; return how many."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for count, offer in enumerate(offers, 1):  # noqa: B007 - the last one is the count
        writer.writerow(csv_cell(getattr(offer, name)) for name in COLUMNS)
    return count


def write_json(offers: Iterable[Observation], stream: TextIO) -> int:
    """Write a JSON document whose list `offers` has one item per price observation; return how many were written."""
    stream.write('{"offers": [')
    count = 0
    for count, offer in enumerate(offers, 1):
        stream.write(("\n" if count == 1 else ",\n") + msgspec.json.encode(_document(offer)).decode())
    stream.write("\n]}\n")
    return count


def write_parquet(offers: Iterable[Observation], stream: IO[bytes]) -> int:
    """Write price observations as Parquet row groups with typed dates and decimal prices; return how many rows."""
    arrow, parquet = _arrow()
    text, number = arrow.string(), arrow.decimal128(24, 6)
    types = {"gpus": arrow.float64(), "price": number, "upfront": number}
    days = ("observed", "last_observed", "ended", "recorded")
    schema = arrow.schema([(name, types.get(name, arrow.date32() if name in days else text)) for name in COLUMNS])
    count = 0
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for chunk in _chunks(offers):
            count += len(chunk)
            columns = [_column(arrow, name, chunk, schema.field(name).type, name in days) for name in COLUMNS]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
    return count


def check_export(path: str) -> str:
    """Return the file ending of an export; raise before any work if it is unknown or its package is missing."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError("bad-export", msg("error.bad-export", name=path), msg("hint.bad-export", endings=ENDINGS), ENDINGS)
    if ending == ".parquet":
        _arrow()
    return ending


def _document(offer: Observation) -> Mapping[str, object]:
    cells: dict[str, object] = {name: getattr(offer, name) for name in COLUMNS if name not in ("price", "currency", "upfront")}
    cells["price"] = {"amount": str(offer.price), "currency": offer.currency}
    cells["upfront"] = None if offer.upfront is None else {"amount": str(offer.upfront), "currency": offer.currency}
    return cells


def _column(arrow: Any, name: str, chunk: list[Observation], kind: Any, is_day: bool) -> Any:
    values = [getattr(offer, name) for offer in chunk]
    if is_day:
        return arrow.array(values, arrow.string()).cast(kind)
    return arrow.array(values, kind)


def _chunks(offers: Iterable[Observation]) -> Iterator[list[Observation]]:
    rest = iter(offers)
    while chunk := list(islice(rest, CHUNK_ROWS)):
        yield chunk


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as missing:
        raise UsageError("needs-extra", msg("error.needs-extra", name="pyarrow"), msg("hint.needs-parquet")) from missing
