"""From corrected terms to seconds: the device's work, the host's calls, and what a clock on the wall shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichgpu.estimate.time.terms import DEVICE_TERMS, HOST_TERMS, TERMS, TimeTerms

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

# Device and host run side by side, so the longer one shows; near equality they wait on each other a little. The sharpness of
# that maximum: (d^p + h^p)^(1/p).
OVERLAP_SHARPNESS = 6.0
_DEVICE = slice(0, len(DEVICE_TERMS))


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of a step, [gpus, batches]."""

    wall: Array
    device: Array
    host: Array


def step_seconds(terms: TimeTerms, factors: Array, eager: bool, host_speed: float = 1.0) -> StepSeconds:
    """Corrected seconds. `factors` is [terms, gpus]; `host_speed` is of the host against the one measured with."""
    device, host, once = device_host_and_fixed_seconds(terms, factors, host_speed)
    if not eager:
        return StepSeconds(device + once, device, once)
    wall = soft_maximum(device, host) + once
    return StepSeconds(wall, device, host + once)


def device_host_and_fixed_seconds(terms: TimeTerms, factors: Array, host_speed: float = 1.0) -> tuple[Array, Array, Array]:
    """Corrected seconds of the device, of the host's calls, and of what a step costs once."""
    import numpy as np

    corrected = terms.seconds * factors[:, :, None]
    device = np.maximum(corrected, terms.floors)[_DEVICE].sum(axis=0)
    calls = corrected[_index("forward_calls") : _index("backward_calls") + 1].sum(axis=0) / host_speed
    once = corrected[_index("step") : _index("sequences") + 1].sum(axis=0) / host_speed
    return device, calls, once


def soft_maximum(first: Array, second: Array) -> Array:
    """The larger, a little more where both are alike."""
    import numpy as np

    largest = np.maximum(np.maximum(first, second), 1e-30)
    told: Array = largest * ((first / largest) ** OVERLAP_SHARPNESS + (second / largest) ** OVERLAP_SHARPNESS) ** (
        1 / OVERLAP_SHARPNESS
    )
    return told


def _index(term: str) -> int:
    return TERMS.index(term)


assert TERMS[len(DEVICE_TERMS) :] == HOST_TERMS
