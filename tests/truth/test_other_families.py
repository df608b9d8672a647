"""Families other than those the estimates were built on: training steps measured on an H200 (PyTorch 2.11, 2026).

They showed where a layer was written out wrongly (eager attention, Gemma's norm and soft cap), and that was corrected; so these
rows guard, they do not prove.

Random weights, transformers 5.17 classes, fused AdamW; allocated peak in MiB of a fresh process.
"""

from __future__ import annotations

import statistics

import pytest

from whichgpu.base.units import MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload

MEASURED = [
    ("opt-1.3b", "bf16", 4, 1024, 14990),
    ("opt-1.3b", "amp-bf16", 4, 1024, 26571),
    ("phi-1.5", "bf16", 4, 1024, 20994),
    ("phi-2", "bf16", 1, 1024, 21278),
    ("phi-2", "amp-bf16", 1, 1024, 44678),
    ("gemma-2-2b", "bf16", 2, 1024, 30678),
    ("gemma-2-2b", "amp-bf16", 2, 1024, 51497),
    ("gemma-3-1b", "bf16", 2, 2048, 30008),
    ("qwen3-0.6b", "bf16", 4, 2048, 33501),
    ("qwen3-0.6b", "amp-bf16", 4, 2048, 40306),
    ("bloom-560m", "bf16", 4, 1024, 27339),
    ("bloom-560m", "amp-bf16", 4, 1024, 32004),
    ("t5-base", "bf16", 16, 512, 22862),
    ("t5-base", "amp-bf16", 16, 512, 26456),
    ("roberta-base", "bf16", 32, 256, 5685),
    ("vit-base-patch16-224", "bf16", 64, None, 4325),
]
Case = tuple[str, str, int, int | None, int]


def error(case: Case, catalog: Catalog) -> float:
    model, precision, batch, sequence, allocated = case
    shape = find_model(model, catalog)
    workload = Workload("train", model, precision=precision, batch=batch, seq_in=sequence, optimizer="adamw")
    estimate = estimate_memory(fill_defaults(workload, shape), shape, catalog.gpu_by_id["h200-sxm"])
    return estimate.allocated.value / MIB / allocated - 1


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: f"{case[0]} {case[1]}")
def test_each_is_within_three_percent(case: Case, catalog: Catalog) -> None:
    assert abs(error(case, catalog)) < 0.03


def test_the_mean_error_is_within_one_percent(catalog: Catalog) -> None:
    assert statistics.mean(abs(error(case, catalog)) for case in MEASURED) < 0.01


def test_known_to_be_off_deberta_whisper_and_pythia_are_underestimated(catalog: Catalog) -> None:
    """Their attention and front ends are not written out yet; the gap is stated here so that closing it shows."""
    gaps = {
        "deberta-v3-base": error(("deberta-v3-base", "bf16", 16, 256, 7673), catalog),
        "whisper-small": error(("whisper-small", "bf16", 8, 448, 8135), catalog),
        "pythia-410m": error(("pythia-410m", "bf16", 8, 1024, 14060), catalog),
    }
    assert all(-0.2 < gap < 0 for gap in gaps.values()), gaps
