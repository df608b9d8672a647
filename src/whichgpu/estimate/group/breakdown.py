"""Parts of a multi-GPU step and how they add up: work, exposed communication, overlapped communication, waiting.

All arrays of a step have the same shape; the fit and the estimates combine them with the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from whichgpu.estimate.time.combine import soft_maximum
from whichgpu.estimate.time.terms import FORWARD_CALL_SECONDS

if TYPE_CHECKING:
    from whichgpu.estimate.group.collectives import Array

# Names of the fitted multipliers of a multi-GPU step; each multiplies one kind of its seconds, such as communication latency.
TERMS = ("latency", "volume", "beside", "straggle", "launch", "step", "copies", "threads")
# The constants below are assumed; the fitted multipliers (TERMS) correct them.
CONTENTION = 0.1  # seconds of work lost per second of overlapped communication, which uses SMs and memory bandwidth
STRAGGLE = 0.015  # standard deviation of the seconds equal GPUs take for the same work, as a share of those seconds
LAUNCH_SECONDS = FORWARD_CALL_SECONDS  # host seconds per framework call of an engine without CUDA graphs
SYNC_SECONDS = 1e-4  # seconds that several processes take to synchronise once per step
TENSOR_COPY_SECONDS = 90e-6  # seconds that `DataParallel` threads take to copy one parameter tensor
# Shares of a replica's forward and backward calls that wait for other replicas' threads (Python's lock, autograd's threads).
FORWARD_CALLS_SERIAL, BACKWARD_CALLS_SERIAL = 1.0, 0.2
# Share of a pass that can overlap communication: the first bucket must fill and the first layer's weights must arrive.
OVERLAP_WINDOW = 0.9
# Share of tensor-parallel communication that no GEMM overlaps: the first of four chunks (Transformer Engine's default).
FIRST_CHUNK = 0.25


class StepParts(msgspec.Struct, frozen=True):
    """Parts that make up the wall time of one rank's step: seconds, unless a field says that it is a count, share or ratio.

    `device`, `calls` and `once` contain no communication and are already multiplied by the fitted single-GPU corrections.
    """

    device: Array  # seconds in which the GPU runs kernels
    calls: Array  # host seconds that overlap `device`: framework calls that launch kernels one by one
    forward_calls: Array  # part of `calls` in the forward pass
    once: Array  # host seconds spent once per step while the GPU is idle
    forward: Array  # device seconds of the forward pass, part of `device`
    backward: Array  # device seconds of the backward pass that gradient communication can overlap
    attention: Array  # device seconds of attention, which context-parallel sends can overlap
    exposed_latency: Array  # latency of communication that the work waits for
    exposed_volume: Array  # transfer time of communication that the work waits for
    backward_latency: Array  # latency of communication overlapped with the backward pass
    backward_volume: Array  # transfer time of communication overlapped with the backward pass
    backward_tail: Array  # share of the communication of gradients that starts after the backward pass has ended
    forward_latency: Array  # latency of communication overlapped with the forward pass
    forward_volume: Array  # transfer time of communication overlapped with the forward pass
    attention_latency: Array  # latency of communication overlapped with attention
    attention_volume: Array  # transfer time of communication overlapped with attention
    layers_latency: Array  # latency of tensor-parallel communication that overlaps, in chunks, the GEMMs before or after it
    layers_volume: Array  # transfer time of such communication
    launches: Array  # framework calls of an engine without CUDA graphs, in calls of PyTorch on the reference host: a count
    ranks: Array  # GPUs that wait for one another: a count
    synchronised: Array  # processes or threads that the host synchronises once per step: a count
    pipeline: Array  # ratio of the pipeline's wall time to the work of one stage
    copied_tensors: Array  # parameter tensors copied by `DataParallel` threads: a count
    threads: Array  # replicas driven by threads of one process: a count, 1 if each has its process


class StepBreakdown(msgspec.Struct, frozen=True):
    """Seconds of a step by what they are spent on; all but `hidden` and `host` add up to `wall`."""

    wall: Array
    work: Array  # device seconds that one GPU alone would need for its share of the step
    communication: Array  # seconds of communication not overlapped with work
    bubble: Array  # seconds in which pipeline stages idle
    waiting: Array  # seconds of waiting for slower GPUs, the host and other processes
    hidden: Array  # communication overlapped with work
    host: Array  # host seconds that overlap the device


def combine_parts(parts: StepParts, factors: Mapping[str, Array | float]) -> StepBreakdown:
    """Return the wall seconds of a step and what they are spent on; `factors` are the fitted multipliers by name in TERMS."""

    def communication(latency: Array, volume: Array) -> Array:
        return latency * factors["latency"] + volume * factors["volume"]

    exposed = communication(parts.exposed_latency, parts.exposed_volume)
    hidden = np.zeros_like(exposed)
    for latency, volume, work, tail in (
        (parts.backward_latency, parts.backward_volume, parts.backward, parts.backward_tail),
        (parts.forward_latency, parts.forward_volume, parts.forward, 0.0),
        (parts.attention_latency, parts.attention_volume, parts.attention, 0.0),
        (parts.layers_latency, parts.layers_volume, parts.device, FIRST_CHUNK),
    ):
        seconds = communication(latency, volume)
        overlapped = np.minimum(seconds * (1.0 - tail), OVERLAP_WINDOW * work)
        exposed = exposed + seconds - overlapped
        hidden = hidden + overlapped
    contention = CONTENTION * factors["beside"] * hidden
    straggling = STRAGGLE * factors["straggle"] * straggler_deviations(parts.ranks) * parts.device
    stage = parts.device + contention + straggling + exposed
    serial_calls = FORWARD_CALLS_SERIAL * parts.forward_calls + BACKWARD_CALLS_SERIAL * (parts.calls - parts.forward_calls)
    thread_waits = serial_calls * (parts.threads - 1.0) * factors["threads"]
    host = parts.calls + thread_waits + parts.launches * LAUNCH_SECONDS * factors["launch"]
    device = stage * parts.pipeline
    wall = np.where(host > 0, soft_maximum(device, host), device)
    sync = np.where(parts.synchronised > 1, SYNC_SECONDS * factors["step"], 0.0)
    copying = parts.copied_tensors * TENSOR_COPY_SECONDS * factors["copies"]  # Tensors are copied before any replica can start.
    total = wall + parts.once + sync + copying
    bubble = stage * (parts.pipeline - 1.0)
    waited = exposed + contention
    return StepBreakdown(total, parts.device, waited, bubble, total - parts.device - waited - bubble, hidden, host)


_RANKS = [2.0**power for power in range(15)]
_LOG_RANKS = np.log(_RANKS)
# Expected largest of n standard normal numbers, by Blom (Statistical Estimates and Transformed Beta-Variables, 1958).
_DEVIATIONS = [NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) for n in _RANKS]


def straggler_deviations(ranks: Array) -> Array:
    """Return how many standard deviations the slowest of `ranks` equal ranks is behind the mean.

    >>> straggler_deviations(np.array([1.0, 2.0, 8.0, 128.0])).round(2).tolist()
    [0.0, 0.59, 1.43, 2.58]
    """
    deviations: Array = np.interp(np.log(ranks), _LOG_RANKS, _DEVIATIONS)
    return deviations


def stack_parts(parts: list[StepParts]) -> StepParts:
    """Return one `StepParts` whose arrays run over steps, made from the parts of single steps (arrays of shape [1, 1])."""
    return StepParts(*(np.array([getattr(one, name).item() for one in parts]) for name in StepParts.__struct_fields__))
