"""Device memory of small training jobs on software that loads all kernels when a process starts (CUDA before 11.7).

Perceptrons trained with Adam in fp32 on an A100 40GB (github.com/itu-rad/GPUMemNet), and bare contexts that users of PyTorch
reported (github.com/pytorch/pytorch, issues 28394, 49877 and 55277).
"""

from __future__ import annotations

import pytest

from whichgpu.base.units import MIB
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.overhead import context_bytes, kernel_bytes
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload

# units, batch, MiB in use on the device
PERCEPTRONS = [
    ("3222x3222x3222x3222x3222x507", 229, 2353),
    ("3799x3799x3799x3799x3799x3799x219", 376, 2973),
    ("2104x1052x526x263x185x185x185", 273, 1445),
    ("1219x1219x1219x1219x1219x33", 752, 1613),
    ("513x363x213x63x62", 365, 1459),
]


@pytest.mark.parametrize(("units", "batch", "measured"), PERCEPTRONS)
def test_small_training_jobs_are_within_a_tenth(units: str, batch: int, measured: int, catalog: Catalog) -> None:
    name = f"mlp:{units}"
    shape, gpu = find_model(name, catalog), catalog.gpu_by_id["a100-sxm-40gb"]
    workload = fill_defaults(Workload("train", name, batch=batch, optimizer="adam", year=2022), shape)
    device = estimate_memory(workload, shape, gpu).device
    assert device.value / MIB == pytest.approx(measured, rel=0.10)
    assert device.low <= measured * MIB <= device.high
    now = estimate_memory(fill_defaults(Workload("train", name, batch=batch, optimizer="adam"), shape), shape, gpu).device
    assert now.value < device.value - 600 * MIB


@pytest.mark.parametrize(
    ("gpu", "year", "measured"), [("titan-v", 2019, 1008), ("rtx-2080-ti", 2020, 879), ("gtx-1080", 2021, 721)]
)
def test_bare_contexts_of_older_cards(gpu: str, year: int, measured: int, catalog: Catalog) -> None:
    card = catalog.gpu_by_id[gpu]
    estimated = context_bytes(card, kernel_bytes(engine_record("pytorch", year).memory, card))
    assert estimated / MIB == pytest.approx(measured, rel=0.06)
