"""What `make coverage` says of a room: shares of lines and of branches apart, and no room passes unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
import rooms_covered
from rooms_covered import ROOMS, Tally, rooms_and_modules


def summary(lines: int, lines_run: int, branches: int, branches_run: int) -> dict[str, int]:
    return {
        "num_statements": lines,
        "covered_lines": lines_run,
        "num_branches": branches,
        "covered_branches": branches_run,
    }


WHOLE = {Path(room) / "one.py": summary(100, 100, 10, 10) for room in ROOMS}


def test_branches_are_not_hidden_among_lines() -> None:
    tally = Tally()
    tally.add(summary(1000, 1000, 10, 8))
    assert tally.branch_percent == 80.0
    assert not tally.enough
    assert Tally(1000, 899, 10, 10).enough is False
    assert Tally(1000, 900, 10, 9).enough is True


def test_a_rooms_modules_are_counted_together_and_those_of_others_are_not() -> None:
    found = {
        Path("base/a.py"): summary(10, 10, 4, 4),
        Path("base/deep/b.py"): summary(10, 5, 4, 1),
        Path("surface/c.py"): summary(10, 0, 4, 0),
    }
    rooms, modules = rooms_and_modules(found)
    assert (rooms["base"].line_percent, rooms["base"].branch_percent) == (75.0, 62.5)
    assert set(rooms) == set(ROOMS)
    assert set(modules) == {"base/a.py", "base/deep/b.py"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({Path("price/two.py"): summary(10, 10, 20, 10)}, 1),  # 20 of 30
        ({Path("price/two.py"): summary(10, 10, 20, 17)}, 0),  # 27 of 30: just enough
        ({Path("price/one.py"): summary(0, 0, 0, 0)}, 1),  # nothing of it was seen
    ],
)
def test_it_fails_where_a_room_falls_short_or_was_not_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: dict[Path, dict[str, int]], code: int
) -> None:
    monkeypatch.setattr(rooms_covered, "summaries", lambda: WHOLE | change)
    assert rooms_covered.main() == code
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[: len(ROOMS)]] == list(ROOMS)
