"""From corrected terms to seconds: the device's work, the host's calls, and what a clock on the wall shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichgpu.estimate.time.terms import DEVICE, HOST, TERMS, Terms

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

# Device and host run side by side, so the longer one shows; near equality they wait on each other a little. The sharpness of
# that maximum: (d^p + h^p)^(1/p).
SHARPNESS = 6.0
_DEVICE = slice(0, len(DEVICE))


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of a step, [gpus, batches]."""

    wall: Array
    device: Array
    host: Array


def combine(terms: Terms, factors: Array, eager: bool, host_speed: float = 1.0) -> Seconds:
    """Corrected seconds. `factors` is [terms, gpus]; `host_speed` is of the host against the one measured with."""
    device, host, once = corrected_parts(terms, factors, host_speed)
    if not eager:
        return Seconds(device + once, device, once)
    wall = soft_maximum(device, host) + once
    return Seconds(wall, device, host + once)


def corrected_parts(terms: Terms, factors: Array, host_speed: float = 1.0) -> tuple[Array, Array, Array]:
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
    told: Array = largest * ((first / largest) ** SHARPNESS + (second / largest) ** SHARPNESS) ** (1 / SHARPNESS)
    return told


def _index(term: str) -> int:
    return TERMS.index(term)


assert TERMS[len(DEVICE) :] == HOST
