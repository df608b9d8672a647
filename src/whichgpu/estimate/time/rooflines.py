"""Evidence on accelerators timed as shares of peak and bandwidth (TPU, Trainium, Inferentia, Gaudi): multipliers, tiers, ranges.

`tools/calibration/fit_rooflines.py` writes `data/rooflines.csv` and the parameters `roofline.*`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from whichgpu.base.bundled_data import data_rows, parse_record
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.terms import FIXED_STEP_SECONDS, TERMS

EVIDENCE_FILE = Path(__file__).parent / "data" / "rooflines.csv"
# The host starts one compiled graph per step: framework calls and gaps between kernels take no time of their own.
NO_TERMS = ("gap", "forward_calls", "backward_calls")
RooflineTier = Literal["gpu", "generation", "other", "none"]


class RooflineEvidence(msgspec.Struct, frozen=True):
    """Measured rows of an accelerator in one kind of step, and the 90% range of the errors if they are left out of the fit.

    Without rows, a chip with the same cores was measured, and the range is wider than that chip's.
    """

    family: str  # tpu, neuron, gaudi
    gpu: str
    step: str  # train, forward, prefill, decode
    rows: int
    left_out_error: float  # median of |measured / estimated - 1|
    low: float  # logs of measured over estimated time
    high: float
    sources: tuple[str, ...]


@cache
def roofline_evidence() -> tuple[RooflineEvidence, ...]:
    """Return what was measured on accelerators that are no GPUs: the rows of `data/rooflines.csv`."""
    return tuple(parse_record(RooflineEvidence, row) for row in data_rows(EVIDENCE_FILE))


def roofline_factors(family: str) -> list[float]:
    """Return the multiplier of each time term (TERMS) on a family of accelerators: 1, but for the host's terms."""
    step = parameters().get(f"roofline.step_seconds.{family}", FIXED_STEP_SECONDS) / FIXED_STEP_SECONDS
    return [0.0 if term in NO_TERMS else step if term == "step" else 1.0 for term in TERMS]


def roofline_tier(family: str, gpu: str, step: str) -> RooflineTier:
    """Return how near measurements of an accelerator are: this chip, one with the same cores, another of its family, none.

    >>> [roofline_tier("tpu", *one) for one in (("tpu-v5p", "train"), ("tpu-v6e", "train"), ("tpu-v5p", "decode"))]
    ['gpu', 'other', 'none']
    """
    if row := roofline_row(gpu, step):
        return "gpu" if row.rows else "generation"
    return "other" if any(row.family == family and row.step in _covering(step) for row in roofline_evidence()) else "none"


def roofline_row(gpu: str, step: str) -> RooflineEvidence | None:
    """Return the evidence on an accelerator in a kind of step; None if there is none, and for GPUs."""
    return next((row for row in roofline_evidence() if row.gpu == gpu and row.step in _covering(step)), None)


def _covering(step: str) -> tuple[str, ...]:
    """Return the kinds of step whose measurements count for one: decode steps count for a whole request (`generate`)."""
    return (step, "decode") if step == "generate" else (step,)


def roofline_sources(gpu: str) -> tuple[str, ...]:
    """Return the names of the sources with measurements of an accelerator; empty for GPUs."""
    return tuple(dict.fromkeys(name for row in roofline_evidence() if row.gpu == gpu for name in row.sources))
