"""The fit of whole steps: a step whose passes wait for one another takes the longer of host and device in each."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.examples import redrawn
from calibration.fit_steps import ARITHMETIC, Design, Example

from whichgpu.estimate.time.calibration import LEVELS, CorrectionKey
from whichgpu.estimate.time.combine import HostMode
from whichgpu.estimate.time.lower.traced_model import traced_model
from whichgpu.estimate.time.terms import TERMS
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload

SETTING = CorrectionKey("pytorch", 2024, "train", "single", "t4", "Turing", "Turing 7.5", "datacenter", "TU104", "nvidia")
GROUPS = {"source": "somebody", "gpu": "t4", "kind": "train"}


def terms(**known: float) -> np.ndarray:
    return np.array([known.get(name, 0.0) for name in TERMS])


NONE = terms()
FORWARD, REST = terms(conv=1.0, forward_calls=4.0, step=0.5), terms(conv=6.0, backward_calls=2.0)


def example(apart: bool) -> Example:
    if apart:
        return Example(9.0, FORWARD, NONE, SETTING, HostMode(True), GROUPS, later=(REST, NONE))
    return Example(9.0, FORWARD + REST, NONE, SETTING, HostMode(True), GROUPS)


def test_passes_that_wait_for_one_another_take_the_longer_of_host_and_device_each() -> None:
    design = Design([example(apart=True), example(apart=False)])
    waiting, overlapped = np.exp(design.predict(np.zeros(len(design.parameters)), range(2)))
    assert waiting == pytest.approx(4.0 + 6.0 + 0.5, rel=1e-3)
    assert overlapped == pytest.approx(7.0 + 0.5, rel=0.1)


@pytest.mark.parametrize("soft", [None, 8.0])
def test_the_slope_of_the_cost_is_its_own(soft: float | None) -> None:
    held = Example(9.0, FORWARD, 0.9 * FORWARD, SETTING, HostMode(True), GROUPS)
    both = Example(9.0, terms(gemm=3.0, stream=5.0, memory=1.0), terms(gemm=6.0, stream=1.0), SETTING, HostMode(True), GROUPS)
    overlapped = Example(9.0, terms(gemm=3.0, step=2.5, sequences=1.0), NONE, SETTING, HostMode(True, overlaps=True), GROUPS)
    design = Design([example(apart=True), example(apart=False), held, both, overlapped])
    rows, weights = np.arange(5), np.ones(5)
    point = np.linspace(-0.5, 0.5, len(design.parameters))
    _, slope = design._cost(point, rows, weights, 0.2, soft)
    for place in range(len(point)):
        aside = np.zeros(len(point))
        aside[place] = 1e-6
        more, less = (design._cost(point + sign * aside, rows, weights, 0.2, soft)[0] for sign in (1, -1))
        assert slope[place] == pytest.approx((more - less) / 2e-6, rel=1e-4, abs=1e-4)


def test_a_step_decided_by_its_host_is_known_by_both_passes() -> None:
    hosts = Example(9.0, FORWARD, NONE, SETTING, HostMode(True), GROUPS, later=(terms(conv=1.0, backward_calls=2.0), NONE))
    design = Design([example(apart=True), hosts])
    assert design.host_bound(np.zeros(len(design.parameters))).tolist() == [False, True]


@pytest.mark.parametrize(("model", "layers"), [("convnext_tiny", 17), ("efficientnet_b0", 9)])
def test_networks_of_other_libraries_leave_out_no_layers(model: str, layers: int) -> None:
    """torchvision draws a number for each sample and layer beyond the first of a stage, in three calls, and multiplies by it."""
    own = traced_model(Workload("train", model, precision="fp32"), TracedShape(model, model, 0))
    calls = {depth: sum(one.count for one in redrawn(own, depth).operators) for depth in ("kept", "dropout")}
    every = sum(one.count for one in own.operators)
    assert every - calls["dropout"] == 3 * layers
    assert every - calls["kept"] == 5 * layers  # the products forward and backward too


def test_products_that_read_weights_take_the_corrections_of_all_but_arithmetic() -> None:
    reading = Example(1.0, terms(stream=1.0), NONE, SETTING, HostMode(False), GROUPS)
    computing = Example(1.0, terms(gemm=1.0), NONE, SETTING, HostMode(False), GROUPS)
    design = Design([reading, computing])
    theta = np.full(len(design.parameters), 0.1)
    read, computed = design.predict(theta, range(2))
    levels = [level for level in LEVELS if SETTING.applies(level)]
    assert read == pytest.approx(0.1 * (len(levels) - len(ARITHMETIC)))
    assert computed == pytest.approx(0.1 * len(levels))
    told = design.calibration(theta).multipliers
    assert all(("stream" in values) == (level not in ARITHMETIC) for level in LEVELS for values in told[level].values())
