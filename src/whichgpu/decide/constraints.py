"""What a recommendation has to keep to and what it is to be ordered by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from whichgpu.base.money import Money
from whichgpu.price.run import RunSettings

Rank = Literal["cost", "time", "value", "balanced"]
RANKS: tuple[Rank, ...] = ("cost", "time", "value", "balanced")
MOST_GPUS = 8.0  # of one copy of the work, where nothing is said
TIME_WEIGHT = 0.5  # balanced: halving the time is worth 1.41 times the cost


@dataclass(frozen=True, slots=True)
class Owned:
    """Machines the user has: so many GPUs of a kind in one of them."""

    gpu: str
    gpus: int
    cost_per_hour: float = 0.0  # of power and upkeep, in US dollars


@dataclass(frozen=True, slots=True)
class Constraints:
    """Filters, limits and the order. None and () ask nothing."""

    day: date
    gpu_ids: frozenset[str] | None = None
    machines: frozenset[tuple[str, str]] | None = None  # provider and instance
    providers: tuple[str, ...] = ()
    regions: frozenset[tuple[str, str]] | None = None
    terms: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    gpus: tuple[float, float] | None = None
    min_memory: int | None = None
    max_latency: float | None = None  # seconds
    budget: Money | None = None
    budget_per: str | None = None  # hour or month; None: in total
    deadline: float | None = None  # seconds
    rank: Rank | None = None
    currency: str = "USD"
    owned: tuple[Owned, ...] = ()
    run_settings: RunSettings = field(default_factory=RunSettings)
    duration: float | None = None  # seconds a service is kept up
    slices: bool = False  # whether parts of a GPU are looked at
    max_age: float | None = None  # seconds since a price was seen
    cards: Mapping[str, float] = field(default_factory=dict)  # where they are bought: the price of one, by GPU

    @property
    def span(self) -> tuple[float, float]:
        """How many GPUs a candidate may have."""
        return self.gpus or (0.0, MOST_GPUS)

    def order(self, serving: bool) -> Rank:
        """What candidates are ordered by: the cheapest where a rate or a deadline says how fast is fast enough."""
        if self.rank:
            return self.rank
        return "cost" if serving or self.deadline is not None else "balanced"
