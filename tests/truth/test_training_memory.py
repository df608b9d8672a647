"""Training steps measured on an H200 (PyTorch 2.11, transformers 5.17, 2026), as facts that guard the estimates everywhere.

Peak of the caching allocator and memory in use on the device, in MiB, of a fresh process.
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
    estimate = estimate_memory(fill_defaults(workload, shape), shape, catalog.gpu_by_id["h200-sxm"])
    return estimate.allocated.value / MIB / allocated - 1, estimate.device.value / MIB / device - 1


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: f"{case[0]} {case[1]} b{case[2]}")
def test_the_allocated_peak_is_within_two_percent_and_the_device_within_five(case: Case, catalog: Catalog) -> None:
    allocated, device = errors(case, catalog)
    assert abs(allocated) < 0.02
    assert abs(device) < 0.05


def test_the_mean_error_is_below_half_a_percent(catalog: Catalog) -> None:
    assert statistics.mean(abs(errors(case, catalog)[0]) for case in MEASURED) < 0.005


# Steps of four micro-batches, measured the same way on 2026-11-15: hidden, layers, heads, key heads, MLP, vocabulary of a
# Llama, micro-batch, sequence, precision; peak allocated in MiB, of one micro-batch and of four.
ACCUMULATED = [
    ((2048, 22, 32, 4, 5632, 32000), 1, 512, "bf16", 8471, 9613),
    ((2048, 22, 32, 4, 5632, 32000), 1, 512, "amp-bf16", 16857, 20269),
    ((2048, 22, 32, 4, 5632, 32000), 4, 1024, "bf16", 15416, 17514),
    ((2048, 22, 32, 4, 5632, 32000), 4, 1024, "amp-bf16", 25460, 29657),
    ((4096, 8, 32, 8, 14336, 128256), 1, 512, "bf16", 21397, 23325),
    ((4096, 8, 32, 8, 14336, 128256), 1, 512, "amp-bf16", 42729, 50025),
    ((4096, 8, 32, 8, 14336, 128256), 4, 1024, "bf16", 28477, 33809),
    ((4096, 8, 32, 8, 14336, 128256), 4, 1024, "amp-bf16", 50116, 60780),
]


@pytest.mark.parametrize(("sizes", "micro", "sequence", "precision", "one", "four"), ACCUMULATED)
def test_gradients_are_added_to_those_of_earlier_micro_batches(
    sizes: tuple[int, ...], micro: int, sequence: int, precision: str, one: float, four: float, catalog: Catalog
) -> None:
    """Within 2.5%: they were once counted in addition until the end of the step, up to 15% too much."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
    config = {"model_type": "llama", "max_position_embeddings": 2048, **dict(zip(names, sizes, strict=True))}
    shape = find_model(config, catalog)
    for rounds, measured in ((1, one), (4, four)):
        workload = Workload(
            "train", "llama", precision=precision, batch=micro * rounds, micro_batch=micro, accumulation=rounds, seq_in=sequence,
            optimizer="adamw",
        )  # fmt: skip
        estimate = estimate_memory(fill_defaults(workload, shape), shape, catalog.gpu_by_id["h200-sxm"])
        assert estimate.allocated.value / MIB == pytest.approx(measured, rel=0.025)
