"""Published times of convolutional networks before 2018, for requests that leave precision and memory format to the year.

The corrections were fitted on these rows, with both fields stated; what is tested are the defaults.
"""

from __future__ import annotations

import statistics

import pytest

from whichgpu.api.workloads.estimate import estimate
from whichgpu.catalog.evidence import measurements

LEFT_OPEN = ("precision", "memory_format")
EVERY = {"soumith": 2, "mxnet": 12, "u39kun": 4}  # Every n-th row is estimated.


@pytest.mark.parametrize("source", EVERY)
def test_the_median_error_is_below_a_sixth(source: str) -> None:
    rows = [
        row for row in measurements()
        if row.source == source and row.request["year"] < 2019 and row.request["gpus"] == 1 and row.request["precision"] == "fp32"
    ]  # fmt: skip
    errors = []
    for row in rows[:: EVERY[source]]:
        answer = estimate(own=False, **{name: value for name, value in row.request.items() if name not in LEFT_OPEN})
        assert answer.request["memory_format"] == "contiguous"
        assert answer.time is not None
        errors.append(abs(answer.time.value / row.seconds - 1))
    assert len(errors) > 5
    assert statistics.median(errors) < 0.16
