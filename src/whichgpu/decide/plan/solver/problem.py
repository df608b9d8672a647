"""The problem a fleet plan solves, as numbers: machines that can be had, copies of models that run on them, requests to serve.

minimise  the bill of an average hour
subject   every bucket of requests is served at every level of load, split between copies as one likes
          a copy serves no more than its throughput less the headroom
          copies run on machines, machines stay within what is owned, on offer and allowed
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PriceOption:
    """A way to have machines of a pool: an hour's price; a commitment is paid in every hour of the horizon."""

    name: str
    price: float
    committed: bool = False
    most: float = np.inf  # machines
    term: str = "on-demand"


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines that are alike: GPUs in each, ways to have them, and the kind of GPU that quotas and current plans speak of."""

    name: str
    gpu: str
    size: int
    options: tuple[PriceOption, ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """Most GPUs of a kind in all, rented or owned as the pools say."""

    name: str
    pools: frozenset[int]
    most: float  # GPUs


@dataclass(frozen=True, slots=True)
class Job:
    """Work with a deadline beside serving: machine hours of each pool (inf where it cannot), and whether it can be split."""

    name: str
    hours: Floats  # of machines, [pools]
    wall: Floats  # of the clock, [pools]
    window: float  # hours until the deadline
    divisible: bool = False


@dataclass(frozen=True, slots=True)
class CurrentFleet:
    """A fleet already there: GPUs of each kind, and what an hour is worth of not adding or giving back one of them."""

    gpus: dict[str, float]
    change_cost: float


@dataclass(frozen=True, slots=True)
class Problem:
    """`rates[j, b]` are requests a second of bucket b that a copy of column j serves when it does nothing else; 0: it cannot.

    `demand[l, b]` are requests a second at each level of load, `hours[l]` the share of the time the level holds.
    `headroom` is the share of every copy's time kept free. With `slices`, a bucket is cut into so many parts, each served by one
    kind of column alone; without, it is split as one likes.
    """

    pools: tuple[Pool, ...]
    columns: tuple[str, ...]
    pool_of: Ints
    uses: Ints  # GPUs of one copy
    rates: Floats
    demand: Floats
    hours: Floats
    headroom: float = 0.0
    slices: int | None = None
    quotas: tuple[Quota, ...] = ()
    jobs: tuple[Job, ...] = ()
    horizon: float = 730.0  # hours
    budget: float | None = None  # most money of an average hour
    current: CurrentFleet | None = None
    spot_share: float = 1.0  # most of the rented GPUs that may be on spot terms
    buckets: tuple[str, ...] = field(default=())

    @property
    def levels(self) -> int:
        """How many levels of load there are."""
        return len(self.hours)

    @property
    def room(self) -> float:
        """The share of a copy's time that may be used."""
        return 1.0 - self.headroom

    def loads_at(self, level: int, columns: Bools) -> Floats:
        """The same of one level, and of some columns; the others' are inf."""
        told = np.full(self.rates.shape, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.demand[level][None, :] / self.rates[columns]
        told[columns] = np.where(self.demand[level][None, :] > 0, np.where(np.isnan(found), np.inf, found), 0.0)
        return told

    def loads(self) -> Floats:
        """Copies of each column that each whole bucket would keep busy, [levels, columns, buckets]; inf where it cannot."""
        with np.errstate(divide="ignore", invalid="ignore"):
            told = self.demand[:, None, :] / self.rates[None, :, :]
        told[np.isnan(told)] = np.inf
        return np.where(self.demand[:, None, :] > 0, told, 0.0)


@dataclass(frozen=True, slots=True)
class Solution:
    """Copies [levels, columns] and shares of buckets [levels, columns, buckets] over all columns of the problem; machines by way.

    `cost` is of an average hour; `bound` is proven: no plan costs less, of all columns, those set aside too.
    """

    cost: float
    bound: float
    copies: Ints
    shares: Floats
    machines: dict[tuple[int, int, int], int]  # level, pool, way
    jobs: tuple[tuple[tuple[int, float], ...], ...]  # of each job: pools and the share of it done there
    considered: int  # columns looked at
    kept: int  # columns in the program
    seconds: float
    spent_jobs: float = 0.0
    change: float = 0.0  # of the cost: what changes against the current fleet count for, which nobody pays

    @property
    def bill(self) -> float:
        """What is paid of an average hour."""
        return self.cost - self.change

    @property
    def gap(self) -> float:
        """How much dearer than the bound, as a share of the cost."""
        return max(0.0, (self.cost - self.bound) / self.cost) if self.cost > 0 else 0.0
