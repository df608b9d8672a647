"""What one GPU alone took for the work of a group's row, where somebody measured it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from calibration.examples import PAGEABLE_COPY
from whichgpu.catalog.evidence import Measurement

# What one GPU's row may differ in from a group's: how many, how they are joined, and the whole batch.
APART = ("id", "gpus", "nodes", "parallel", "interconnect", "network", "network_gbps", "batch", "host_speed")


def single_times(rows: Iterable[Measurement]) -> Mapping[str, float]:
    """Measured seconds on one GPU by what was run; the middle one where several people ran it."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.request.get("gpus", 1) == 1:
            found[key(row, 1)].append(max(row.seconds - row.pageable_copy_bytes / PAGEABLE_COPY, 0.2 * row.seconds))
    return {name: float(np.median(times)) for name, times in found.items()}


def copies_of(row: Measurement) -> int:
    """Data-parallel copies of a row."""
    return int(row.request["parallel"].get("dp", 1)) if "parallel" in row.request else 1


def key(row: Measurement, copies: int) -> str:
    """What was run, a copy's batch instead of all of it."""
    request: dict[str, Any] = {name: value for name, value in row.request.items() if name not in APART}
    request["batch"] = int(row.request["batch"]) // copies
    return f"{row.source} {row.kind} {json.dumps(request, sort_keys=True, default=str)}"
