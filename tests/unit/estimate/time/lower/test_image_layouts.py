"""Memory format of images: as requested, as an engine decides, as a network transposes them."""

from __future__ import annotations

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.lower import lower
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.workload import Workload

CATALOG = Catalog()
LAST, PLANES = "channels_last", "contiguous"


def channels_last(model: str, precision: str, memory_format: str, engine: str = "pytorch", year: int = 2021) -> bool:
    """Whether the convolutions of a training step have channels last."""
    shape = find_model(model, CATALOG)
    workload = Workload(
        task="train", model=model, batch=8, precision=precision, engine=engine, year=year, memory_format=memory_format
    )
    filled = fill_defaults(workload, shape)
    (nhwc,) = {op.sizes["nhwc"] for op in lower(filled, shape).ops if op.kind in ("conv", "conv_wgrad", "conv_dgrad")}
    return bool(nhwc)


@pytest.mark.parametrize("memory_format", [LAST, PLANES])
def test_pytorch_leaves_images_as_they_are(memory_format: str) -> None:
    assert channels_last("resnet50", "amp-bf16", memory_format) == (memory_format == LAST)


@pytest.mark.parametrize("memory_format", [LAST, PLANES])
@pytest.mark.parametrize(
    ("precision", "year", "expected"),
    [("amp-fp16", 2021, True), ("fp16", 2019, True), ("fp32", 2021, False), ("tf32", 2021, False), ("fp16", 2018, False)],
)
def test_tensorflow_transposes_images_for_16_bit_precision(precision: str, year: int, expected: bool, memory_format: str) -> None:
    assert channels_last("resnet50", precision, memory_format, "tensorflow", year) is expected


def test_a_network_that_normalises_over_channels_turns_its_images_itself() -> None:
    assert channels_last("convnext_tiny", "fp32", PLANES)
    assert not channels_last("maxvit_t", "fp32", PLANES)  # batches are normalised there, too
