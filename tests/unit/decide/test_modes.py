"""Modes of a service: one user, a team of people, a request rate."""

from __future__ import annotations

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.decide.modes import mode_of, team_rate, with_mode
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.workload import Workload

SERVE = Workload("serve", "llama-3.1-8b")


def test_service_without_rate_and_batch_is_for_one_user() -> None:
    workload, stated = with_mode(SERVE, Requirements(), frozenset())
    assert (mode_of(SERVE, Requirements()), workload.batch, workload.rate) == ("me", 1, None)
    assert "batch" in stated


def test_people_make_a_team_whose_rate_grows_with_them() -> None:
    workload, _ = with_mode(SERVE, Requirements(people=50), frozenset())
    assert mode_of(SERVE, Requirements(people=50)) == "team"
    assert workload.rate == team_rate(50) == 5 * team_rate(10)
    assert team_rate(None) == team_rate(10)


def test_rate_or_batch_make_a_service_and_stay_as_given() -> None:
    rated = Workload("serve", "llama-3.1-8b", rate=5.0)
    assert mode_of(rated, Requirements()) == "service"
    assert with_mode(rated, Requirements(), {"rate"})[0] == rated
    assert with_mode(SERVE, Requirements(mode="service"), frozenset())[0].rate == 1.0


@pytest.mark.parametrize(
    ("query", "stated"),
    [
        (Requirements(mode="me"), {"rate"}),
        (Requirements(mode="me", people=3), set[str]()),
        (Requirements(people=3), {"batch"}),
        (Requirements(mode="service", people=3), set[str]()),
    ],
)
def test_contradictions_are_errors(query: Requirements, stated: set[str]) -> None:
    with pytest.raises(UsageError) as caught:
        with_mode(SERVE, query, stated)
    assert caught.value.kind == "contradiction"


def test_runs_have_no_mode() -> None:
    run = Workload("train", "resnet50")
    assert mode_of(run, Requirements()) is None
    with pytest.raises(UsageError):
        with_mode(run, Requirements(mode="team"), frozenset())
