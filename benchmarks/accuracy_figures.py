"""Out-of-sample accuracy in a few figures, which tests compare with the committed ones: `python -m benchmarks.accuracy_figures`.

Writes `tests/truth/accuracy_figures.csv` from the stored predictions of fits that never saw a row's model, GPU or source. Run it
after a `make refit` that made the figures better; worse ones need a reason in the commit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.left_out_rows import LeftOutRow, left_out_rows
from whichgpu.estimate.time.left_out import FOLDS

FILE = Path(__file__).resolve().parent.parent / "tests" / "truth" / "accuracy_figures.csv"
MIN_ROWS = 30  # Groups with fewer rows have no figures: one row would change them.
GROUPS: Mapping[str, Callable[[LeftOutRow], str]] = {
    "all": lambda _: "",
    "gpus": lambda one: "several" if one.several_gpus else "one",
    "task": lambda one: str(one.row.request.get("task", "")),
    "structure": lambda one: one.structure,
    "engine": lambda one: str(one.row.request.get("engine", "")),
}


class AccuracyFigure(msgspec.Struct, frozen=True):
    """Errors of predictions that left out a row's model, GPU or source, and the share of rows inside their 90% range."""

    left_out: str
    by: str
    group: str
    rows: int
    median: float  # of |predicted / measured - 1|
    p90: float
    inside: float


def figures(rows: Sequence[LeftOutRow]) -> Iterator[AccuracyFigure]:
    """Yield the figures of each group of rows by what the fit left out."""
    for fold in FOLDS:
        for by, key in GROUPS.items():
            groups: dict[str, list[LeftOutRow]] = {}
            for one in rows:
                if fold in one.errors:
                    groups.setdefault(key(one), []).append(one)
            for group, members in sorted(groups.items()):
                if len(members) >= MIN_ROWS:
                    yield _figure(fold, by, group, members)


def _figure(fold: str, by: str, group: str, rows: Sequence[LeftOutRow]) -> AccuracyFigure:
    errors = np.abs(np.exp([one.errors[fold] for one in rows]) - 1)
    inside = float(np.mean([one.covered(fold) for one in rows]))
    median, p90 = (float(np.quantile(errors, share)) for share in (0.5, 0.9))
    return AccuracyFigure(fold, by, group, len(rows), round(median, 4), round(p90, 4), round(inside, 4))


def committed() -> list[AccuracyFigure]:
    """Return the committed figures."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [msgspec.convert(row, AccuracyFigure, strict=False) for row in csv.DictReader(file)]


def main() -> None:
    """Write the figures of the stored predictions."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(AccuracyFigure.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(one) for one in figures(left_out_rows()))


if __name__ == "__main__":
    main()
