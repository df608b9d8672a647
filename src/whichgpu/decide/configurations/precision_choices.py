"""Precisions that a model commonly ships in (`data/precision_choices.csv`), and those that gain something on a GPU.

At each level of quality a GPU has one choice: the first of the table that its engine runs and its units compute in.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.base.bundled_data import data_rows, parse_record
from whichgpu.catalog.engines.engine import Engine
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.constraints import QUALITIES, QUALITY_RANK, Quality
from whichgpu.estimate.time.fallbacks import computes_fast
from whichgpu.workload.precisions import PRECISION_BY_NAME

MIN_GAIN = 0.75  # A precision is tried if its weights have at most this share of the bits of the model's own (assumed).
TABLE = Path(__file__).parent.parent / "data" / "precision_choices.csv"


class PrecisionChoice(msgspec.Struct, frozen=True):
    """A precision in which quantised checkpoints are common, with the quality it keeps and where it is supported."""

    precision: str
    quality: str
    vendors: tuple[str, ...]  # vendors on whose GPUs serving engines run it; empty for all
    since: str  # day of the first release of an engine that runs it


@cache
def precision_choices() -> tuple[PrecisionChoice, ...]:
    """Return the rows of the table, in the order of preference within each level of quality."""
    return tuple(parse_record(PrecisionChoice, row) for row in data_rows(TABLE))


def quality_of(precision: str) -> str:
    """Return the level of quality a precision keeps; one that the table does not list is the model's own, so lossless.

    >>> quality_of("fp8"), quality_of("int4"), quality_of("bf16")
    ('near-lossless', 'any', 'lossless')
    """
    return next((one.quality for one in precision_choices() if one.precision == precision), "lossless")


def precisions_on(request: WorkloadRequest, gpu: Gpu, engine: Engine | None, day: date, quality: Quality) -> dict[str, str]:
    """Return the level of quality of each precision worth trying on a GPU, the model's own precision first.

    Levels up to the one after `quality` are tried, so that an answer can name the next saving. A precision the user gave, and
    that of a model published in 4 bits, is the only one.
    """
    own = request.precision_on(gpu)
    choices = {own: "lossless"}
    workload = request.workload
    generates = workload.generating and request.shape.is_generative
    if "precision" in request.stated or not generates or engine is None:
        return choices
    until = day if workload.year is None else min(day, date(workload.year, 12, 31))  # An engine of that year runs no later one.
    tried = QUALITIES[: QUALITY_RANK[quality] + 2]
    for one in precision_choices():
        gains = _bits(one.precision) < MIN_GAIN * _bits(own) and one.quality in tried and one.quality not in choices.values()
        supported = one.precision in engine.precisions and (not one.vendors or gpu.vendor in one.vendors)
        if gains and supported and one.since <= until.isoformat() and computes_fast(gpu, one.precision):
            choices[one.precision] = one.quality
    return choices


def _bits(precision: str) -> float:
    """Return the average bits of one weight of a linear layer; GGUF types by the block of most of their matrices."""
    record = PRECISION_BY_NAME[precision]
    if record.block is not None:
        return record.block.bits
    from whichgpu.workload.precisions import tensor_types

    return tensor_types()[record.tensor_type].block.bits
