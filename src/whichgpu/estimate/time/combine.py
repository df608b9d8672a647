"""Combine time terms (seconds by class of operator and host work) and fitted multipliers into device, host and wall time."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.terms import DEVICE_TERMS, SEQUENCE_SECONDS, TERMS, TimeTerms

Array = np.ndarray

# Device and host run concurrently, so the longer one counts; if they are nearly equal they wait on each other a little. This is
# the exponent p of the smooth maximum (d^p + h^p)^(1/p).
OVERLAP_SHARPNESS = 6.0
_DEVICE = slice(0, len(DEVICE_TERMS))
_CALLS = slice(TERMS.index("forward_calls"), TERMS.index("backward_calls") + 1)
_SEQUENCES = TERMS.index("sequences")
_FIXED = slice(TERMS.index("step"), _SEQUENCES + 1)


class HostMode(NamedTuple):
    """Which parts of the host's time overlap with the device's; of two overlapping times the longer one counts."""

    launches: bool  # kernels are launched one by one: framework calls take host time
    overlaps: bool = False  # the work for each sequence is done during the step before


def host_mode(engine: str | None, year: int | None) -> HostMode:
    """Return whether an engine's host launches kernels one by one, and whether its work once per step overlaps the device's."""
    record = engine_record(engine, year)
    return HostMode(not record.captures_graphs or record.style == "serving", record.host.overlaps_device)


class StepSeconds(msgspec.Struct, frozen=True):
    """Seconds of a step by GPU and batch size, [gpus, batches]: wall time, and the time of the device and of the host."""

    wall: Array
    device: Array
    host: Array


def host_loop_seconds(engine: str | None, year: int | None, terms: TimeTerms) -> Array:
    """Return the seconds of a serving engine's own loop for a decode step; 0 for other steps and where it was not measured."""
    host = engine_record(engine, year).host
    sequences = terms.seconds[_SEQUENCES] / (SEQUENCE_SECONDS * max(host.sequence_work, 1e-30))
    seconds: Array = np.where(sequences > 0, host.loop + host.sequence_loop * sequences, 0.0)
    return seconds


def step_seconds(
    terms: TimeTerms, factors: Array, host: HostMode, host_speed: float = 1.0, loop: float | Array = 0.0
) -> StepSeconds:
    """Return a step's device, host and wall seconds from its time terms (seconds by class of operator and host work).

    `factors` are fitted multipliers, [terms, gpus]; `host_speed` is relative to the host of the measurements; `loop` is the
    seconds of the engine's own loop.
    """
    device, calls, fixed = device_host_and_fixed_seconds(terms, factors, host_speed)
    overlapped = terms.seconds[_SEQUENCES] * factors[_SEQUENCES][:, None] / host_speed if host.overlaps else 0.0 * fixed
    concurrent = (calls if host.launches else 0.0 * calls) + overlapped + loop / host_speed
    serial = fixed - overlapped
    return StepSeconds(soft_maximum(device, concurrent) + serial, device, concurrent + serial)


def device_host_and_fixed_seconds(terms: TimeTerms, factors: Array, host_speed: float = 1.0) -> tuple[Array, Array, Array]:
    """Return seconds, times the fitted `factors`: of the device, of the host's framework calls, of its work once per step."""
    corrected = terms.seconds * factors[:, :, None]
    device: Array = sum(np.maximum(corrected, terms.floors)[_DEVICE])  # In this order, however many GPUs and batches there are.
    calls = corrected[_CALLS].sum(axis=0) / host_speed
    fixed = corrected[_FIXED].sum(axis=0) / host_speed
    return device, calls, fixed


def soft_maximum(device: Array, host: Array) -> Array:
    """Return the wall seconds of device and host running concurrently: the larger, and slightly more if they are about equal."""
    p, largest = OVERLAP_SHARPNESS, np.maximum(np.maximum(device, host), 1e-30)
    wall: Array = largest * ((device / largest) ** p + (host / largest) ** p) ** (1 / p)
    return wall
