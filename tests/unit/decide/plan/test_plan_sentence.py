"""The first sentence of a plan says so if its simulation misses the objectives."""

from __future__ import annotations

from whichgpu.base.figure import Figure
from whichgpu.base.messages import english, msg
from whichgpu.decide.plan.build_answer import with_failure
from whichgpu.decide.plan.plan_answer import CheckRow

SENTENCE = msg("plan.traffic", rate="1", model="m")


def check(met: float | None, holds: bool, met_low: float = 0.0) -> CheckRow:
    figure = Figure(0.1, 0.1, 0.1, "s", "measured")
    return CheckRow("m", 95.0, figure, figure, figure, met, holds, 1000, met_low)


def test_sentence_of_a_plan_that_holds_is_unchanged() -> None:
    assert with_failure(SENTENCE, [check(0.99, True), check(None, True)]) is SENTENCE


def test_worst_failure_is_named() -> None:
    sentence = english().render(with_failure(SENTENCE, [check(0.99, True), check(0.5, False), check(0.031, False)]))
    assert sentence.startswith(english().render(SENTENCE))
    assert "3.1%" in sentence


def test_a_share_that_is_not_shown_with_confidence_is_said_with_its_lower_bound() -> None:
    sentence = english().render(with_failure(SENTENCE, [check(0.954, False, met_low=0.943)]))
    assert "not show with 95% confidence" in sentence
    assert "95.4%" in sentence
    assert "94.3%" in sentence
