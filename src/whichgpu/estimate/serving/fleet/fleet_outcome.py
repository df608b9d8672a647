"""Outcome of a simulated fleet: requests, pools and KV transfers."""

from __future__ import annotations

import msgspec

from whichgpu.estimate.serving.simulator import SimulationOutcome


class PoolUse(msgspec.Struct, frozen=True):
    """Use of one pool of equal replicas in a simulation; seconds are summed over its replicas."""

    name: str
    role: str  # both, prefill or decode
    replicas: int
    gpus: int
    answered: int  # requests it finished, or prefilled if that is its role
    busy_seconds: float
    on_demand_seconds: float
    spot_seconds: float
    peak_cache: float
    mean_batch: float

    @property
    def utilisation(self) -> float:
        """Share of the time paid for in which the pool's replicas ran steps."""
        paid = self.on_demand_seconds + self.spot_seconds
        return self.busy_seconds / paid if paid > 0 else 0.0


class Transfers(msgspec.Struct, frozen=True):
    """KV caches sent between machines: number, bytes, mean seconds, and mean seconds of them spent queueing."""

    count: int
    bytes: float
    mean_seconds: float
    mean_wait: float


class FleetOutcome(msgspec.Struct, frozen=True):
    """Results of a fleet simulation: `served` per request, use of each pool, and requests `lost` after too many retries."""

    served: SimulationOutcome
    pools: tuple[PoolUse, ...]
    transfers: Transfers
    seconds: float  # seconds from the start to the finish of the last request
    lost: int
    retried: int  # requests restarted because their machine was lost, counted each time
    interruptions: int

    @property
    def answered(self) -> int:
        """Number of requests that finished."""
        return int(self.served.answered.sum())
