"""Build a `Measurement` from a published row and the names it uses."""

from __future__ import annotations

import re
from typing import Any

from evidence.fits_in_memory import fits_at_once
from evidence.names import Software, as_model, catalog_names, family
from evidence.published import Published
from evidence.reasons import Reason
from whichgpu.catalog.evidence import Kind, Measurement


def first_year(date: str) -> int:
    """The first year in a date or a span of dates."""
    match = re.search(r"(?:19|20)\d\d", date)
    if not match:
        raise ValueError(f"no year in {date!r}")
    return int(match.group())


def measured(
    row: Published,
    kind: Kind,
    seconds: float,
    *,
    model: str | Reason | None = None,
    dtype: str | Reason | None = None,
    run_by: Software | Reason | None = None,
    more: dict[str, Any] | None = None,
    **fields: Any,
) -> Measurement | Reason:
    """The row as a measurement, or the first reason why it cannot be one. `None` in `more` leaves a field out."""
    names = catalog_names(row, model, dtype, run_by)
    if isinstance(names, Reason):
        return names
    gpu, model, dtype, run_by = names.gpu, names.model, names.precision, names.software
    request: dict[str, Any] = {
        "task": "batch" if kind in ("generate", "serve") else kind,
        "model": as_model(model),
        "gpu": gpu,
        "gpus": row.gpus,
        "precision": dtype,
        "batch": row.batch,
        "engine": run_by.engine,
        "year": run_by.year or first_year(row.date),
        "memory_format": run_by.memory_format or None,
        **(more or {}),
    }
    request = {key: value for key, value in request.items() if value is not None}
    if kind in ("generate", "serve") and not fits_at_once(model, request):
        return Reason.QUEUED
    return Measurement(
        source=row.source,
        gpu=gpu,
        request=request,
        seconds=seconds,
        kind=kind,
        trust=row.trust,
        family=family(model),
        row=row.line,
        **fields,
    )
