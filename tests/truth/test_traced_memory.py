"""Traced models against training steps measured on an H200 (PyTorch 2.11, torchvision 0.26, channels-last, 224 px, 2026)."""

from __future__ import annotations

from statistics import mean

import pytest

from whichgpu.base.units import MIB
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload

# model, batch, precision, optimizer, MiB allocated at the peak of a fresh process, MiB the device reports in use
STEPS = [
    ("resnet50", 64, "fp32", "sgd-momentum", 5605, 7073),
    ("resnet50", 64, "tf32", "sgd-momentum", 5592, 7339),
    ("resnet50", 64, "amp-bf16", "sgd-momentum", 3068, 4203),
    ("resnet50", 256, "amp-bf16", "sgd-momentum", 11272, 13387),
    ("resnet152", 64, "amp-bf16", "sgd-momentum", 6214, 7449),
    ("resnet18", 256, "amp-bf16", "sgd-momentum", 3266, 4693),
    ("vgg16", 64, "tf32", "sgd-momentum", 6162, 9533),
    ("alexnet", 256, "fp32", "sgd-momentum", 2121, 4721),
    ("convnext_tiny", 64, "amp-bf16", "adamw", 4278, 5269),
    ("efficientnet_b0", 128, "amp-bf16", "adamw", 5642, 6959),
    ("mobilenet_v3_large", 256, "amp-bf16", "adamw", 5784, 7707),
    ("densenet121", 64, "amp-bf16", "sgd-momentum", 4254, 5529),
    ("vit_b_16", 256, "amp-bf16", "adamw", 18130, 19283),
    ("swin_t", 128, "amp-bf16", "adamw", 9161, 10669),
]


def ratios(model: str, batch: int, precision: str, optimizer: str, allocated: int, device: int) -> tuple[float, float]:
    """Estimated over measured: allocated, on the device."""
    workload = Workload("train", model, precision=precision, batch=batch, optimizer=optimizer, image=224)
    estimate = traced_memory(workload, TracedShape(model, model, 224), None)
    return estimate.allocated.value / (allocated * MIB), estimate.device.value / (device * MIB)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step[:3])))
def test_each_step_is_within_a_tenth(step: tuple[str, int, str, str, int, int]) -> None:
    allocated, device = ratios(*step)
    assert allocated == pytest.approx(1, abs=0.10)
    assert device == pytest.approx(1, abs=0.12)


def test_steps_are_within_three_and_five_percent_on_average() -> None:
    allocated, device = zip(*(ratios(*step) for step in STEPS), strict=True)
    assert mean(abs(ratio - 1) for ratio in allocated) < 0.03
    assert mean(abs(ratio - 1) for ratio in device) < 0.05
