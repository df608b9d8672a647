"""The first sentence of a plan says so if its simulation misses the objectives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from whichgpu.base.messages import english, msg
from whichgpu.decide.plan.build_answer import with_failure

SENTENCE = msg("plan.traffic", rate="1", model="m")


def check(met: float | None, holds: bool) -> Any:
    return SimpleNamespace(model="m", met=met, holds=holds)


def test_sentence_of_a_plan_that_holds_is_unchanged() -> None:
    assert with_failure(SENTENCE, [check(0.99, True), check(None, True)]) is SENTENCE


def test_worst_failure_is_named() -> None:
    sentence = english().render(with_failure(SENTENCE, [check(0.99, True), check(0.5, False), check(0.031, False)]))
    assert sentence.startswith(english().render(SENTENCE))
    assert "3.1%" in sentence
