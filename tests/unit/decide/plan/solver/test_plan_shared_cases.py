"""Planning cases next to the checkout: every optimum, at every rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED
from whichgpu.decide.plan.profiles import read_profiles
from whichgpu.decide.plan.solver.solve import solve

CASES = SHARED / "cases"
NAMES = {"melange_s1": 1, "melange_s4": 4, "melange_s8": 8, "exact": None}


@pytest.fixture(scope="module")
def cases() -> Path:
    if not CASES.is_dir():
        pytest.skip(f"no planning cases at {CASES}")
    return CASES


def test_two_types(cases: Path) -> None:
    profiles = read_profiles(cases / "two_types.json")
    expected: dict[str, float] = json.loads((cases / "two_types.json").read_text())["expected"]
    for name, slices in (("one_slice", 1), ("four_slices", 4), ("continuous", None)):
        solution = solve(profiles.problem(None, 0.0, slices), gap=0.0)
        assert solution is not None
        assert solution.cost == pytest.approx(expected[name], abs=1e-6)
        assert solution.gap == pytest.approx(0.0, abs=1e-9)


def test_profiles_at_every_rate(cases: Path) -> None:
    rows: list[dict[str, Any]] = json.loads((cases / "expected.json").read_text())
    assert rows
    for row in rows:
        kind = row["case"].rpartition(" ")[2]
        profiles = read_profiles(cases / f"profiles_azure_{kind}.json")
        for name, slices in NAMES.items():
            solution = solve(profiles.problem(row["rate"], 0.0, slices), gap=0.0)
            assert solution is not None
            counts = dict(zip(profiles.prices, solution.counts[0].tolist(), strict=True))
            assert {**counts, "cost": pytest.approx(solution.cost)} == row[name], (row["case"], row["rate"], name)
        for gpu in profiles.prices:
            alone = solve(
                profiles.problem(row["rate"], 0.0, None, {other: 0.0 for other in profiles.prices if other != gpu}), gap=0.0
            )
            expected = row[f"only_{gpu}"]
            assert (alone is None) == (expected is None)
            assert alone is None or alone.cost == pytest.approx(expected["cost"])
