"""Traced memory against device memory measured while training timm models on an A100-40GB at five batch sizes.

The rows do not state how they were measured; fp32 with TF32 convolutions and SGD with momentum explain them. Each model is traced
at two batch sizes; storages are affine in the batch, so the others follow. A few constants (context and libraries, a share of the
weights, a share of the convolution library's workspace) are fitted on a random half of the models and scored on the other half.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.trace import pool, scores
from benchmarks.trace.convolution_workspace import convolution_workspace
from whichgpu.estimate.allocation_sequence import replay_events
from whichgpu.estimate.allocator import Event
from whichgpu.estimate.trace import ModuleTrace, images, trace
from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SMALL, LARGE = 8, 16


def rows(path: Path) -> dict[str, dict[int, int]]:
    """Measured MiB by model and batch, failed rows left out."""
    measured: dict[str, dict[int, int]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["likely_oom_or_failed"] == "False":
                measured.setdefault(row["model"], {})[int(row["batch"])] = int(row["measured_mib"])
    return measured


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[str], bool]:
    """Trace (or read) every model, then fit and score."""
    measured = rows(options.truth / "public" / "timm_train_memory_a100.csv")
    if options.score:
        results = json.loads(options.json.read_text())
    else:
        names = [name for name in scores.shuffled(measured) if options.only in name][: options.models]
        torch = load_torch()
        load_torchvision()
        import timm  # type: ignore[import-not-found, unused-ignore]

        torch.set_num_threads(1)
        warnings.simplefilter("ignore")

        def work(name: str) -> dict[str, Any]:
            return traced(timm, name, sorted(measured[name]))

        results = pool.each(names, work, options.jobs, options.timeout, options.total)
    return results, *scores.timm(results, measured)


def traced(timm: Any, name: str, batches: list[int]) -> dict[str, Any]:
    """Peaks of one model at every batch size, in MiB."""
    began = time.monotonic()
    size = timm.models.get_pretrained_cfg(name).input_size[-1]

    def at(batch: int) -> ModuleTrace:
        return trace(lambda: timm.create_model(name), images(batch, size), optimizer="sgd-momentum", precision="tf32")

    small, large = at(SMALL), at(LARGE)
    result: dict[str, Any] = {"image": size, "parameters": small.parameters, "events": len(small.events), "batches": {}}
    for batch in batches:
        plain = replay_events(_between(small.events, large.events, batch), small.labels)
        scratch = _between(convolution_workspace(small), convolution_workspace(large), batch)
        result["batches"][str(batch)] = {
            "allocated": _mib(plain.peak_allocated),
            "reserved": _mib(plain.peak_reserved),
            "workspace": _mib(max((size for id, size in scratch if id >= len(small.makers)), default=0)),
        }
    return {**result, "seconds": round(time.monotonic() - began, 1)}


def _between(small: tuple[Event, ...], large: tuple[Event, ...], batch: int) -> list[Event]:
    """Events at another batch size: each storage is a constant and a multiple of the batch."""
    if [id for id, _ in small] != [id for id, _ in large]:
        raise ValueError("the two batch sizes run different operators")
    share = (batch - SMALL) / (LARGE - SMALL)
    return [(id, round(a + (b - a) * share) or 1) for (id, a), (_, b) in zip(small, large, strict=True)]


def _mib(size: int) -> float:
    return round(size / 2**20, 1)
