"""A record of ten steps improves the estimates of a GPU that the shipped fit never saw, and harms none."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.one_record import LARGE_ERROR, groups


@pytest.mark.long
def test_ten_steps_halve_a_large_error_and_worsen_none_by_two_points() -> None:
    all_groups = list(groups())
    large = [one for one in all_groups if one.before > LARGE_ERROR]
    assert len(all_groups) >= 80
    assert len(large) >= 30
    assert median(one.after for one in large) <= 0.5 * median(one.before for one in large)
    assert [one for one in all_groups if one.after > one.before + 0.02] == []
