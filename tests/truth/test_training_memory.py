"""Training steps measured on an H200 (PyTorch 2.11, transformers 5.17, 2026), as facts that guard the estimates everywhere.

Peak of the caching allocator and memory in use on the device, in MiB, of a fresh process.
"""

from __future__ import annotations

import statistics

import pytest

from whichgpu.base.units import MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload

# model, precision, batch, sequence, optimizer, checkpointing, LoRA rank, allocated, device
MEASURED = [
    ("mlp:9000x4000x4000x32", "fp32", 128, None, "sgd-momentum", "none", None, 672.9, 1438.8),
    ("mlp:9000x4000x4000x32", "fp32", 1024, None, "sgd-momentum", "none", None, 750.6, 1582.8),
    ("mlp:16384x8192x8192x1024", "tf32", 512, None, "adamw", "none", None, 3313.3, 4144.8),
    ("bert-base", "fp32", 32, 128, "adamw", "none", None, 5235.1, 6166.8),
    ("bert-large", "amp-bf16", 16, 512, "adamw", "none", None, 15123.7, 16788.8),
    ("bert-large", "tf32", 16, 512, "adamw", "none", None, 19621.3, 20820.8),
    ("bert-large", "bf16", 32, 384, "adamw", "none", None, 14079.1, 15030.8),
    ("gpt2", "amp-bf16", 8, 1024, "adamw", "none", None, 12693.4, 15070.8),
    ("gpt2-medium", "amp-bf16", 8, 1024, "adamw", "none", None, 26094.7, 28300.8),
    ("gpt2-large", "bf16", 8, 1024, "adamw", "none", None, 30192.4, 32124.8),
    ("gpt2-xl", "bf16", 8, 1024, "adamw", "full", None, 15060.2, 17702.8),
    ("llama-3.2-1b", "bf16", 4, 2048, "adamw", "none", None, 32876.1, 35168.8),
    ("llama-3.2-1b", "amp-bf16", 8, 2048, "adamw", "none", None, 73225.0, 76750.8),
    ("llama-3.2-3b", "amp-bf16", 4, 2048, "adamw", "full", None, 56008.4, 64514.8),
    ("mistral-7b", "bf16", 8, 2048, "adamw", "full", None, 59053.4, 60922.8),
    ("llama-3.1-8b", "bf16", 1, 2048, "adamw", "none", None, 61639.2, 69784.8),
    ("llama-3.1-8b", "bf16", 2, 2048, "adamw", "none", 16, 44720.8, 46990.8),
    ("llama-3.1-8b", "bf16", 4, 4096, "adamw", "full", 16, 44024.9, 52050.8),
]
Case = tuple[str, str, int, int | None, str, str, int | None, float, float]


def errors(case: Case, catalog: Catalog) -> tuple[float, float]:
    model, precision, batch, sequence, optimizer, checkpointing, rank, allocated, device = case
    shape = find_model(model, catalog)
    workload = Workload(
        "train",
        model,
        precision=precision,
        batch=batch,
        seq_in=sequence,
        optimizer=optimizer,
        checkpointing=checkpointing,
        lora_rank=rank,
    )
    told = memory(fill_defaults(workload, shape), shape, catalog.gpu_by_id["h200-sxm"])
    return told.allocated.value / MIB / allocated - 1, told.device.value / MIB / device - 1


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: f"{case[0]} {case[1]} b{case[2]}")
def test_the_allocated_peak_is_within_two_percent_and_the_device_within_five(case: Case, catalog: Catalog) -> None:
    allocated, device = errors(case, catalog)
    assert abs(allocated) < 0.02
    assert abs(device) < 0.05


def test_the_mean_error_is_below_half_a_percent(catalog: Catalog) -> None:
    assert statistics.mean(abs(errors(case, catalog)[0]) for case in MEASURED) < 0.005
