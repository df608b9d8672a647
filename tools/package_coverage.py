"""Test coverage of each package that computes: the end of `make coverage`.

Reads the recorded coverage, prints the share of lines and of branches of every package, then the modules below the required
share, and exits with 1 if a package is below it. Branches are counted alone: mixed with lines, as coverage totals them, they look
better.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import coverage
import msgspec

PACKAGES = ("base", "catalog", "workload", "estimate", "price", "decide")
MIN_PERCENT = 90
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/whichgpu")


class Tally(msgspec.Struct):
    """Counts of lines and branches, in all and executed."""

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
        """Percentage of lines executed; 100 if there are none."""
        return 100 * self.lines_run / self.lines if self.lines else 100.0

    @property
    def branch_percent(self) -> float:
        """Percentage of branches executed; 100 if there are none."""
        return 100 * self.branches_run / self.branches if self.branches else 100.0

    @property
    def is_sufficient(self) -> bool:
        """Whether both reach the required percentage."""
        return min(self.line_percent, self.branch_percent) >= MIN_PERCENT

    def row(self, name: str) -> str:
        """Line of the table."""
        lines = f"{self.line_percent:6.1f}% of {self.lines:>6,} lines"
        return f"{name:<44} {lines} {self.branch_percent:6.1f}% of {self.branches:>6,} branches"


def summaries() -> dict[Path, dict[str, int]]:
    """Counts of lines and branches of each module, by its path in the package."""
    recorded = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    recorded.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        recorded.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {(ROOT / name).relative_to(ROOT / PACKAGE): file["summary"] for name, file in files.items()}


def packages_and_modules(summaries_by_path: dict[Path, dict[str, int]]) -> tuple[dict[str, Tally], dict[str, Tally]]:
    """Tallies of the packages and of their modules."""
    packages = {name: Tally() for name in PACKAGES}
    modules: dict[str, Tally] = defaultdict(Tally)
    for path, summary in sorted(summaries_by_path.items()):
        if path.parts[0] in packages:
            packages[path.parts[0]].add(summary)
            modules[str(path)].add(summary)
    return packages, modules


def main() -> int:
    """Print the table; return 1 if a package falls short or none of its lines were counted."""
    packages, modules = packages_and_modules(summaries())
    for name, tally in packages.items():
        print(tally.row(name) + ("" if tally.is_sufficient else f"  below {MIN_PERCENT}%"))
    short = {name: tally for name, tally in modules.items() if not tally.is_sufficient}
    if short:
        print(f"\nmodules below {MIN_PERCENT}%:")
        for name, tally in sorted(short.items(), key=lambda one: one[1].branch_percent):
            print(tally.row(name))
    return 0 if all(tally.is_sufficient and tally.lines for tally in packages.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
