"""Traced memory against training steps measured on an H200 (PyTorch 2.11): allocated peak and device memory, row by row."""

from __future__ import annotations

import argparse
import json
import warnings
from statistics import mean, median
from typing import Any

from benchmarks.trace import pool
from benchmarks.trace.models import trace_row
from whichgpu.estimate.trace.framework import load_torch, load_torchvision

LIBRARIES = 66  # MiB of cuBLAS workspace inside the allocator: 65 to 66 before every measured case but the first
GOAL_ALLOCATED, GOAL_DEVICE = 0.02, 0.05


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[str], bool]:
    """Trace every measured row; the memory of the CUDA context is the only constant fitted here."""
    lines = (options.truth / "h200" / "train.jsonl").read_text().splitlines()
    rows = {str(at): json.loads(line) for at, line in enumerate(lines)}
    rows = {at: row for at, row in rows.items() if "error" not in row and options.only in row["model"]}
    if options.score:
        results = json.loads(options.json.read_text())
    else:
        load_torch().set_num_threads(1)
        load_torchvision()
        warnings.simplefilter("ignore")
        results = pool.each(rows, lambda at: traced(rows[at]), options.jobs, options.timeout, options.total)
    return results, *score(rows, results)


def traced(row: dict[str, Any]) -> dict[str, Any]:
    """Peaks of one row in MiB, without the libraries' workspace."""
    trace = trace_row(row)
    peaks = trace.replay()
    return {
        "allocated": peaks.peak_allocated / 2**20,
        "reserved": peaks.peak_reserved / 2**20,
        "parameters": trace.parameters,
        "parts": {label: round(size / 2**20, 1) for label, size in peaks.breakdown.items()},
    }


def score(rows: dict[str, Any], results: dict[str, Any]) -> tuple[list[str], bool]:
    """One line per row, then the averages."""
    good = {at: row for at, row in rows.items() if "error" not in results.get(at, {"error": ""})}
    lines = [f"{rows[at]['model']}: {result['error']}" for at, result in results.items() if at in rows and "error" in result]
    if not good:
        return [*lines, "nothing was traced"], False
    context = median(row["device_used_mib"] - row["peak_reserved_mib"] for row in good.values())
    inside, outside = [], []
    lines.append("model\tbatch\tseq\tprecision\tallocated MiB\tmeasured\terror\tdevice MiB\tmeasured\terror")
    for at, row in good.items():
        allocated, measured = results[at]["allocated"] + LIBRARIES, row["peak_alloc_mib"] + row["base_alloc_mib"]
        device = results[at]["reserved"] + LIBRARIES + context
        inside.append(allocated / measured - 1)
        outside.append(device / row["device_used_mib"] - 1)
        kind = "".join(f" {name}" for name in ("ckpt", "lora") if row.get(name))
        lines.append(
            f"{row['model']}{kind}\t{row['batch']}\t{row['seq'] or ''}\t{row['precision']}"
            f"\t{allocated:.0f}\t{measured:.0f}\t{inside[-1]:+.1%}"
            f"\t{device:.0f}\t{row['device_used_mib']:.0f}\t{outside[-1]:+.1%}"
        )
    means = mean(map(abs, inside)), mean(map(abs, outside))
    lines.append(f"{len(good)} rows of {len(rows)}; constants: {LIBRARIES} MiB of libraries, {context:.0f} MiB of context")
    for name, errors, average in (("allocated", inside, means[0]), ("device", outside, means[1])):
        lines.append(f"{name}: mean {average:.2%}, median {median(map(abs, errors)):.2%}, worst {max(map(abs, errors)):.1%}")
    return lines, means[0] <= GOAL_ALLOCATED and means[1] <= GOAL_DEVICE
