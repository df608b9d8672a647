"""Predicted and measured times in pairs: what fits that left out a row's GPU or model predict for it, beside the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import log
from typing import Literal

import msgspec
import numpy as np

from whichgpu.catalog.evidence_search.index import evidence_index
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.left_out import left_out_table

OWN_SOURCES = "h200"  # Beginning of the ids of our own measurements, all on one GPU: a fit without it would have little left.
OWN_SOURCE_ID = "speed-h200"  # Id of these in the catalog's table of sources.
LANGUAGE = ("decoder", "MoE", "MLA", "encoder", "encoder-decoder")  # Kinds of models that process text.
KEYS = ("gpu", "maker", "gpus", "task", "source", "engine", "model", "precision", "field")  # What errors are grouped by.
Fold = Literal["model", "gpu", "source"]  # What a fit left out together with the row.
KINDS = {"serve": "generate"}  # Kinds of measured times that count as another.


class AccuracyPair(msgspec.Struct, frozen=True):
    """Measured seconds of a step, and their prediction by a fit that left out its GPU's data (on our H200: its model's data).

    `error` is that of the prediction as a share of the measured time, `inside` whether the measured time is in the 90% range.
    """

    source: str
    gpu: str
    task: str
    field: str  # vision or language
    model: str
    engine: str
    precision: str
    year: int
    gpus: int
    batch: int | None
    seq_in: int | None
    seq_out: int | None
    image: int | None
    measured: float
    predicted: float
    low: float
    high: float
    error: float
    inside: bool

    @property
    def maker(self) -> str:
        """Maker of the GPU."""
        return _makers()[self.gpu]

    @property
    def distance(self) -> float:
        """Absolute log error of the prediction: half the measured time counts the same as double."""
        return abs(log(self.predicted / self.measured))


PAIR_COLUMNS = AccuracyPair.__struct_fields__


@cache
def _makers() -> Mapping[str, str]:
    return {gpu.id: gpu.vendor for gpu in Catalog().gpus}


@cache
def accuracy_pairs(left_out: Fold | None = None) -> tuple[AccuracyPair, ...]:
    """Return all pairs of measured step times and their predictions by fits that left out the model, the GPU or the source.

    By default it is the GPU; on our own H200, which has most of the rows of its kind, the model.
    """
    index, table = evidence_index(), left_out_table()
    sources = index.words("source")
    own = sources.rows_where([left_out is None and word.startswith(OWN_SOURCES) for word in sources.words])
    other = left_out or "gpu"
    logs, lows, highs = (np.where(own, table.column(f"model{end}"), table.column(other + end)) for end in ("", "_low", "_high"))
    rows = np.flatnonzero(np.isfinite(logs) & np.isfinite(lows) & np.isfinite(highs))
    return tuple(_pair(row, *(float(column[row]) for column in (logs, lows, highs))) for row in rows.tolist())


def _pair(row: int, log_error: float, low: float, high: float) -> AccuracyPair:
    index = evidence_index()
    words = {name: index.words(name).of(row) for name in ("source", "gpu", "kind", "model", "engine", "precision", "structure")}
    numbers = {name: index.number(name, row) for name in ("batch", "seq_in", "seq_out", "image")}
    measured = float(index.numbers("seconds")[row])
    predicted = measured * float(np.exp(log_error))
    measured, predicted, *ends = (
        float(f"{seconds:.4g}") for seconds in (measured, predicted, predicted * np.exp(low), predicted * np.exp(high))
    )
    source = words["source"]
    return AccuracyPair(
        source=OWN_SOURCE_ID if source.startswith(OWN_SOURCES) else f"results-{source.lower()}",
        gpu=words["gpu"],
        task=KINDS.get(words["kind"], words["kind"]),
        field="language" if words["structure"] in LANGUAGE else "vision",
        model=words["model"],
        engine=words["engine"],
        precision=words["precision"],
        year=index.number("year", row) or 0,
        gpus=index.number("gpus", row) or 1,
        **numbers,
        measured=measured,
        predicted=predicted,
        low=ends[0],
        high=ends[1],
        error=round(predicted / measured - 1, 4),
        inside=ends[0] <= measured <= ends[1],
    )
