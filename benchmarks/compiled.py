"""Image networks on one H200, operator by operator and under torch.compile, beside today's estimates; no fit saw these rows.

    PYTHONPATH=src:tools python -m benchmarks.compiled > docs/evidence/compiled-h200.md

`compiled_h200.csv` has the measured milliseconds of a step.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.unseen_models import beside_measured, summary
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.catalog.store import Catalog

ROWS = Path(__file__).with_name("compiled_h200.csv")
INTRODUCTION = """# Image networks, eager and under torch.compile, measured and estimated

Made by `python -m benchmarks.compiled`. timm 1.0.29 with PyTorch 2.11 on one H200 SXM on 2026-11-17: images of 224 pixels in
channels-last order, autocast, cuDNN's benchmark mode on; training with fused AdamW; torch.compile in its default mode. Medians of
three runs of 10 to 20 steps. No fit saw these rows. The error is of today's estimate, and "inside" says whether the 90% range
holds what was measured.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| step | network | batch | engine | measured, ms | estimated, ms | error | inside |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    lookups = lookup_cache(Catalog(), own=False)
    errors: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()):
        measured = float(row.pop("measured")) / 1e3
        training = {"optimizer": "adamw"} if row["task"] == "train" else {}
        request = {**row, **training, "batch": int(row["batch"]), "gpu": "h200-sxm", "year": 2026}
        outcome, figures = beside_measured(request, measured, lookups)
        errors[row["task"], row["engine"]].append(outcome)
        yield f"| {row['task']} | {row['model']} | {row['batch']} | {row['engine']} | {figures} |"
    yield "\n| step | engine | rows | mean error | median | bias | inside |\n| --- | --- | --- | --- | --- | --- | --- |"
    for (task, engine), found in sorted(errors.items()):
        yield f"| {task} | {engine} | {summary(found)} |"


if __name__ == "__main__":
    print("\n".join(page()))
