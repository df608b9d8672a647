"""Steps of a real vLLM on one H200 for models whose rows are in no fit, beside today's estimates.

    PYTHONPATH=src python -m benchmarks.unseen_models > docs/evidence/unseen-models-h200.md

`unseen_h200.csv` has the measured milliseconds of decode and prefill steps, by sequences and tokens of each; under the task `kv`
tokens of KV cache, with the limits of sequences and tokens of a sequence that the engine was started with.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import engine_load
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import estimate_workload
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.kv_capacity import kv_tokens
from whichgpu.workload.spelling import from_object

ROWS = Path(__file__).with_name("unseen_h200.csv")
INTRODUCTION = """# Models that the fit never saw, measured and estimated

Made by `python -m benchmarks.unseen_models`. vLLM 0.26 ran each model with random weights on one H200 SXM on 2026-11-17 (CUDA
graphs, FlashAttention 3; flashinfer and DeepGEMM were not installed): steps of equal sequences that all decode, and prefills of
whole prompts. No row of these models is in the evidence that the model was fitted on; other models on this GPU and engine are.
One constant was read from these rows since: the seconds of vLLM's own loop beside the device (engine record, `host.loop`), which
bounds the steps of Llama 3.2 1B, from 32% too fast, and of OLMoE with one sequence.
The error is of today's estimate, and "inside" says whether the 90% range holds what was measured.
"""

# Headers of the tables of measured steps, and of errors by model.
STEP_COLUMNS = """| model | precision | step | sequences | tokens | measured, ms | estimated, ms | error | inside |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""
MODEL_COLUMNS = "\n| model | step | rows | mean error | median | bias | inside |\n| --- | --- | --- | --- | --- | --- | --- |"


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield STEP_COLUMNS
    lookups = lookup_cache(Catalog(), own=False)
    errors: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    rows = list(csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()))
    for row in (one for one in rows if one["task"] != "kv"):
        measured = float(row["measured"]) / 1e3
        request = {"task": row["task"], "gpu": "h200-sxm", "engine": "vllm", "year": 2026, "kv_precision": "bf16"}
        request |= {
            "model": row["model"],
            "precision": row["precision"],
            "batch": int(row["batch"]),
            "seq_in": int(row["tokens"]),
        }
        outcome, figures = beside_measured(request, measured, lookups)
        errors[row["model"], row["task"]].append(outcome)
        yield f"| {row['model']} | {row['precision']} | {row['task']} | {row['batch']} | {row['tokens']} | {figures} |"
    yield MODEL_COLUMNS
    for (model, task), found in sorted(errors.items()):
        yield f"| {model} | {task} | {summary(found)} |"
    for task in sorted({task for _, task in errors}):
        yield f"| all | {task} | {summary([one for (_, name), found in errors.items() if name == task for one in found])} |"
    yield "\n| model | KV tokens, measured | estimated | error |\n| --- | --- | --- | --- |"
    for row in (one for one in rows if one["task"] == "kv"):
        measured, tokens = float(row["measured"]), _kv_tokens(row, lookups)
        yield f"| {row['model']} | {measured:,.0f} | {tokens:,.0f} | {tokens / measured - 1:+.1%} |"


def beside_measured(request: dict[str, Any], measured: float, lookups: LookupCache) -> tuple[tuple[float, bool], str]:
    """Return the error of a request's estimate and whether its range holds the measured seconds, and both as cells of a table."""
    time = estimate_workload(from_object(request), lookups).time
    assert time is not None
    error, inside = time.value / measured - 1, time.low <= measured <= time.high
    return (error, inside), f"{measured * 1e3:.4g} | {time.value * 1e3:.4g} | {error:+.0%} | {'yes' if inside else 'no'}"


def _kv_tokens(row: dict[str, str], lookups: LookupCache) -> float:
    longest = int(row["tokens"])
    settings = {"max_num_batched_tokens": 8192, "max_num_seqs": int(row["batch"]), "gpu_memory_utilization": 0.9}
    engine = {**row, "kv_precision": "bf16", "settings": {**settings, "enable_prefix_caching": False}}
    workload, shape, limits = engine_load.workload_of(engine, lookups, longest - 256, 256)
    tokens = kv_tokens(workload, shape, lookups.catalog.gpu_by_id["h200-sxm"], limits.memory)
    assert tokens is not None
    return tokens.value


def summary(found: list[tuple[float, bool]]) -> str:
    """Cells of a table: rows, mean and median size of the errors, their median, and the share inside the range."""
    sizes = [abs(error) for error, _ in found]
    bias = median(error for error, _ in found)
    held = sum(inside for _, inside in found) / len(found)
    return f"{len(found)} | {mean(sizes):.1%} | {median(sizes):.1%} | {bias:+.1%} | {held:.0%}"


if __name__ == "__main__":
    print("\n".join(page()))
