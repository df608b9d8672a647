"""A fleet at work, event by event: requests come, steps end, keys and values arrive, machines go and come back.

Chance is in the arrivals and in the lives of machines on spot, each with a seed of its own; all else follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf

import numpy as np

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome, PoolUse, Transfers, sum_ragged
from whichgpu.estimate.serving.fleet.kv_transfer import TransferQueues
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.fleet.router import NO_WORKER, Router, scheduler_class
from whichgpu.estimate.serving.fleet.spot_machines import LIFECYCLE_EVENT, ReplicaMachine, SpotLifecycle, SpotSlot
from whichgpu.estimate.serving.fleet.workers import DecodeWorker, PrefillWorker, stop_scheduler
from whichgpu.estimate.serving.scheduler import Hashes, RequestLog, Scheduler
from whichgpu.estimate.serving.simulator import PROGRESS_INTERVAL, Arrival, Progress, SimulationOutcome, column_array

STEP, SENT = 0, 1  # kinds of events, beside LIFE


def simulate_fleet(
    fleet: Fleet, arrivals: Iterable[Arrival], hash_tokens: int = 0, progress: Progress | None = None
) -> FleetOutcome:
    """Serve the arrivals, in order of time."""
    loop = _Loop(fleet, hash_tokens)
    loop.serve(iter(arrivals), progress)
    return loop.outcome()


class _Loop:
    def __init__(self, fleet: Fleet, hash_tokens: int) -> None:
        self.fleet = fleet
        self.whole, self.heads = RequestLog(), RequestLog()  # requests; and their prompts as those who read alone see them
        self.splits = any(one.role == "prefill" for one in fleet.stations)
        self.lanes: list[Scheduler] = []
        self.machines: list[ReplicaMachine] = []
        self.machine_of: list[int] = []
        self.events: list[tuple[float, int, int, int]] = []
        slots = self._build(hash_tokens)
        self.router = Router(fleet, self.lanes, self.machines)
        self.wires = TransferQueues([fleet.stations[one.station].port for one in self.machines])
        self.lives = SpotLifecycle(fleet.interruptions, slots, self)
        self.source: dict[int, int] = {}  # lanes that hold a request's keys and values until they are sent
        self.target: dict[int, int] = {}
        self.flight: dict[int, int] = {}  # transfers under way, by request
        self.homeless: list[int] = []
        self.stranded: list[int] = []  # read, and nobody open to write
        self.tries: dict[int, int] = {}
        self.answered = [0] * len(fleet.stations)
        self.refused = self.lost = self.retried = self.flights = self.left = 0
        self.draining: set[int] = set()
        self.now = self.came = 0.0

    def _build(self, hash_tokens: int) -> list[SpotSlot]:
        """Machines and their lanes; those on spot with one to stand in."""
        slots: list[SpotSlot] = []
        for place, station in enumerate(self.fleet.stations):
            for copy in range(station.copies):
                spot = copy < station.spot
                self._add(place, spot, True, hash_tokens)
                if spot:
                    first = len(self.machines) - 1
                    spare = self.fleet.interruptions.fallback
                    if spare:
                        self._add(place, False, False, hash_tokens)
                    chance = np.random.default_rng([self.fleet.seed, 7, len(slots)])
                    slots.append(SpotSlot(first, first + 1 if spare else None, chance))
        return slots

    def _add(self, place: int, spot: bool, here: bool, hash_tokens: int) -> None:
        station = self.fleet.stations[place]
        server, first = station.server, len(self.lanes)
        ledger = self.heads if station.role == "prefill" else self.whole
        for _ in range(server.stages):
            self.lanes.append(scheduler_class(station.role)(server.steps, server.lane, ledger, hash_tokens))
            self.machine_of.append(len(self.machines))
        self.machines.append(ReplicaMachine(place, range(first, len(self.lanes)), spot, here, 0.0 if here else None))

    def serve(self, arrivals: Iterator[Arrival], progress: Progress | None) -> None:
        """Each at its time; then until all that came is done."""
        events = self.events
        for count, (time, prompt, output, hashes) in enumerate(arrivals):
            while events and events[0][0] <= time:
                self._next()
            self._arrive(time, prompt, output, hashes)
            if progress and count % PROGRESS_INTERVAL == 0:
                progress(count)
        while events and self.left:
            self._next()

    def _arrive(self, time: float, prompt: int, output: int, hashes: Hashes) -> None:
        if not self.came <= time < inf or prompt < 1 or output < 1:
            raise UsageError("bad-arrival", msg("fleet.arrival", time=time, prompt=prompt, output=output))
        self.came = self.now = time
        number = self.whole.add(time, prompt, output, hashes)
        if self.splits:
            self.heads.add(time, prompt, 1, hashes)
        if not self.router.fits(prompt, output):
            self.refused += 1
            self._forget(number)
            return
        self.left += 1
        self._enter(number, time)

    def _enter(self, number: int, now: float) -> None:
        place = self.router.entry(self.whole.prompts[number], self.whole.outputs[number])
        if place == NO_WORKER:
            self.homeless.append(number)
            return
        lane = self.lanes[place]
        if isinstance(lane, PrefillWorker):
            self.router.pending[place] += self.heads.prompts[number]
            self.whole.hashes.pop(number, None)
        if lane.accept(number, now):
            heappush(self.events, (lane.end, STEP, place, 0))

    def _next(self) -> None:
        time, kind, place, code = heappop(self.events)
        if kind == STEP:
            if time == self.lanes[place].end:  # else shortened since
                self.now = time
                self._stepped(place, time)
        elif kind == SENT:
            if self.flight.get(place) == code:
                self.now = time
                self._arrived(place, time)
        else:
            assert kind == LIFECYCLE_EVENT
            self.now = time
            self.lives.turn(place, code, time)

    def _stepped(self, place: int, now: float) -> None:
        lane = self.lanes[place]
        done = lane.complete()
        machine = self.machine_of[place]
        if done:
            self.answered[self.machines[machine].station] += len(done)
            if isinstance(lane, PrefillWorker):
                for number in done:
                    self.router.pending[place] -= self.heads.prompts[number]
                    self._read(number, place, lane, now)
            else:
                self.left -= len(done)
        lane.plan(now)
        if lane.end < inf:
            heappush(self.events, (lane.end, STEP, place, 0))
        if isinstance(lane, DecodeWorker) and lane.expected:
            self._receive(place, lane, now)
        if machine in self.draining:
            self._drained(machine, now)

    def _read(self, number: int, place: int, lane: PrefillWorker, now: float) -> None:
        """A prompt was read where its answer is not written: the first token is there, the rest comes after a transfer."""
        whole = self.whole
        if whole.first[number] < 0:
            whole.first[number] = now
        whole.generated[number] += 1
        if whole.generated[number] < whole.outputs[number]:
            self.source[number] = place
            self._offer(number, now)
            return
        whole.finished[number] = now
        self.left -= 1
        self._forget(number)
        lane.release(number, now)  # the caller plans anew

    def _offer(self, number: int, now: float) -> None:
        reader = self.machines[self.machine_of[self.source[number]]].station
        place = self.router.writer(reader, self.whole.prompts[number] + self.whole.outputs[number])
        if place == NO_WORKER:
            self.stranded.append(number)
            return
        lane = self.lanes[place]
        assert isinstance(lane, DecodeWorker)
        lane.load += 1
        lane.expected.append(number)
        self.target[number] = place
        self._receive(place, lane, now)

    def _receive(self, place: int, lane: DecodeWorker, now: float) -> None:
        for number in lane.ready():
            machines = self.machine_of[self.source[number]], self.machine_of[place]
            self.flights += 1
            self.flight[number] = self.flights
            heappush(self.events, (self.wires.send(*machines, lane.context(number), now), SENT, number, self.flights))

    def _arrived(self, number: int, now: float) -> None:
        del self.flight[number]
        here, there = self.source.pop(number), self.target.pop(number)
        reader, writer = self.lanes[here], self.lanes[there]
        assert isinstance(reader, PrefillWorker)
        assert isinstance(writer, DecodeWorker)
        if reader.release(number, now):
            heappush(self.events, (reader.end, STEP, here, 0))
        if self.machine_of[here] in self.draining:
            self._drained(self.machine_of[here], now)
        if writer.land(number, now):
            heappush(self.events, (writer.end, STEP, there, 0))

    def _forget(self, number: int) -> None:
        self.whole.hashes.pop(number, None)
        self.heads.hashes.pop(number, None)

    def opened(self, machine: int, now: float) -> None:
        """A machine takes requests: first those that found nobody."""
        self.machines[machine].open = True
        self.draining.discard(machine)
        self.router.reopen()
        homeless, self.homeless = self.homeless, []
        for number in homeless:
            self._enter(number, now)
        stranded, self.stranded = self.stranded, []
        for number in stranded:
            self._offer(number, now)

    def closed(self, machine: int, now: float) -> None:
        """It takes no more; one that stood in is given back when it is empty."""
        self.machines[machine].open = False
        self.router.reopen()
        if not self.machines[machine].spot:
            self.draining.add(machine)
            self._drained(machine, now)

    def _drained(self, machine: int, now: float) -> None:
        if all(not self.lanes[place].load and not self.lanes[place].held for place in self.machines[machine].lanes):
            self.draining.discard(machine)
            self.machines[machine].stop(now)

    def gone(self, machine: int, now: float) -> None:
        """What a machine had is read again elsewhere; what was on its way to it is sent elsewhere."""
        again: list[int] = []
        offered: list[int] = []
        for place in self.machines[machine].lanes:
            lane = self.lanes[place]
            if isinstance(lane, PrefillWorker):
                again += self._recalled(lane)
                self.router.pending[place] = 0
            if isinstance(lane, DecodeWorker):
                offered += [one for one in (*lane.expected, *lane.landing) if one in self.source]
                again += lane.landed
            again += stop_scheduler(lane, now)
        self.wires.cut(machine, now)
        for number in sorted(again):
            self._again(number, now)
        for number in sorted(offered):
            begun = self.flight.pop(number, None) is not None
            self.target.pop(number, None)
            if begun and self._given_up(number):
                self._dropped(number, now)
            else:
                self._offer(number, now)

    def _dropped(self, number: int, now: float) -> None:
        """Nobody is to have what was read of a request any more."""
        place = self.source.pop(number)
        reader = self.lanes[place]
        assert isinstance(reader, PrefillWorker)
        if reader.release(number, now):
            heappush(self.events, (reader.end, STEP, place, 0))
        if self.machine_of[place] in self.draining:
            self._drained(self.machine_of[place], now)

    def _recalled(self, lane: PrefillWorker) -> list[int]:
        """Prompts a reader had read and not yet sent: whoever expects them need not."""
        found = list(lane.kept)
        for number in found:
            del self.source[number]
            self.flight.pop(number, None)
            place = self.target.pop(number, None)
            if place is None:
                self.stranded.remove(number)
                continue
            writer = self.lanes[place]
            assert isinstance(writer, DecodeWorker)
            writer.load -= 1
            if number in writer.landing:
                writer.used -= writer.landing.pop(number)
                writer.held -= 1
            else:
                writer.expected.remove(number)
        return found

    def _again(self, number: int, now: float) -> None:
        """Read a request again with the tokens it has, or give it up."""
        if self._given_up(number):
            return
        if self.splits:
            self.heads.prompts[number] = self.whole.prompts[number] + self.whole.generated[number]
            self.heads.generated[number] = 0
        self._enter(number, now)

    def _given_up(self, number: int) -> bool:
        """Whether a request was tried so often that it counts as lost; if not, it is tried once more."""
        tries = self.tries[number] = self.tries.get(number, 0) + 1
        if tries <= self.fleet.interruptions.retries:
            self.retried += 1
            return False
        self.lost += 1
        self.left -= 1
        self._forget(number)
        return True

    def outcome(self) -> FleetOutcome:
        whole, lanes = self.whole, self.lanes
        end = max(max(whole.finished, default=0.0), self.now)  # the last that came may have been given up
        served = SimulationOutcome(
            arrived=column_array(whole.arrived), first=column_array(whole.first), finished=column_array(whole.finished),
            prompts=column_array(whole.prompts), outputs=column_array(whole.outputs), refused=self.refused,
            preempted=sum(one.preempted for one in lanes), recomputed=sum(one.recomputed for one in lanes),
            read=sum(one.read for one in lanes), cached=sum(one.hits for one in lanes),
            busy=sum(one.busy for one in lanes) / (len(lanes) * end) if end > 0 else 0.0,
            peak_cache=max(one.peak / one.blocks for one in lanes),
            batch_seconds=sum_ragged([one.batch_seconds for one in lanes]),
            batch_steps=sum_ragged([one.batch_steps for one in lanes]),
        )  # fmt: skip
        sent = max(1, self.wires.sent)
        transfers = Transfers(self.wires.sent, self.wires.bytes, self.wires.seconds / sent, self.wires.waited / sent)
        uses = tuple(self._use(place, end) for place in range(len(self.fleet.stations)))
        return FleetOutcome(served, uses, transfers, end, self.lost, self.retried, self.lives.taken)

    def _use(self, place: int, end: float) -> PoolUse:
        station = self.fleet.stations[place]
        machines = [one for one in self.machines if one.station == place]
        mine = [self.lanes[at] for one in machines for at in one.lanes]
        seconds, steps = sum_ragged([one.batch_seconds for one in mine]), float(sum(one.busy for one in mine))
        return PoolUse(
            name=station.name, role=station.role, copies=station.copies, gpus=station.gpus, answered=self.answered[place],
            read=sum(one.read for one in mine), busy_seconds=steps / station.server.stages,
            on_demand_seconds=sum(one.seconds(end) for one in machines if not one.spot),
            spot_seconds=sum(one.seconds(end) for one in machines if one.spot),
            peak_cache=max(one.peak / one.blocks for one in mine),
            mean_batch=float((np.arange(len(seconds)) * seconds).sum() / max(1e-12, seconds.sum())),
        )  # fmt: skip
