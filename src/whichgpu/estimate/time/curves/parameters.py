"""Fitted parameters of the operators' timing models, by name: the columns `name` and `value` of `data/parameters.csv`."""

from __future__ import annotations

import csv
import io
from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import read_data

PARAMETERS_FILE = Path(__file__).parent.parent / "data" / "parameters.csv"


@cache
def parameters() -> dict[str, float]:
    """Return the fitted parameters of the operators' timing models by name, in the units the table states."""
    rows = csv.reader(io.StringIO(read_data(PARAMETERS_FILE).decode("utf-8"), newline=""))
    next(rows)
    return {row[0]: float(row[1]) for row in rows if row[1]}
