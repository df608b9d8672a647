"""Training with GEMM operands quantised to fp8 or nvfp4: which GEMMs, which memory, which GPUs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import check_training, check_training_units, estimate_memory
from whichgpu.estimate.time.lower import lower
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults
from whichgpu.workload.workload import Workload

CATALOG = Catalog()
LOOKUPS = LookupCache(CATALOG)
LLAMA = LOOKUPS.shape("llama-3.2-1b")


def _step(precision: str, model: str = "llama-3.2-1b") -> Workload:
    request = Workload("train", model, precision=precision, batch=1, seq_in=1024, engine="ngc", year=2026)
    return fill_defaults(request, LOOKUPS.shape(model))


def test_only_projections_are_quantised() -> None:
    """All GEMMs of the layers, none of the output head or of attention."""
    assert isinstance(LLAMA, Transformer)
    ops = lower(_step("fp8"), LLAMA).ops
    head = [op for op in ops if op.kind == "gemm" and LLAMA.vocab in op.sizes.values()]
    layers = [op for op in ops if op.kind == "gemm" and LLAMA.vocab not in op.sizes.values()]
    assert {op.unit for op in head} == {"bf16"}
    assert {op.unit for op in layers} == {"fp8"}
    assert {op.unit for op in ops if op.kind.startswith("attention")} == {"bf16"}
    assert sum(op.count * op.flops for op in ops) == sum(op.count * op.flops for op in lower(_step("bf16"), LLAMA).ops)


def test_master_weights_and_quantised_copies_take_memory() -> None:
    """Twelve bytes per parameter of optimizer state instead of four; saved inputs of GEMMs have one byte."""
    steps = (_step("fp8"), replace(_step("bf16"), engine="pytorch"), _step("bf16"))
    estimates = (estimate_memory(one, LLAMA, None) for one in steps)
    quantised, plain, megatron = ({name: part.value for name, part in one.parts.items()} for one in estimates)
    assert quantised["optimizer"] == pytest.approx(3 * plain["optimizer"], rel=0.01)
    assert quantised["optimizer"] == megatron["optimizer"]  # Megatron has master weights in bf16, too.
    assert 1.5 < quantised["weights"] / plain["weights"] < 2.0
    assert quantised["activations"] < plain["activations"]


@pytest.mark.parametrize(("gpu", "precision"), [("a100-sxm-80gb", "fp8"), ("h100-sxm", "nvfp4")])
def test_a_gpu_without_the_units_is_refused(gpu: str, precision: str) -> None:
    """Units are those of the catalog: an A100 has no fp8, an H100 no fp4."""
    with pytest.raises(UsageError, match="units"):
        check_training_units(_step(precision), CATALOG.gpu_by_id[gpu])
    check_training_units(_step(precision), CATALOG.gpu_by_id["b200"])


def test_networks_without_projections_are_refused() -> None:
    """Convolutional networks, and QLoRA, whose weights are in NF4 already."""
    for workload, name in ((_step("bf16", "resnet50"), "resnet50"), (replace(_step("fp8"), qlora=True), "llama-3.2-1b")):
        with pytest.raises(UsageError, match="linear layers"):
            check_training(replace(workload, precision="fp8"), LOOKUPS.shape(name))
