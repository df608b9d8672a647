"""Margins grow one at a time, and late requests get replicas of their own before anything else is changed for them."""

from __future__ import annotations

from whichgpu.decide.plan.margins import HEADROOMS, LARGE_STEPS, Margins


def test_without_late_requests_headroom_and_limits_grow_one_at_a_time() -> None:
    assert list(Margins(0.15).larger(late=False)) == [Margins(0.25), Margins(0.15, limit_factor=0.8)]
    assert next(Margins(0.2).larger(late=False)) == Margins(0.25)


def test_late_requests_are_separated_before_fewer_are_allowed() -> None:
    assert list(Margins(0.15).larger(late=True)) == [Margins(0.25), Margins(0.15, separate=True)]
    assert Margins(0.15, 0.5, 1.0, True) in list(Margins(0.15, separate=True).larger(late=True))


def test_the_largest_margins_have_no_larger_ones() -> None:
    assert not list(Margins(HEADROOMS[-1], 0.1, 0.4, True).larger(late=True))


def test_large_steps_only_enlarge() -> None:
    for step in LARGE_STEPS:
        larger = Margins(0.45, 0.1, 0.6).at_least(*step)
        assert (larger.headroom >= 0.45, larger.late_share <= 0.1, larger.limit_factor <= 0.6, larger.separate) == (True,) * 4
