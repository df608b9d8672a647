"""Fit of whole steps: if the backward pass waits for the forward pass, each takes the longer of host and device."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.examples import example as measured_example
from calibration.examples import replace_stochastic_depth
from calibration.fit_steps import COMPUTE_LEVELS, Design, Example

from whichgpu.catalog.evidence import Measurement
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.calibration import LEVELS, CorrectionKey
from whichgpu.estimate.time.combine import HostMode
from whichgpu.estimate.time.lower.traced_model import traced_model
from whichgpu.estimate.time.terms import TERMS
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload

SETTING = CorrectionKey("pytorch", 2024, "train", "single", "t4", "Turing", "Turing 7.5", "datacenter", "TU104", "nvidia")
GROUPS = {"source": "somebody", "gpu": "t4", "kind": "train"}


def terms(**fixed: float) -> np.ndarray:
    return np.array([fixed.get(name, 0.0) for name in TERMS])


NONE = terms()
FORWARD, REST = terms(conv=1.0, forward_calls=4.0, step=0.5), terms(conv=6.0, backward_calls=2.0)


def example(apart: bool) -> Example:
    if apart:
        return Example(9.0, FORWARD, NONE, SETTING, HostMode(True), GROUPS, later=(REST, NONE))
    return Example(9.0, FORWARD + REST, NONE, SETTING, HostMode(True), GROUPS)


def test_sequential_passes_each_take_the_longer_of_host_and_device() -> None:
    design = Design([example(apart=True), example(apart=False)])
    waiting, overlapped = np.exp(design.predict(np.zeros(len(design.parameters)), range(2)))
    assert waiting == pytest.approx(4.0 + 6.0 + 0.5, rel=1e-3)
    assert overlapped == pytest.approx(7.0 + 0.5, rel=0.1)


@pytest.mark.parametrize("soft", [None, 8.0])
def test_analytic_gradient_of_the_cost_equals_the_numerical_one(soft: float | None) -> None:
    left_out = Example(9.0, FORWARD, 0.9 * FORWARD, SETTING, HostMode(True), GROUPS)
    both = Example(9.0, terms(gemm=3.0, stream=5.0, memory=1.0), terms(gemm=6.0, stream=1.0), SETTING, HostMode(True), GROUPS)
    overlapped = Example(9.0, terms(gemm=3.0, step=2.5, sequences=1.0), NONE, SETTING, HostMode(True, overlaps=True), GROUPS)
    design = Design([example(apart=True), example(apart=False), left_out, both, overlapped])
    rows, weights = np.arange(5), np.ones(5)
    point = np.linspace(-0.5, 0.5, len(design.parameters))
    _, slope = design._cost(point, rows, weights, 0.2, soft)
    for place in range(len(point)):
        aside = np.zeros(len(point))
        aside[place] = 1e-6
        more, less = (design._cost(point + sign * aside, rows, weights, 0.2, soft)[0] for sign in (1, -1))
        assert slope[place] == pytest.approx((more - less) / 2e-6, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(("engine", "overlaps"), [("sglang", True), ("tensorrt-llm", False)])
def test_a_throughput_keeps_what_the_engine_overlaps(engine: str, overlaps: bool) -> None:
    """Launches do not bound a rate over many batches; the host's work for each sequence overlaps as in the estimate."""
    lengths = {"batch": 64, "seq_in": 1024, "seq_out": 1024}
    fields = {"task": "serve", "model": "gpt-oss-120b", "engine": engine, "year": 2026, **lengths}
    catalog = Catalog()
    row = Measurement("somebody", "b200", fields, 0.01, "serve", "high", "gpt-oss", 1, throughput_only=True)
    assert measured_example(row, LookupCache(catalog), catalog.gpu_by_id["b200"]).host == HostMode(False, overlaps)


def test_a_step_is_host_bound_only_if_both_passes_together_are() -> None:
    hosts = Example(9.0, FORWARD, NONE, SETTING, HostMode(True), GROUPS, later=(terms(conv=1.0, backward_calls=2.0), NONE))
    design = Design([example(apart=True), hosts])
    both = design.estimates_with(design.calibration(np.zeros(len(design.parameters))), range(2))
    assert [bool(one.host[0, 0] > one.device[0, 0]) for one in both] == [False, True]


@pytest.mark.parametrize(("model", "layers"), [("convnext_tiny", 17), ("efficientnet_b0", 9)])
def test_networks_of_other_libraries_have_no_stochastic_depth(model: str, layers: int) -> None:
    """torchvision's stochastic depth draws a number per sample in three calls for every layer, then multiplies by it."""
    own = traced_model(Workload("train", model, precision="fp32"), TracedShape(model, model, 0))
    calls = {depth: sum(one.count for one in replace_stochastic_depth(own, depth).operators) for depth in ("kept", "dropout")}
    every = sum(one.count for one in own.operators)
    assert every - calls["dropout"] == 3 * layers
    assert every - calls["kept"] == 5 * layers  # the multiplications of forward and backward too


def test_gemms_bound_by_reading_weights_share_all_corrections_but_those_of_compute() -> None:
    reading = Example(1.0, terms(stream=1.0), NONE, SETTING, HostMode(False), GROUPS)
    computing = Example(1.0, terms(gemm=1.0), NONE, SETTING, HostMode(False), GROUPS)
    design = Design([reading, computing])
    theta = np.full(len(design.parameters), 0.1)
    read, computed = design.predict(theta, range(2))
    levels = [level for level in LEVELS if SETTING.applies(level)]
    assert read == pytest.approx(0.1 * (len(levels) - len(COMPUTE_LEVELS)))
    assert computed == pytest.approx(0.1 * len(levels))
    multipliers = design.calibration(theta).multipliers
    assert all(
        ("stream" in values) == (level not in COMPUTE_LEVELS) for level in LEVELS for values in multipliers[level].values()
    )
