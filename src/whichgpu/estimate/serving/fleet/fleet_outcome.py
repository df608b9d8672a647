"""What became of all requests of a fleet, and of its machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichgpu.estimate.serving.simulator import SimulationOutcome

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Of one station; seconds are of machines (copies), tokens those it read and wrote."""

    name: str
    role: str
    copies: int
    gpus: int
    answered: int  # requests it finished, or whose prompts it read where that is its role
    read: int
    busy_seconds: float
    on_demand_seconds: float
    spot_seconds: float
    peak_cache: float
    mean_batch: float

    @property
    def utilisation(self) -> float:
        """Share of the time it was paid for that it worked."""
        held = self.on_demand_seconds + self.spot_seconds
        return self.busy_seconds / held if held > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Transfers:
    """Keys and values sent between machines: how many times, bytes, seconds on average, and those of them spent waiting."""

    count: int
    bytes: float
    mean_seconds: float
    mean_wait: float


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """`served` is per request, as of one server; of those that came some were refused (too long for anyone) or lost for good."""

    served: SimulationOutcome
    stations: tuple[PoolUse, ...]
    transfers: Transfers
    seconds: float  # from the start to the last answer
    lost: int
    retried: int  # times a request was read again because its machine went
    interruptions: int

    @property
    def answered(self) -> int:
        """Requests."""
        return int(self.served.answered.sum())


def sum_ragged(rows: list[list[float]] | list[list[int]]) -> Array:
    """The sum of lists of several lengths."""
    total = np.zeros(max(map(len, rows)))
    for row in rows:
        total[: len(row)] += row
    return total
