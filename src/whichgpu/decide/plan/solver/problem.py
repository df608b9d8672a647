"""The problem a fleet plan solves, as numbers: pools of machines, replicas that run on them, requests to serve.

minimise  the cost of an average hour
subject   every bucket of requests is served at every level of load, split freely between replicas
          no more of a model's requests are served late than its percentile allows
          what prefill workers serve of a bucket, decode workers that receive their KV caches serve as well
          a replica serves no more than its throughput less the headroom
          replicas run on machines; machines stay within what is owned, on offer and allowed
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BOTH, PREFILL, DECODE = 0, 1, 2  # Roles of columns.
OWNED = "owned"  # The term of owned GPUs.


class PriceOption(msgspec.Struct, frozen=True):
    """One price per hour of a pool's machines, with its term; a committed one is paid in every hour of the horizon."""

    name: str
    price: float
    committed: bool = False
    limit: float = np.inf  # most machines at this price
    term: str = "on-demand"
    billed: float = 0.0  # price per machine and hour on the provider's bill
    row: int | None = None  # index of the offer in the market; None for owned GPUs


class Pool(msgspec.Struct, frozen=True):
    """A set of equal machines: their GPU (as in quotas and current fleets), GPUs in each machine, and price options."""

    name: str
    gpu: str
    size: int
    options: tuple[PriceOption, ...]


class Quota(msgspec.Struct, frozen=True):
    """The largest number of GPUs that some pools of machines may have in total."""

    name: str
    pools: frozenset[int]
    limit: float  # most GPUs


class AccountLimit(msgspec.Struct, frozen=True):
    """A limit that machines of several price options share, as a quota of vCPUs; each machine takes its `sizes`."""

    sizes: Mapping[tuple[int, int], float]  # by pool and option
    limit: float


class Job(msgspec.Struct, frozen=True):
    """A training or batch job with a deadline; `divisible` if it can be split over pools and hours."""

    name: str
    hours: Floats  # machine hours on each pool, [pools]; inf if the job cannot run there
    wall: Floats  # elapsed hours on each pool, [pools]
    window: float  # hours until the deadline
    divisible: bool = False
    requests: tuple[Mapping[str, Any], ...] = ()  # requests of `estimate` for the job on each pool; empty ones if it cannot run


class CurrentFleet(msgspec.Struct, frozen=True):
    """GPUs in use now, by kind, and the penalty per hour that the solver adds for each GPU added or removed."""

    gpus: dict[str, float]
    change_cost: float


class LateService(msgspec.Struct, frozen=True):
    """Requests that may miss their objectives: a replica serves them at other rates, up to a share of each model's requests.

    `rates[j, b]` is like `Problem.rates`, for requests of bucket b that are served late; 0 if that is no faster than on time.
    """

    rates: Floats
    model_of: Ints  # index of the model that each bucket of requests belongs to
    shares: Floats  # largest share of each model's requests that may be served late, [models]

    def of_columns(self, columns: Ints) -> LateService:
        """Return the late service of some columns (models on a kind of machine), by index."""
        return replace(self, rates=self.rates[columns])


class Workers(msgspec.Struct, frozen=True):
    """Roles of columns in disaggregated serving: a request prefilled by one column is decoded by another of the same link.

    `links[j]` numbers the columns that send each other KV caches: of one model, in one place, with the same KV-cache format.
    """

    roles: Ints  # BOTH, PREFILL or DECODE, by column
    links: Ints  # -1 for aggregated columns

    def of_columns(self, columns: Ints) -> Workers | None:
        """Return the roles of some columns, by index; None if all of these are aggregated."""
        roles = self.roles[columns]
        return Workers(roles, self.links[columns]) if roles.any() else None


class Problem(msgspec.Struct, frozen=True):
    """A fleet plan to solve. Columns are replicas of a model on a pool's GPUs; buckets are classes of requests.

    `rates[j, b]` are requests per second of bucket b that one replica of column j serves when it does nothing else; 0 if it
    cannot. `demand[l, b]` are requests per second at each level of load, `hours[l]` the share of the time the level lasts.
    `headroom` is the share of every replica's time kept free. With `slices` a bucket is cut into as many parts, each served by
    one column; without, it is split freely.
    """

    pools: tuple[Pool, ...]
    columns: tuple[str, ...]
    pool_of: Ints
    uses: Ints  # GPUs that one replica of each column takes
    rates: Floats
    demand: Floats
    hours: Floats
    headroom: float = 0.0
    slices: int | None = None
    quotas: tuple[Quota, ...] = ()
    account_limits: tuple[AccountLimit, ...] = ()  # each of their options has a `limit` of its own too
    jobs: tuple[Job, ...] = ()
    horizon: float = 730.0  # planning horizon in hours
    budget: float | None = None  # most cost per average hour
    current: CurrentFleet | None = None
    spot_share: float = 1.0  # largest share of the rented GPUs kept busy that may be spot
    buckets: tuple[str, ...] = ()
    late: LateService | None = None  # None if every request must be served within its objectives
    workers: Workers | None = None  # None if every column is aggregated: it serves both prefill and decode
    spare: bool = False  # whether the load must be served after the loss of any one machine
    losses: tuple[tuple[int, int], ...] = ()  # level and column of machines whose loss the program must tolerate

    @property
    def levels(self) -> int:
        """Return the number of load levels (sets of hours with similar traffic)."""
        return len(self.hours)

    @property
    def room(self) -> float:
        """Return the share of a replica's time that may be used: 1 less the headroom."""
        return 1.0 - self.headroom

    @property
    def busiest(self) -> int:
        """Return the index of the load level with the most requests."""
        return int(np.argmax(self.demand.sum(axis=1)))

    def of_columns(self, columns: Ints) -> Problem:
        """Return the problem restricted to some of its columns (models on a kind of machine), by index."""
        return replace(
            self,
            columns=tuple(self.columns[j] for j in columns),
            pool_of=self.pool_of[columns],
            uses=self.uses[columns],
            rates=self.rates[columns],
            late=None if self.late is None else self.late.of_columns(columns),
            workers=None if self.workers is None else self.workers.of_columns(columns),
            losses=tuple((level, place) for place, j in enumerate(columns.tolist()) for level, lost in self.losses if lost == j),
        )

    def replicas_lost(self, column: int) -> int:
        """Return the replicas of a column that run on one machine; of owned GPUs, whose machines are not known, one."""
        return max(1, self.pools[int(self.pool_of[column])].size // int(self.uses[column]))

    @property
    def aggregated(self) -> Bools:
        """Return a mask of the columns that serve both prefill and decode."""
        return np.ones(len(self.columns), dtype=bool) if self.workers is None else self.workers.roles == BOTH

    @property
    def decodes_only(self) -> Bools:
        """Return a mask of the columns that are decode workers."""
        return np.zeros(len(self.columns), dtype=bool) if self.workers is None else self.workers.roles == DECODE

    @property
    def best_rates(self) -> Floats:
        """Return the highest rate at which each column serves each bucket of requests, on time or late."""
        return self.rates if self.late is None else np.maximum(self.rates, self.late.rates)

    @property
    def all_rates(self) -> Floats:
        """Return the rates on time and, if late service is allowed, late: [columns, buckets] or [columns, 2 x buckets]."""
        return self.rates if self.late is None else np.concatenate([self.rates, self.late.rates], axis=1)

    def late_limits(self) -> dict[tuple[int, int], tuple[Floats, float]]:
        """Return, by level and model, the late requests per second of each wholly late bucket, and the most that may be late."""
        limits: dict[tuple[int, int], tuple[Floats, float]] = {}
        if self.late is None:
            return limits
        for level in range(self.levels):
            for model, share in enumerate(self.late.shares.tolist()):
                mine = np.where(self.late.model_of == model, self.demand[level], 0.0)
                limits[level, model] = (mine, share * float(mine.sum()))
        return limits

    def loads_at(self, level: int, columns: Bools) -> Floats:
        """Return `loads` (replicas kept busy by each bucket) at one level, [columns, buckets]; inf if not in `columns`."""
        rates = self.all_rates
        loads, demand = np.full(rates.shape, np.inf), np.resize(self.demand[level], rates.shape[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            replicas = demand[None, :] / rates[columns]
        loads[columns] = np.where(demand[None, :] > 0, np.where(np.isnan(replicas), np.inf, replicas), 0.0)
        return loads

    def loads(self) -> Floats:
        """Return how many replicas of each kind a request bucket keeps busy, [levels, columns, buckets]; inf if it cannot.

        If late service is allowed, the loads of requests served late follow, [levels, columns, 2 x buckets].
        """
        rates = self.all_rates
        demand = np.tile(self.demand, (1, rates.shape[1] // max(1, self.demand.shape[1])))
        with np.errstate(divide="ignore", invalid="ignore"):
            loads = demand[:, None, :] / rates[None, :, :]
        loads[np.isnan(loads)] = np.inf
        return np.where(demand[:, None, :] > 0, loads, 0.0)

    def cost_per_request(self) -> Floats:
        """Return the cost per hour of one request per second, [kinds of replica, buckets]; inf if one cannot serve a bucket."""
        prices = np.array([min(option.price for option in pool.options) / pool.size for pool in self.pools])
        each = prices[self.pool_of] * self.uses
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((self.best_rates > 0) & self.aggregated[:, None], each[:, None] / self.best_rates, np.inf)


class Solution(msgspec.Struct, frozen=True):
    """A solved fleet plan: replicas of each kind (column), the share of each request bucket they serve, machines to own or rent.

    `cost` is per average hour; `bound` is a proven lower bound on the cost of every plan; `seconds` is the solver's time.
    """

    cost: float
    bound: float
    counts: Ints  # number of replicas, [levels, columns]
    shares: Floats  # share of each bucket's requests that a column serves, [levels, columns, buckets]
    machines: dict[tuple[int, int, int], int]  # number of machines by level, pool and price option
    jobs: tuple[tuple[tuple[int, float], ...], ...]  # for each job: pools and the share of it done on each
    program_columns: int  # columns in the mixed-integer program
    seconds: float
    change: float = 0.0  # part of `cost` that penalises changes of the current fleet and is not paid
    late: Floats | None = None  # part of `shares` that is served late, with the same axes; None if nothing may be late

    @property
    def bill(self) -> float:
        """Return the money paid per average hour: the cost without the penalty for changing the current fleet."""
        return self.cost - self.change

    @property
    def gap(self) -> float:
        """Return the distance between the plan's cost and its proven lower bound, as a share of the cost."""
        return max(0.0, (self.cost - self.bound) / self.cost) if self.cost > 0 else 0.0

    def gpus_at(self, problem: Problem, level: int, pools: Container[int] | None = None) -> int:
        """Return the number of GPUs in use at a load level, in the pools of machines given or in all."""
        machines = self.machines.items()
        return sum(n * problem.pools[p].size for (at, p, _), n in machines if at == level and (pools is None or p in pools))

    def max_gpus(self, problem: Problem, pools: Container[int] | None = None) -> int:
        """Return the number of GPUs in use at the load level that uses most, in the pools of machines given or in all."""
        return max((self.gpus_at(problem, level, pools) for level in range(problem.levels)), default=0)

    def gpus_by_kind(self, problem: Problem, level: int) -> dict[str, int]:
        """Return the number of GPUs of each kind that the plan uses at a load level."""
        counts: dict[str, int] = {}
        for (at, p, _), n in self.machines.items():
            if at == level:
                pool = problem.pools[p]
                counts[pool.gpu] = counts.get(pool.gpu, 0) + n * pool.size
        return counts
