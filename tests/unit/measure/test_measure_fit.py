"""Corrections fitted to a record: kept if they help steps left out, dropped if they do not."""

from __future__ import annotations

import numpy as np
import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.combine import host_mode
from whichgpu.estimate.time.grid import correction_keys
from whichgpu.estimate.time.terms import TERMS
from whichgpu.measure.fit import Example, fit_steps
from whichgpu.workload.spelling import from_object

UNCORRECTED = Calibration({}, {}, {})


def steps_off_by(*ratios: float) -> list[Example]:
    """Return training steps of one second of GEMMs each, measured at these ratios of the estimate."""
    workload = from_object({"task": "train", "model": "mlp:8-8", "engine": "pytorch", "batch": 1}).workload
    key = correction_keys(workload, "train", "half", [Catalog().gpu_by_id["t4"]])[0]
    terms = np.array([float(term == "gemm") for term in TERMS])
    return [Example(ratio, terms, 0.1 * terms, key, host_mode("pytorch", 2026), "train") for ratio in ratios]


@pytest.mark.parametrize("ratio", [0.8, 1.3])
def test_steps_that_agree_are_corrected_in_full(ratio: float) -> None:
    fitted = fit_steps(steps_off_by(*[ratio] * 6), UNCORRECTED)
    total = sum(values["gemm"] for values in fitted.multipliers.values())
    assert total == pytest.approx(np.log(ratio), rel=0.1)
    assert fitted.spreads["any"] < 0.1


def test_steps_that_contradict_each_other_correct_nothing_and_widen_the_range() -> None:
    fitted = fit_steps(steps_off_by(2.0, 0.5, 1.0), UNCORRECTED)
    assert fitted.multipliers == {}
    assert fitted.spreads["any"] > 0.5
