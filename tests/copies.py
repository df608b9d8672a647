"""Copies of the bundled tables that tests may modify."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

from whichgpu.catalog.schema import DATA_DIR

Wanted = Callable[[dict[str, str]], bool]


def some_prices(row: dict[str, str]) -> bool:
    """One machine's, and those that explained.csv speaks of with what they are compared with."""
    return row["instance"] == "p4d.24xlarge" or (row["provider"] == "shadeform" and "L40S" in row["instance"])


def copy_tables(folder: Path, selects: Wanted = some_prices) -> Path:
    """All tables; of the prices, which outnumber everything else and take a second to check, only those wanted."""
    shutil.copytree(DATA_DIR, folder)
    path = folder / "prices.csv"
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows, names = list(reader), list(reader.fieldnames or ())
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if selects(row))
    return folder
