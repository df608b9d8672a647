"""How much of each room that computes the tests have run: the end of `make coverage`.

Reads what coverage recorded, prints the share of lines and of branches for every room, then the modules below what is asked of a
room, and exits with 1 where a room is. Branches are counted alone: mixed with lines, as coverage totals them, they look better.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import coverage
import msgspec

ROOMS = ("base", "catalog", "workload", "estimate", "price", "decide")
LEAST_PERCENT = 90
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/whichgpu")


class Tally(msgspec.Struct):
    """Counts of lines and branches, and of those that were run."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def add(self, summary: dict[str, int]) -> None:
        """Add the counts of another file."""
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_run += summary["covered_branches"]

    @property
    def line_percent(self) -> float:
        """Share of lines run; 1 if there are none."""
        return 100 * self.lines_run / self.lines if self.lines else 100.0

    @property
    def branch_percent(self) -> float:
        """Share of branches run; 1 if there are none."""
        return 100 * self.branches_run / self.branches if self.branches else 100.0

    @property
    def enough(self) -> bool:
        """Whether both reach the required share."""
        return min(self.line_percent, self.branch_percent) >= LEAST_PERCENT

    def row(self, name: str) -> str:
        """Line of the table."""
        lines = f"{self.line_percent:6.1f}% of {self.lines:>6,} lines"
        return f"{name:<44} {lines} {self.branch_percent:6.1f}% of {self.branches:>6,} branches"


def summaries() -> dict[Path, dict[str, int]]:
    """What coverage counts in each module, by its path in the package."""
    recorded = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    recorded.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        recorded.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {(ROOT / name).relative_to(ROOT / PACKAGE): file["summary"] for name, file in files.items()}


def rooms_and_modules(found: dict[Path, dict[str, int]]) -> tuple[dict[str, Tally], dict[str, Tally]]:
    """The tallies of the rooms, all of them, and of the modules in them."""
    rooms = {name: Tally() for name in ROOMS}
    modules: dict[str, Tally] = defaultdict(Tally)
    for path, summary in sorted(found.items()):
        if path.parts[0] in rooms:
            rooms[path.parts[0]].add(summary)
            modules[str(path)].add(summary)
    return rooms, modules


def main() -> int:
    """Print the table; return 1 if a room falls short or none of its lines were counted."""
    rooms, modules = rooms_and_modules(summaries())
    for name, tally in rooms.items():
        print(tally.row(name) + ("" if tally.enough else f"  below {LEAST_PERCENT}%"))
    short = {name: tally for name, tally in modules.items() if not tally.enough}
    if short:
        print(f"\nmodules below {LEAST_PERCENT}%:")
        for name, tally in sorted(short.items(), key=lambda one: one[1].branch_percent):
            print(tally.row(name))
    return 0 if all(tally.enough and tally.lines for tally in rooms.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
