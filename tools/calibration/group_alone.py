"""Measured time of one GPU alone for the work of a row on several GPUs, if anyone measured it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from calibration.examples import PAGEABLE_COPY
from whichgpu.catalog.evidence import Measurement

# Fields in which the row of one GPU may differ from that of a group: number of GPUs, their links, total batch.
GROUP_FIELDS = ("id", "gpus", "nodes", "parallel", "interconnect", "network", "network_gbps", "batch", "host_speed")


def single_times(rows: Iterable[Measurement]) -> Mapping[str, float]:
    """Measured seconds on one GPU by what was run; the median if there are several measurements."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.request.get("gpus", 1) == 1:
            seconds[key(row, 1)].append(max(row.seconds - row.pageable_copy_bytes / PAGEABLE_COPY, 0.2 * row.seconds))
    return {name: float(np.median(times)) for name, times in seconds.items()}


def replicas_of(row: Measurement) -> int:
    """Number of data-parallel replicas of a row."""
    return int(row.request["parallel"].get("dp", 1)) if "parallel" in row.request else 1


def key(row: Measurement, replicas: int) -> str:
    """Text that identifies what was run, with the batch of one replica instead of the total."""
    request: dict[str, Any] = {name: value for name, value in row.request.items() if name not in GROUP_FIELDS}
    request["batch"] = int(row.request["batch"]) // replicas
    return f"{row.source} {row.kind} {json.dumps(request, sort_keys=True, default=str)}"
