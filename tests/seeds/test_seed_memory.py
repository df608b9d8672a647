"""What the documents of 2015 and 2024 say of memory: a formula, and 7B at 8, 16 and 32 bits on a V100."""

from __future__ import annotations

import pytest

from whichgpu.api.workloads.fit import FitRow, fit_model
from whichgpu.base.units import GB, GIB, MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload

NETWORK = "mlp:9000x4000x4000x32"


def test_slip_2015_the_formula_gives_0_607_gib_printed_there_as_0_62(catalog: Catalog) -> None:
    """2015-11-19: 12 bytes x (weights + batch x units) is 0.607 GiB or 0.652 GB; neither is the 0.62 the post prints."""
    shape = find_model(NETWORK, catalog)
    workload = Workload("train", NETWORK, batch=128, precision="fp32", optimizer="sgd-momentum", method="blog-2015")
    estimate = estimate_memory(fill_defaults(workload, shape), shape, None)
    assert estimate.allocated.value / GIB == pytest.approx(0.607, abs=0.0005)
    assert estimate.allocated.value / GB == pytest.approx(0.652, abs=0.0005)
    assert estimate.warnings


def test_2015_the_same_network_measured_takes_673_mib(catalog: Catalog) -> None:
    """Measured on an H200 in 2026: 672.9 MiB allocated, workspace included; the formula leaves out the library's workspace."""
    shape = find_model(NETWORK, catalog)
    workload = Workload("train", NETWORK, batch=128, precision="fp32", optimizer="sgd-momentum")
    estimate = estimate_memory(fill_defaults(workload, shape), shape, catalog.gpu_by_id["h200-sxm"])
    assert estimate.allocated.value / MIB == pytest.approx(672.9, rel=0.01)


@pytest.mark.parametrize(("precision", "gigabytes"), [("int8", 7), ("fp16", 14), ("fp32", 28)])
def test_2024_seven_billion_at_8_16_and_32_bits_is_about_7_14_and_28_gb(precision: str, gigabytes: int, catalog: Catalog) -> None:
    """2024-04-08: the rule of thumb; Llama-2-7B has 6.74 billion, so its weights are 4% below it."""
    shape = find_model("llama-2-7b", catalog)
    estimate = estimate_memory(fill_defaults(Workload("serve", "llama-2-7b", precision=precision), shape), shape, None)
    assert estimate.parts["weights"].value / GB == pytest.approx(gigabytes, rel=0.05)


def test_2024_a_v100_holds_7b_in_8_bits_with_little_left_in_16_and_not_in_32() -> None:
    """2024-04-08: 16 bit goes onto a 16 GB V100 only just, 32 bit does not. In plain PyTorch, 512 tokens in and 128 out."""

    def row(precision: str) -> FitRow:
        answer = fit_model("llama-2-7b", "V100 SXM 16GB", precision=precision, engine="pytorch", seq_in=512, seq_out=128)
        return answer.gpus[0]

    assert row("int8").fits == "fits"
    assert row("fp16").fits == "fits"
    assert 0 < row("fp16").headroom < 3 * GIB
    assert row("fp32").fits == "no"
