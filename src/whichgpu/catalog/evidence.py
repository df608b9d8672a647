"""Measurements on which the estimates are fitted: one row per measured step or operator, with its source and licence.

The table `data/evidence.csv.xz` holds facts in our own columns; `tools/evidence` adds rows to it, `make refit` fits on it.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from whichgpu.base.bundled_data import data_rows, read_data

TABLE = Path(__file__).parent / "data" / "evidence.csv.xz"
SOURCES = Path(__file__).parent / "data" / "evidence_sources.csv"
Kind = Literal["train", "forward", "prefill", "decode", "generate", "serve", "max-load", "op"]
# Stochastic depth in the measured library: "" as in torchvision; "kept": absent, no layer is dropped; "dropout": plain dropout.
StochasticDepth = Literal["", "kept", "dropout"]
TEXT_FIELDS = ("task", "engine", "precision")  # Text fields of a request that are columns of the table.
WHOLE_FIELDS = ("gpus", "year", "batch", "seq_in", "seq_out")


class Measurement(msgspec.Struct, frozen=True):
    """A measured time, and the request whose estimate should equal it.

    `seconds` are those of the answer's `time` (one step, one forward pass, prefill of the whole batch, one decode step); for
    `generate`, of the whole batch from prompt to last token. For `op`, `request` is the operator's name, dtype and sizes.
    """

    source: str
    gpu: str
    request: Mapping[str, Any]
    seconds: float
    kind: Kind
    trust: str
    family: str  # model family; cross-validation leaves out all models of a family together
    row: int  # line number in the source's own table
    pageable_copy_bytes: float = 0.0  # bytes copied from pageable host memory during the measured time
    throughput_only: bool = False  # derived from a throughput with many batches in flight, so no single batch took this long
    stochastic_depth: StochasticDepth = ""
    cached_tokens: int = 0  # tokens of each sequence in the KV cache before the measured prefill
    micro_batch_tokens: int = 0  # tokens that llama.cpp ran at once (n_ubatch); 0: its default
    synchronises_after_forward: bool = False  # the host waits for the GPU between the forward and the backward pass
    path: str = ""  # file with the measurement, as repository@commit:path
    date: str = ""


class EvidenceSource(msgspec.Struct, frozen=True):
    """Publication or repository that measurements were taken from, with its licence."""

    id: str
    publisher: str
    url: str
    licence: str  # SPDX id or "none stated", as read in the repository; "not checked" if it was not


PLAIN_COLUMNS = tuple(name for name in Measurement.__struct_fields__ if name != "request")
COLUMNS = (*PLAIN_COLUMNS, "model", *TEXT_FIELDS, *WHOLE_FIELDS, "fields")


@cache
def evidence_sources() -> Mapping[str, EvidenceSource]:
    """Return the publications and repositories that measurements were taken from, by id."""
    return {row["id"]: EvidenceSource(**row) for row in data_rows(SOURCES)}


@cache
def measurements(table: Path = TABLE) -> tuple[Measurement, ...]:
    """Return all measurements of the evidence table, on which estimates are fitted, in its order."""
    text = lzma.decompress(read_data(table)).decode("utf-8")
    return tuple(_measurement(cells) for cells in csv.DictReader(io.StringIO(text, newline="")))


def steps(rows: Iterable[Measurement], several_gpus: bool = False) -> list[Measurement]:
    """Return the measurements of whole steps and passes on one GPU, or (`several_gpus`) those on several GPUs."""
    return [row for row in rows if row.kind not in ("max-load", "op") and (row.request.get("gpus", 1) != 1) == several_gpus]


def operators(rows: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements of single operators, such as one GEMM, rather than of whole steps."""
    return [row for row in rows if row.kind == "op"]


def table_bytes(rows: Iterable[Measurement]) -> bytes:
    """Encode measurements as the bytes of the evidence table, from which `measurements` reads the same values."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_cells(row) for row in rows)
    return lzma.compress(text.getvalue().encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)


def _cells(row: Measurement) -> dict[str, str]:
    request = dict(row.request)
    if row.kind != "op" and request.pop("gpu") != row.gpu:
        raise ValueError(f"two GPUs in {row}")
    cells = {name: _text(getattr(row, name)) for name in PLAIN_COLUMNS}
    cells |= {name: _text(request.pop(name)) for name in ("model", *TEXT_FIELDS, *WHOLE_FIELDS) if name in request}
    return cells | {"fields": json.dumps(request, separators=(",", ":"))} if request else cells


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return repr(value) if isinstance(value, float) else str(value)


def _measurement(cells: Mapping[str, str]) -> Measurement:
    request: dict[str, Any] = {name: cells[name] for name in TEXT_FIELDS if cells[name]}
    request |= {name: int(cells[name]) for name in WHOLE_FIELDS if cells[name]}
    if model := cells["model"]:
        request |= {"model": json.loads(model) if model.startswith("{") else model, "gpu": cells["gpu"]}
    request |= json.loads(cells["fields"] or "{}")
    return Measurement(
        source=cells["source"],
        gpu=cells["gpu"],
        request=request,
        seconds=float(cells["seconds"]),
        kind=cells["kind"],  # type: ignore[arg-type]
        trust=cells["trust"],
        family=cells["family"],
        row=int(cells["row"]),
        pageable_copy_bytes=float(cells["pageable_copy_bytes"]),
        throughput_only=cells["throughput_only"] == "yes",
        stochastic_depth=cells["stochastic_depth"],  # type: ignore[arg-type]
        cached_tokens=int(cells.get("cached_tokens") or 0),
        micro_batch_tokens=int(cells.get("micro_batch_tokens") or 0),
        synchronises_after_forward=cells["synchronises_after_forward"] == "yes",
        path=cells["path"],
        date=cells["date"],
    )
