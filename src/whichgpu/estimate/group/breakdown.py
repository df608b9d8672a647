"""What a group's step is made of, and how the parts come together: work, messages in its way, messages beside it, waiting.

Every array is of one shape; the fit and the product put them together by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.estimate.time.combine import soft_maximum
from whichgpu.estimate.time.terms import FORWARD_CALL_SECONDS

if TYPE_CHECKING:
    from whichgpu.estimate.group.collectives import Array

# Terms that measurements may correct, by the names the fit uses.
TERMS = ("latency", "volume", "beside", "straggle", "launch", "step", "copies", "threads")
# What each is worth before correction.
CONTENTION = 0.1  # seconds of work lost for each second of messages beside it: they take SMs and bandwidth
STRAGGLE = 0.015  # spread of the time that like GPUs take for the same work, as a share of it
LAUNCH = FORWARD_CALL_SECONDS  # seconds of the host for a call of an engine that captures no graph
STEP = 1e-4  # seconds in which several processes agree on a step
COPY = 90e-6  # seconds in which one process of threads makes the copies of a parameter tensor
# Shares of a copy's framework calls that wait for the others' threads: the interpreter runs one at a time, autograd in its own.
THREADS_FORWARD, THREADS_BACKWARD = 1.0, 0.2
# Share of a pass that messages beside it may use: the first bucket must be full, the first layer's weights must have come.
WINDOW = 0.9


@dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of one rank's step; counts where said. `device`, `calls` and `once` are of the work alone, corrected."""

    device: Array
    calls: Array  # of the host, where it launches kernels one by one
    forward_calls: Array  # of them
    once: Array
    forward: Array  # of device
    backward: Array
    attention: Array
    open_latency: Array  # messages the work waits for
    open_volume: Array
    backward_latency: Array  # messages beside the backward pass
    backward_volume: Array
    backward_tail: Array  # share of them that comes after its end
    forward_latency: Array
    forward_volume: Array
    attention_latency: Array
    attention_volume: Array
    launches: Array  # calls of an engine without graphs, times what PyTorch's cost, over the host's speed: a count
    members: Array  # GPUs that wait for one another: a count
    bubble: Array  # times the work a pipeline takes from first to last
    copied: Array  # parameter tensors copied by one process of threads: a count
    threads: Array  # copies driven by threads of one process: a count, 1 where each has its process


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Seconds of a step and what they are spent on; all but `hidden` add up to `wall`."""

    wall: Array
    work: Array  # the device's, as one GPU alone would need for its share
    communication: Array  # waited for
    bubble: Array
    waiting: Array  # for slower GPUs, the host and one another's processes
    hidden: Array  # communication beside the work
    host: Array


def combine_parts(parts: StepParts, factors: Mapping[str, Array | float], straggling: bool = True) -> StepBreakdown:
    """The step, each term times its factor."""

    def spoken(latency: Array, volume: Array) -> Array:
        return latency * factors["latency"] + volume * factors["volume"]

    waited = spoken(parts.open_latency, parts.open_volume)
    hidden = np.zeros_like(waited)
    for latency, volume, work, tail in (
        (parts.backward_latency, parts.backward_volume, parts.backward, parts.backward_tail),
        (parts.forward_latency, parts.forward_volume, parts.forward, 0.0),
        (parts.attention_latency, parts.attention_volume, parts.attention, 0.0),
    ):
        said = spoken(latency, volume)
        beside = np.minimum(said * (1.0 - tail), WINDOW * work)
        waited = waited + said - beside
        hidden = hidden + beside
    slowed = CONTENTION * factors["beside"] * hidden
    behind = STRAGGLE * factors["straggle"] * straggler_deviations(parts.members) * parts.device if straggling else 0.0
    filled = parts.device + slowed + behind + waited
    busy = filled * parts.bubble
    queued = THREADS_FORWARD * parts.forward_calls + THREADS_BACKWARD * (parts.calls - parts.forward_calls)
    threaded = queued * (parts.threads - 1.0) * factors["threads"]
    host = parts.calls + threaded + parts.launches * LAUNCH * factors["launch"]
    wall = np.where(host > 0, soft_maximum(busy, host), busy)
    agreed = np.where(np.maximum(parts.members, parts.threads) > 1, STEP * factors["step"], 0.0)
    copying = parts.copied * COPY * factors["copies"]  # before any copy of the model can begin
    total = wall + parts.once + agreed + copying
    bubble = filled * (parts.bubble - 1.0)
    communication = waited + slowed
    return StepBreakdown(total, parts.device, communication, bubble, total - parts.device - communication - bubble, hidden, host)


SIZES = np.log([2.0**power for power in range(15)])
# Blom's approximation of the largest of n normal numbers (Statistical Estimates and Transformed Beta-Variables, 1958).
SLOWEST = np.array([NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) for n in (2.0**power for power in range(15))])


def straggler_deviations(members: Array) -> Array:
    """By how many standard deviations the slowest of so many is behind the mean.

    >>> straggler_deviations(np.array([1.0, 2.0, 8.0, 128.0])).round(2).tolist()
    [0.0, 0.59, 1.43, 2.58]
    """
    told: Array = np.interp(np.log(members), SIZES, SLOWEST)
    return told


def stack_parts(parts: list[StepParts]) -> StepParts:
    """Parts of single steps, [1, 1] each, as one of arrays over steps."""
    return StepParts(*(np.array([getattr(one, field.name).item() for one in parts]) for field in fields(StepParts)))
