"""A measured result as a request to whichgpu with the time it took, or the reason why a published row is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Kind = Literal["train", "forward", "prefill", "decode", "generate", "serve", "op"]


# What stands where torchvision's networks leave out whole layers of single samples in training: that, nothing, or plain dropout.
Depth = Literal["", "kept", "dropout"]


class Reason(StrEnum):
    """Why a row is left out."""

    ERROR = "the run failed"
    NOT_A_TIME = "the metric is not a time"
    MAX_BATCH = "states the largest batch, not a speed"
    NO_PRECISION = "precision not stated"
    NO_BATCH = "batch not stated"
    NO_SEQUENCE = "sequence length not stated"
    UNKNOWN_NETWORK = "no table of this network"
    UNKNOWN_GPU = "GPU not in the catalog"
    POWER_CAPPED = "GPU run under a power cap"
    OTHER_ENGINE = "run by software that is none of our engines"
    LATENCY_BOUND = "served under a latency bound"
    OTHER_WORK = "the time covers more than the network"
    TWIN = "another metric of a run that is used"
    QUEUED = "not all of the batch fits at once"
    SUSPICIOUS = "contradicts itself or its neighbours"


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured time and the request that asks for it.

    `seconds` means what the reply's `time` means (one step, one forward, the whole batch's prefill, one decode step), except for
    `generate`, where it is the whole time of the batch from prompt to last token. For `op`, `request` holds the operator's sizes.
    """

    source: str
    gpu: str
    request: Mapping[str, Any]
    seconds: float
    kind: Kind
    trust: str
    family: str
    row: int
    host_bound: bool | None = None
    copied_bytes: float = 0.0  # copied from pageable host memory within the measured time
    throughput_only: bool = False  # a rate over many batches in flight: no single batch took this long
    depth: Depth = ""
    apart: bool = False  # the clock waited for the device after the forward pass: host and device overlap within passes only
    note: str = ""
