"""Reasons why a published row is not used as evidence."""

from __future__ import annotations

from enum import StrEnum


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
    SPECULATIVE = "speculative decoding, or not stated whether"
    TWO_VALUES = "two values over 30% apart for one setting"
    DISAGGREGATED = "prefill and decode on separate GPUs"
    BURST = "all prompts at once: ramp and tail of the whole run are in it"
    NO_LAYOUT = "number of GPUs or layout not stated"
    NO_GRAPHS = "the engine ran without CUDA graphs"
    BELOW_FLOOR = "faster than its bytes allow: the stated concurrency never ran"
    OTHER_BUILD = "a faster or newer build, driver or power profile of the same run is used"
    THINNED = "lies between two lengths of the same run that are used"
    LOW_TRUST = "reported with low trust: one PCIe lane, hosts not stated"
    INEXPRESSIBLE = "the layout cannot be stated in a request"
