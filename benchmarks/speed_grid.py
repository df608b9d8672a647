"""Device groups per second that the vectorised call evaluates, and seconds for a file of mixed requests.

python -m benchmarks.speed_grid
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.mixed_requests import LINES, mixed
from benchmarks.start import Result, process, table, timed
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.workload.spelling import fill_defaults, from_object

MODEL = "llama-3.1-8b"
BATCHES = np.arange(1.0, 65.0)
PRECISIONS = {"train": ("bf16", "amp-bf16", "fp32"), "": ("bf16", "fp8", "int8", "int4")}
GROUPS = 100_000  # device groups that the goal of one second refers to


def grid(task: str) -> tuple[Callable[[], object], int]:
    """Action that evaluates one workload on every GPU at 64 batch sizes in each precision, and its number of device groups."""
    lookups = lookup_cache()
    shape, gpus = lookups.shape(MODEL), list(lookups.catalog.gpus)
    precisions = PRECISIONS.get(task, PRECISIONS[""])
    workloads = [
        fill_defaults(from_object({"task": task, "model": MODEL, "precision": name}).workload, shape) for name in precisions
    ]

    def action() -> None:
        for workload in workloads:
            evaluate_grid(workload, shape, gpus, BATCHES)

    return action, len(workloads) * len(gpus) * len(BATCHES)


def results() -> Iterator[Result]:
    """Each benchmark in turn; seconds of the grids are scaled to the device groups of the goal."""
    for task in ("decode", "prefill", "serve", "train"):
        action, groups = grid(task)
        result = timed("", 1.0, action, runs=5)
        share = GROUPS / groups
        yield Result(f"{GROUPS:,} device groups, {MODEL} {task}", result.median * share, result.best * share, result.goal)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        path.write_text("".join(json.dumps(request) + "\n" for request in mixed()))
        action = process(sys.executable, "-P", "-m", "whichgpu", "estimate", "--requests", str(path))
        yield timed(f"{LINES:,} mixed requests, cold process", 5.0, action, runs=3)


if __name__ == "__main__":
    sys.exit(table(results()))
