"""`make coverage`: lines and branches of each package are counted apart, and no package passes without counted lines."""

from __future__ import annotations

from pathlib import Path

import package_coverage
import pytest
from package_coverage import PACKAGES, Tally, packages_and_modules


def summary(lines: int, lines_run: int, branches: int, branches_run: int) -> dict[str, int]:
    return {
        "num_statements": lines,
        "covered_lines": lines_run,
        "num_branches": branches,
        "covered_branches": branches_run,
    }


FULL_COVERAGE = {Path(package) / "one.py": summary(100, 100, 10, 10) for package in PACKAGES}


def test_branches_are_not_hidden_among_lines() -> None:
    tally = Tally()
    tally.add(summary(1000, 1000, 10, 8))
    assert tally.branch_percent == 80.0
    assert not tally.is_sufficient
    assert Tally(1000, 899, 10, 10).is_sufficient is False
    assert Tally(1000, 900, 10, 9).is_sufficient is True


def test_modules_are_counted_in_their_own_package() -> None:
    summaries = {
        Path("base/a.py"): summary(10, 10, 4, 4),
        Path("base/deep/b.py"): summary(10, 5, 4, 1),
        Path("surface/c.py"): summary(10, 0, 4, 0),
    }
    packages, modules = packages_and_modules(summaries)
    assert (packages["base"].line_percent, packages["base"].branch_percent) == (75.0, 62.5)
    assert set(packages) == set(PACKAGES)
    assert set(modules) == {"base/a.py", "base/deep/b.py"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({Path("price/two.py"): summary(10, 10, 20, 10)}, 1),  # 20 of 30
        ({Path("price/two.py"): summary(10, 10, 20, 17)}, 0),  # 27 of 30: just sufficient
        ({Path("price/one.py"): summary(0, 0, 0, 0)}, 1),  # no line of it was counted
    ],
)
def test_fails_if_a_package_falls_short_or_was_not_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: dict[Path, dict[str, int]], code: int
) -> None:
    monkeypatch.setattr(package_coverage, "summaries", lambda: FULL_COVERAGE | change)
    assert package_coverage.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(PACKAGES)]] == list(PACKAGES)
