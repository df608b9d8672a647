"""Write the index of the evidence table, from which the tool searches it; `tools/digests` runs this."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from whichgpu.catalog.evidence import TABLE, Measurement, measurements
from whichgpu.catalog.evidence_search.index import INDEX, OPERATOR, evidence_index, index_bytes
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.nearest_evidence import structure_of
from whichgpu.workload.parameters import count_parameters

SHOWN_ELSEWHERE = (
    "model",
    "gpu",
    "task",
    "engine",
    "precision",
    "gpus",
    "year",
    "batch",
    "seq_in",
    "seq_out",
    "image",
    "parallel",
    "kind",
    "dtype",
)
EPOCH_SECONDS = re.compile(r"\d{10}")


def write_index() -> bool:
    """Write the index if the evidence table has changed since; whether it was written."""
    digest = hashlib.sha256(TABLE.read_bytes()).hexdigest()
    if INDEX.exists() and evidence_index().table_digest == digest and evidence_index().is_complete:
        return False
    INDEX.write_bytes(index_bytes(digest, columns(measurements())))
    return True


def columns(rows: Sequence[Measurement]) -> dict[str, list[Any]]:
    """Columns of the index, one item per measurement."""
    lookups = LookupCache(Catalog())
    cells = [_cells(row, lookups) for row in rows]
    return {name: [one[name] for one in cells] for name in cells[0]}


def _cells(row: Measurement, lookups: LookupCache) -> dict[str, Any]:
    request = row.request
    is_operator = row.kind == "op"
    structure, parameters = ("", 0) if is_operator else _size(request["model"], lookups)
    return {
        "source": row.source,
        "gpu": row.gpu,
        "kind": row.kind,
        "task": OPERATOR if is_operator else request["task"],
        "model": str(request["kind"]) if is_operator else _model(request["model"]),
        "family": row.family,
        "structure": structure,
        "parameters": parameters,
        "engine": str(request.get("engine", "")),
        "precision": str(request.get("dtype" if is_operator else "precision", "")),
        "layout": _pairs(request.get("parallel", {})),
        "details": _pairs({name: value for name, value in request.items() if name not in SHOWN_ELSEWHERE}),
        "date": _date(row.date),
        "path": row.path,
        "row": row.row,
        "seconds": row.seconds,
        **{name: int(request.get(name) or 0) for name in ("gpus", "year", "batch", "seq_in", "seq_out", "image")},
    }


def _size(model: str | Mapping[str, Any], lookups: LookupCache) -> tuple[str, int]:
    """Kind of a model, and its parameters that are active for a token."""
    shape = lookups.shape(model)
    return structure_of(shape), count_parameters(shape).active


def _model(model: str | Mapping[str, Any]) -> str:
    """Name of a model; one given by its config is named by its type, layers and width."""
    if isinstance(model, str):
        return model
    layers = next((model[name] for name in ("num_hidden_layers", "n_layers", "encoder_layers") if name in model), "?")
    width = next((model[name] for name in ("hidden_size", "d_model") if name in model), "?")
    return f"{model['model_type']} {layers}x{width}"


def _pairs(fields: Mapping[str, Any]) -> str:
    """Fields as text, `tp=8,ep=8`; degrees of 1 and switches that are off are left out."""
    parts = [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in fields.items()
        if value not in (False, None)
    ]
    return ",".join(part.replace("=True", "") for part in parts if not re.fullmatch("(dp|tp|pp|cp|ep|chunks)=1|zero=0", part))


def _date(text: str) -> str:
    """Date of a measurement; seconds since 1970 become a day."""
    return datetime.fromtimestamp(int(text), UTC).date().isoformat() if EPOCH_SECONDS.fullmatch(text) else text
