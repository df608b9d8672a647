"""`docs/glossary.md` from its table: `python -m reference.glossary` writes it."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

TABLE = Path(__file__).with_name("glossary.csv")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


def page() -> str:
    """The page: a table of terms for each part."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    parts = ["# Glossary\n\nThe words of whichgpu's commands, answers and code.\n"]
    for part, terms in groupby(rows, key=lambda row: row["part"]):
        cells = "".join(f"| {row['term']} | {row['meaning']} |\n" for row in terms)
        parts.append(f"\n## {part}\n\n| term | meaning |\n|---|---|\n{cells}")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
