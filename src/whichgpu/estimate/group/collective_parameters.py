"""Parameters of collectives, by name: the columns `name` and `value` of `data/parameters.csv`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import data_rows

PARAMETERS_FILE = Path(__file__).parent / "data" / "parameters.csv"
PROTOCOLS = ("ll", "ll128", "simple")  # NCCL's protocols, as the parameters name them


@cache
def collective_parameters() -> Mapping[str, float]:
    """Return latencies, achieved bandwidth shares and size limits of collectives by name, in the units of `parameters.csv`."""
    return {row["name"]: float(row["value"]) for row in data_rows(PARAMETERS_FILE)}
