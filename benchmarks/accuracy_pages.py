"""Write the pages of left-out errors in docs/evidence from the predictions that `make refit` stored: seconds.

PYTHONPATH=src:tools python -m benchmarks.accuracy_pages   # a part of make refit
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import accuracy_many, accuracy_served, accuracy_speed, accuracy_worst
from benchmarks.left_out_rows import LeftOutRow, left_out_rows

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "evidence"
PAGES: Mapping[str, Callable[[Sequence[LeftOutRow]], Iterator[str]]] = {
    "accuracy.md": accuracy_speed.lines,
    "accuracy-many.md": accuracy_many.lines,
    "accuracy-served.md": accuracy_served.lines,
    "worst.md": accuracy_worst.lines,
}


def main() -> int:
    """Write the pages and name those that changed."""
    rows = left_out_rows()
    for name, lines in PAGES.items():
        page, text = FOLDER / name, "\n".join(lines(rows)).rstrip() + "\n"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
            print(f"docs/evidence/{name} changed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
