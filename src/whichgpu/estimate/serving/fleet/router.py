"""Routing in a fleet: the routing policy chooses the pool, the least load chooses the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.fleet.spot_machines import ReplicaMachine
from whichgpu.estimate.serving.scheduler import Scheduler

NO_WORKER = -1  # returned instead of a scheduler's index if no machine that could serve the request is open


class Router:
    """Chooses the scheduler of a replica for each request, among machines that accept requests."""

    def __init__(self, fleet: Fleet, schedulers: Sequence[Scheduler], machines: Sequence[ReplicaMachine]) -> None:
        self._pools, self._routing, self._schedulers, self._machines = fleet.pools, fleet.routing, schedulers, machines
        indices = range(len(fleet.pools))
        self._aggregated = [index for index in indices if fleet.pools[index].role == "both"]
        self._prefill = [index for index in indices if fleet.pools[index].role == "prefill"]
        self._decode = [index for index in indices if fleet.pools[index].role == "decode"]
        self._entries = sorted(self._aggregated + self._prefill)
        self._open: list[list[int]] = [[] for _ in indices]  # indices of open schedulers by pool
        self._share_credit = [[0.0] * len(indices) for _ in range(fleet.routing.buckets)]
        self._role_credit = [0.0, 0.0]  # requests that aggregated and prefill pools are behind their share
        self.pending = [0] * len(schedulers)  # input tokens queued at each prefill worker
        self._routed = 0
        limits = (one.server.batch_limits for one in fleet.pools)
        self._fits_all = min(one.cache_tokens - one.block_tokens for one in limits)  # tokens of requests that fit in any pool
        self.update()

    def update(self) -> None:
        """Recompute which schedulers accept requests, after machines have opened or closed."""
        for schedulers in self._open:
            schedulers.clear()
        for machine in self._machines:
            if machine.open:
                self._open[machine.pool].extend(machine.schedulers)

    def fits(self, prompt: int, output: int) -> bool:
        """Whether the KV cache of any pool of replicas holds a request with these input and output tokens."""
        tokens = prompt + output
        return tokens <= self._fits_all or any(self._can_enter(index, tokens) for index in self._entries)

    def entry(self, prompt: int, output: int) -> int:
        """Return the index of the scheduler at which a request starts; NO_WORKER if none is open."""
        able = self._entries
        if prompt + output > self._fits_all:
            able = [index for index in able if self._can_enter(index, prompt + output)]
        able = [index for index in able if self._open[index]]
        if not able:
            return NO_WORKER
        if self._routing.policy == "least":
            return self._least_loaded(self._by_role(able) if self._aggregated and self._prefill else able)
        return self._least_loaded([self._by_share(self._routing.bucket(prompt, output), able)])

    def decode_worker(self, prefill: int, tokens: int) -> int:
        """Return the index of a decode worker for a request of `tokens` tokens that pool `prefill` prefilled, or NO_WORKER."""
        able = [
            index
            for index in self._decode
            if self._open[index] and self._pools[index].cache == self._pools[prefill].cache and self._has_room(index, tokens)
        ]
        return self._least_loaded(able) if able else NO_WORKER

    def _capacity(self, index: int) -> float:
        return self._pools[index].weight * len(self._open[index])

    def _by_role(self, able: list[int]) -> list[int]:
        """Return either the aggregated or the prefill pools of `able`, alternating in proportion to capacity in requests/s."""
        groups = [[index for index in able if (self._pools[index].role == "prefill") is split] for split in (False, True)]
        capacities = [sum(map(self._capacity, group)) for group in groups]
        for side in (0, 1):
            self._role_credit[side] += capacities[side] / sum(capacities)
        chosen = 0 if (self._role_credit[0] >= self._role_credit[1] and groups[0]) or not groups[1] else 1
        self._role_credit[chosen] -= 1.0
        return groups[chosen]

    def _by_share(self, bucket: int, able: list[int]) -> int:
        """Return the pool furthest behind its planned share of a length bucket; if none has a share, that of highest capacity."""
        shares, credit = self._routing.shares[bucket], self._share_credit[bucket]
        total = sum(shares[index] for index in able)
        if total <= 0:
            return max(able, key=self._capacity)
        for index in able:
            credit[index] += shares[index] / total
        chosen = max((index for index in able if shares[index] > 0), key=lambda index: credit[index])
        credit[chosen] -= 1.0
        return chosen

    def _least_loaded(self, pools: list[int]) -> int:
        """Return the scheduler with the least load (requests; for prefill, input tokens) relative to capacity; ties rotate."""
        self._routed += 1
        schedulers, pending, best, min_load = self._schedulers, self.pending, NO_WORKER, 0.0
        for pool in pools:
            weight, indices = self._pools[pool].weight, self._open[pool]
            count = len(indices)
            start = self._routed % count
            by_tokens = self._pools[pool].role == "prefill"
            for step in range(count):
                index = indices[start + step - count]
                load = (pending[index] if by_tokens else schedulers[index].load + 1) / weight
                if best < 0 or load < min_load:
                    best, min_load = index, load
        return best

    def _can_enter(self, index: int, tokens: int) -> bool:
        """Whether a request fits in a pool and, for a prefill pool, also in a decode pool with the same cache format."""
        one = self._pools[index]
        decode = (other for other in self._decode if self._pools[other].cache == one.cache)
        return self._has_room(index, tokens) and (one.role == "both" or any(self._has_room(other, tokens) for other in decode))

    def _has_room(self, index: int, tokens: int) -> bool:
        limits = self._pools[index].server.batch_limits
        return -(-tokens // limits.block_tokens) * limits.block_tokens <= limits.cache_tokens
