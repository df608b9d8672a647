"""Predicted and measured times in pairs, written by `python -m benchmarks.accuracy_pairs`: the evidence of the accuracy page."""

from __future__ import annotations

from functools import cache
from math import log
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.base.bundled_data import data_rows

PAIRS_FILE = Path(__file__).parent / "data" / "pairs.csv"


class AccuracyPair(msgspec.Struct, frozen=True):
    """Measured seconds of a step, and their prediction by a fit that left out its GPU's data (on our H200: its model's data)."""

    source: str
    gpu: str
    task: str
    field: str  # vision or language
    model: str
    engine: str
    precision: str
    year: int
    batch: int | None
    seq_in: int | None
    seq_out: int | None
    image: int | None
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Error of the prediction as a share of the measured time (signed)."""
        return self.predicted / self.measured - 1

    @property
    def distance(self) -> float:
        """Absolute log error of the prediction: half the measured time counts the same as double."""
        return abs(log(self.predicted / self.measured))

    @property
    def inside(self) -> bool:
        """Whether the measured time lies within the predicted range."""
        return self.low <= self.measured <= self.high


PAIR_COLUMNS = AccuracyPair.__struct_fields__
_INTEGER_COLUMNS = ("year", "batch", "seq_in", "seq_out", "image")
_SECONDS_COLUMNS = ("measured", "predicted", "low", "high")


@cache
def accuracy_pairs() -> tuple[AccuracyPair, ...]:
    """Return all pairs of measured step times and their predictions by fits that left out the GPU in question."""
    return tuple(_pair(row) for row in data_rows(PAIRS_FILE))


def _pair(row: dict[str, str]) -> AccuracyPair:
    cells: dict[str, Any] = dict(row)
    cells |= {name: int(float(row[name])) if row[name] else None for name in _INTEGER_COLUMNS}
    return AccuracyPair(**cells | {name: float(row[name]) for name in _SECONDS_COLUMNS})
