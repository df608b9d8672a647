"""Steps of llama.cpp on one H200 beside today's estimates.

    PYTHONPATH=src python -m benchmarks.llama_cpp > docs/evidence/llama-cpp-h200.md

`tools/evidence/h200_llama_cpp.csv` has the milliseconds of prefills and decode steps; prompts at a depth have `cached_tokens`
before them.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.unseen_models import MODEL_COLUMNS, STEP_COLUMNS, beside_measured, summary
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.catalog.store import Catalog

ROWS = Path(__file__).parent.parent / "tools" / "evidence" / "h200_llama_cpp.csv"
INTRODUCTION = """# llama.cpp on an H200, measured and estimated

Made by `python -m benchmarks.llama_cpp`. llama.cpp v0.5.0 (September 2026, its CUDA back end built for this GPU with CUDA 13)
ran each model with random weights on one H200 SXM on 2026-11-18: llama-bench and llama-batched-bench, micro-batches of 512,
flash attention as by default, 256 tokens a run and 128 of each sequence of a batch. Prompts at a depth are in the file and not
estimated here.

The rows are evidence: the fit saw them, and four constants of llama.cpp's kernels were read from them (what MMQ multiplies and
unpacks per clock, what MMVQ unpacks per clock, bytes per clock of 16-bit weights with several rows). Before that, no llama.cpp
run on a Hopper GPU was among the evidence, and prompts in 4 and 8 bits came out 60% too fast in the median, since llama.cpp
multiplies quantised weights with instructions that do as much per clock on this chip as on a GeForce card, not at its int8 peak.
With its model left out of the fit a step here is 14% off in the median.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield STEP_COLUMNS
    lookups = lookup_cache(Catalog(), own=False)
    errors: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()):
        if row["task"] == "prefill" and row["cached_tokens"] != "0":
            continue
        request = {"task": row["task"], "model": row["model"], "gpu": "h200-sxm", "engine": "llama.cpp", "year": 2026}
        request |= {"precision": row["precision"], "batch": int(row["batch"]), "seq_in": int(row["tokens"])}
        outcome, figures = beside_measured(request, float(row["ms"]) / 1e3, lookups)
        errors[f"{row['model']}, {row['precision']}", row["task"]].append(outcome)
        errors["all", row["task"]].append(outcome)
        yield f"| {row['model']} | {row['precision']} | {row['task']} | {row['batch']} | {row['tokens']} | {figures} |"
    yield MODEL_COLUMNS
    for (model, task), found in sorted(errors.items()):
        yield f"| {model} | {task} | {summary(found)} |"


if __name__ == "__main__":
    print("\n".join(page()))
