"""Who takes a request: the station by the fleet's policy, the copy by who has the least to do."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.fleet.spot_machines import ReplicaMachine
from whichgpu.estimate.serving.fleet.workers import DecodeWorker, PrefillWorker
from whichgpu.estimate.serving.scheduler import Scheduler

NO_WORKER = -1


class Router:
    """Knows all lanes and which of them are open."""

    def __init__(self, fleet: Fleet, lanes: Sequence[Scheduler], machines: Sequence[ReplicaMachine]) -> None:
        self._fleet, self._lanes, self._routing = fleet, lanes, fleet.routing
        stations = fleet.stations
        self._weight = [one.weight for one in stations]
        self._room = [one.server.lane.cache_tokens for one in stations]
        self._block = [one.server.lane.block_tokens for one in stations]
        self._cache = [one.cache for one in stations]
        self._entries = [place for place, one in enumerate(stations) if one.role != "decode"]
        self._writers = [place for place, one in enumerate(stations) if one.role == "decode"]
        self._splits = [one.role == "prefill" for one in stations]
        self._machines = machines
        self._open: list[list[int]] = [[] for _ in stations]
        self._whole = [place for place in self._entries if not self._splits[place]]
        self._halves = [place for place in self._entries if self._splits[place]]
        self._credit = [[0.0] * len(stations) for _ in range(fleet.routing.buckets)]
        self._kinds = [0.0, 0.0]
        self.pending = [0] * len(lanes)  # tokens of prompts a reader has to read
        self._turn = 0
        self._most = min(self._limit(place) for place in range(len(stations)))
        self.reopen()

    def reopen(self) -> None:
        """Machines have opened or closed."""
        for lanes in self._open:
            lanes.clear()
        for machine in self._machines:
            if machine.open:
                self._open[machine.station].extend(machine.lanes)

    def fits(self, prompt: int, output: int) -> bool:
        """Whether any station could ever take it."""
        if prompt + output <= self._most:
            return True
        whole = any(self._takes(place, prompt + output) for place in self._whole)
        return whole or any(self._reads(place, prompt + output) for place in self._halves)

    def entry(self, prompt: int, output: int) -> int:
        """The lane where it begins; NOBODY while none is open."""
        tokens = prompt + output
        able = self._entries
        if tokens > self._most:
            able = [place for place in able if (self._reads if self._splits[place] else self._takes)(place, tokens)]
        able = [place for place in able if self._open[place]]
        if not able:
            return NO_WORKER
        if self._routing.policy == "least":
            return self._least(self._kind(able) if self._whole and self._halves else able)
        bucket = self._routing.bucket(prompt, output)
        return self._least([self._share(bucket, able)])

    def writer(self, reader: int, tokens: int) -> int:
        """The lane that writes what a station has read, a request so long in all; NOBODY while none is open."""
        cache = self._cache[reader]
        able = [
            place
            for place in self._writers
            if self._open[place] and self._cache[place] == cache and (tokens <= self._most or self._takes(place, tokens))
        ]
        return self._least(able) if able else NO_WORKER

    def _kind(self, able: list[int]) -> list[int]:
        """Whole or in halves, each as often as its copies bear; what they have to do is counted in different things."""
        groups = [[place for place in able if self._splits[place] is split] for split in (False, True)]
        bears = [sum(self._weight[place] * len(self._open[place]) for place in group) for group in groups]
        for side in (0, 1):
            self._kinds[side] += bears[side] / sum(bears)
        chosen = 0 if (self._kinds[0] >= self._kinds[1] and groups[0]) or not groups[1] else 1
        self._kinds[chosen] -= 1.0
        return groups[chosen]

    def _share(self, bucket: int, able: list[int]) -> int:
        """Whoever is furthest behind its share; where none of those may take it, the one that bears most."""
        shares, credit = self._routing.shares[bucket], self._credit[bucket]
        total = sum(shares[place] for place in able)
        if total <= 0:
            return max(able, key=lambda place: self._weight[place] * len(self._open[place]))
        for place in able:
            credit[place] += shares[place] / total
        chosen = max((place for place in able if shares[place] > 0), key=lambda place: credit[place])
        credit[chosen] -= 1.0
        return chosen

    def _least(self, stations: list[int]) -> int:
        """The lane with the least to do for what it bears; of equals, each in turn."""
        self._turn += 1
        lanes, pending, best, least = self._lanes, self.pending, NO_WORKER, 0.0
        for station in stations:
            weight, places = self._weight[station], self._open[station]
            count = len(places)
            start = self._turn % count
            tokens = self._splits[station]
            for step in range(count):
                place = places[start + step - count]
                load = (pending[place] if tokens else lanes[place].load + 1) / weight
                if best < 0 or load < least:
                    best, least = place, load
        return best

    def _reads(self, place: int, tokens: int) -> bool:
        """Whether it fits where it is read and somewhere it may be written."""
        cache = self._cache[place]
        return self._takes(place, tokens) and any(self._takes(one, tokens) for one in self._writers if self._cache[one] == cache)

    def _limit(self, place: int) -> int:
        return self._room[place] - self._block[place]

    def _takes(self, place: int, tokens: int) -> bool:
        return -(-tokens // self._block[place]) * self._block[place] <= self._room[place]


def scheduler_class(role: str) -> type[Scheduler]:
    """The engine of a role."""
    return {"prefill": PrefillWorker, "decode": DecodeWorker}.get(role, Scheduler)
