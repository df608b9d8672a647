"""The reference mix: what GPUs are ranked by where no workload is named, one index for each kind of work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from whichgpu.base.messages import msg
from whichgpu.catalog.tables import Row, bad_data_error


@dataclass(frozen=True, slots=True)
class MixItem:
    """One workload of an index. `precisions` are tried in order: the first the GPU has units for is taken."""

    id: str
    index: str
    weight: float
    request: dict[str, Any]
    precisions: tuple[str, ...]
    why: str
    recorded: str


def build_mix_item(row: Row) -> MixItem:
    """The workload of a table row."""
    try:
        request = parse_request(row["request"])
    except ValueError as problem:
        raise bad_data_error("reference_mix.csv", row["id"], "request", msg("finding.bad-request")) from problem
    plain = {name: row[name] for name in MixItem.__dataclass_fields__}
    return MixItem(**plain | {"request": request, "weight": float(row["weight"])})


def parse_request(text: str) -> dict[str, Any]:
    """A request with a task and a model. Anything else is a ValueError."""
    try:
        request = json.loads(text)
    except RecursionError as problem:
        raise ValueError(text) from problem
    if not isinstance(request, dict) or not {"task", "model"} <= set(request) or {"gpu", "precision"} & set(request):
        raise ValueError(text)
    return request
