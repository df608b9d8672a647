"""Reference workloads by which GPUs are ranked if the user names none; each kind of work has its own index."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from whichgpu.base.messages import msg
from whichgpu.catalog.tables import Row, bad_data_error, record_of


class MixItem(msgspec.Struct, frozen=True):
    """One workload of a speed index by which GPUs are ranked; of `precisions`, the first the GPU has units for is used."""

    id: str
    index: str
    weight: float
    request: dict[str, Any]
    precisions: tuple[str, ...]
    why: str
    recorded: str


def build_mix_item(row: Row) -> MixItem:
    """Return a reference workload (by which GPUs are ranked) made from its table row, with its request parsed."""
    try:
        request = parse_request(row["request"])
    except ValueError as problem:
        raise bad_data_error("reference_mix.csv", row["id"], "request", msg("finding.bad-request")) from problem
    return record_of(MixItem, row, request=request, weight=float(row["weight"]))


def parse_request(text: str) -> dict[str, Any]:
    """Parse a reference workload, a JSON object with a task and a model; raise ValueError for anything else."""
    try:
        request = json.loads(text)
    except RecursionError as problem:
        raise ValueError(text) from problem
    if not isinstance(request, dict) or not {"task", "model"} <= set(request) or {"gpu", "precision"} & set(request):
        raise ValueError(text)
    return request
