"""Training steps of hybrid models on one H200, beside today's estimates of seconds and memory; no fit saw these rows.

    PYTHONPATH=src:tools python -m benchmarks.hybrid_training > docs/evidence/hybrid-training-h200.md

`hybrid_training_h200.csv` has the measured seconds of a step and the peak bytes of its tensors.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.unseen_models import beside_measured, summary
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload

ROWS = Path(__file__).with_name("hybrid_training_h200.csv")
GIB = 1 << 30
INTRODUCTION = """# Training of hybrid models, measured and estimated

Made by `python -m benchmarks.hybrid_training`. Qwen3.5 with random weights on one H200 SXM on 2026-11-18: transformers 5.17,
PyTorch 2.11, flash-linear-attention 0.6 with its convolution, all weights trained in bf16 with fused AdamW. Medians of six
steps. flash-linear-attention refuses the gradient kernel of this Triton because its results may be wrong on Hopper; the check
was taken out, since only time and memory are read here. No fit saw these rows. "Inside" says whether the 90% range of the time
holds what was measured. A profile of one step (4B, two sequences) had shown
which operators the layers run, and the smallest step what launching Triton kernels costs the host.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| model | batch | tokens | checkpointing | measured, ms | estimated | error | inside | GiB | estimated | error |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    catalog = Catalog()
    lookups = lookup_cache(catalog, own=False)
    outcomes, memory_errors = [], []
    for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()):
        fields: dict[str, Any] = {
            "precision": "bf16",
            "micro_batch": int(row["batch"]),
            "seq_in": int(row["tokens"]),
            "optimizer": "adamw",
        }
        fields |= {"checkpointing": row["checkpointing"], "engine": "pytorch", "year": 2026}
        request = {"task": "train", "model": row["model"], "gpu": "h200-sxm", "batch": int(row["batch"]), **fields}
        outcome, figures = beside_measured(request, float(row["seconds"]), lookups)
        outcomes.append(outcome)
        shape = find_model(row["model"], catalog)
        estimated = estimate_memory(fill_defaults(Workload("train", row["model"], **fields), shape), shape).allocated.value
        memory_errors.append(estimated / float(row["allocated"]) - 1.0)
        measured = f"{float(row['allocated']) / GIB:.1f} | {estimated / GIB:.1f} | {memory_errors[-1]:+.1%}"
        yield f"| {row['model']} | {row['batch']} | {row['tokens']} | {row['checkpointing']} | {figures} | {measured} |"
    yield "\n| | rows | mean error | median | bias | inside |\n| --- | --- | --- | --- | --- | --- |"
    yield f"| time | {summary(outcomes)} |"
    yield f"\nMemory: mean error {mean(map(abs, memory_errors)):.1%}, at most {max(map(abs, memory_errors)):.1%}."


if __name__ == "__main__":
    print("\n".join(page()))
