"""The page of coverage: shares inside, widths and interval scores of ranges on predictions of left-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.coverage import former_widths, interval_score, page
from calibration.residuals import Residual
from msgspec.structs import replace

from whichgpu.catalog.evidence import Measurement
from whichgpu.estimate.confidence.axes import NO_AXES

ROW = Measurement("source", "t4", {}, 1.0, "forward", "", "", 1)


def residuals(count: int) -> list[Residual]:
    """Return predictions by fits without a model, a GPU and a generation, ever farther from the measurements."""
    predictions: list[Residual] = []
    random = np.random.default_rng(0)
    axes = replace(NO_AXES, task="forward", engine="pytorch", maker="nvidia", family="CNN")
    for axis, spread, new in (
        ("model", 0.1, {}),
        ("gpu", 0.2, {"gpu": 1.0}),
        ("generation", 0.4, {"gpu": 1.0, "gpu anywhere": 1.0, "generation": 1.0, "generation anywhere": 1.0}),
    ):
        for place, log in enumerate(random.normal(0.0, spread, count).tolist()):
            predictions.append(Residual(log, axis, f"source {place % 12}", axes, new, ROW))
    return predictions


def test_interval_score_by_hand() -> None:
    """Two ranges from -0.1 to 0.2; one measurement inside, one 0.1 above: twenty times 0.1 are added to its width."""
    ends = np.array([0.1, 0.1]), np.array([0.2, 0.2])
    assert interval_score(np.array([0.0, 0.3]), *ends) == pytest.approx((0.3 + 0.3 + 20 * 0.1) / 2)


def test_former_ranges_widen_with_distance() -> None:
    """Quantiles of the other sources' errors; never narrower farther from the measurements."""
    rows = residuals(240)
    low, high = former_widths(rows)
    near, kin, far = (np.median((low + high)[part]) for part in (slice(240), slice(240, 480), slice(480, 720)))
    assert near < kin < far
    assert near / 2 == pytest.approx(1.645 * 0.1, rel=0.2)


def test_the_page_counts_what_lies_inside() -> None:
    """Groups of twenty predictions and more; ranges of zero width contain nothing, wide ones everything."""
    rows = residuals(40)
    text = "\n".join(page(rows, (np.full(120, 9.0), np.full(120, 9.0))))
    for line in ("| measured | 40 |", "| specs | 40 |", "| nvidia | 120 |", "| these | 120 | 100.0% |"):
        assert line in text
    assert "| these | 120 | 0.0% | ±0% |" in "\n".join(page(rows, (np.zeros(120), np.zeros(120))))
    assert "source 1" not in text, "fewer than twenty predictions"
