"""Event loop of a fleet: requests arrive, steps end, KV caches arrive, machines are lost and return.

Only arrivals and interruptions of spot machines are random; each has its own seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf

import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.serving.early_stop import CHECKED_ARRIVALS, MissLimit
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome, PoolUse, Transfers
from whichgpu.estimate.serving.fleet.kv_transfer import TransferQueues
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.fleet.router import NO_WORKER, Router
from whichgpu.estimate.serving.fleet.spot_machines import LIFECYCLE_EVENT, ReplicaMachine, SpotLifecycle, SpotSlot
from whichgpu.estimate.serving.fleet.workers import DecodeWorker, PrefillWorker, stop_scheduler
from whichgpu.estimate.serving.scheduler import Hashes, RequestLog, Scheduler
from whichgpu.estimate.serving.simulator import Arrival, simulation_outcome, sum_ragged

STEP_EVENT, TRANSFER_EVENT = 0, 1  # kinds of events, besides LIFECYCLE_EVENT
SCHEDULERS: dict[str, type[Scheduler]] = {"both": Scheduler, "prefill": PrefillWorker, "decode": DecodeWorker}


def simulate_fleet(
    fleet: Fleet, arrivals: Iterable[Arrival], hash_tokens: int = 0, misses: MissLimit | None = None
) -> FleetOutcome:
    """Simulate serving the arrivals, given in order of time, and return the outcome.

    With `misses` the simulation ends as soon as too many requests have missed an objective.
    """
    loop = _FleetLoop(fleet, hash_tokens)
    complete = loop.serve(arrivals, misses)
    outcome = loop.outcome()
    return outcome if complete else replace(outcome, served=replace(outcome.served, complete=False))


class _FleetLoop:
    def __init__(self, fleet: Fleet, hash_tokens: int) -> None:
        self.fleet, self.hash_tokens = fleet, hash_tokens
        self.log, self.prefill_log = RequestLog(), RequestLog()  # all requests, and their prompts as prefill workers see them
        self.disaggregated = any(one.role == "prefill" for one in fleet.pools)
        self.schedulers: list[Scheduler] = []
        self.machines: list[ReplicaMachine] = []
        self.machine_of: list[int] = []  # machine index by scheduler index
        self.events: list[tuple[float, int, int, int]] = []
        slots = self._add_machines()
        self.router = Router(fleet, self.schedulers, self.machines)
        self.transfers = TransferQueues([fleet.pools[one.pool].port for one in self.machines])
        self.lifecycle = SpotLifecycle(fleet.interruptions, slots, self)
        self.source: dict[int, int] = {}  # prefill worker that holds a request's KV cache until it is sent, by request
        self.target: dict[int, int] = {}  # decode worker that a request was offered to, by request
        self.sending: dict[int, int] = {}  # number of the transfer under way, by request
        self.unrouted: list[int] = []  # requests that arrived while no scheduler was open
        self.unoffered: list[int] = []  # prefilled requests that found no open decode worker
        self.tries: dict[int, int] = {}
        self.answered = [0] * len(fleet.pools)
        self.refused = self.lost = self.retried = self.unfinished = 0
        self.draining: set[int] = set()
        self.now = self.last_arrival = 0.0

    def _add_machines(self) -> list[SpotSlot]:
        """Add all machines and their schedulers; return the spot machines with their on-demand fallbacks."""
        slots: list[SpotSlot] = []
        for pool, one in enumerate(self.fleet.pools):
            for replica in range(one.replicas):
                spot = replica < one.spot
                machine = self._add_machine(pool, spot, True)
                if spot:
                    fallback = self._add_machine(pool, False, False) if self.fleet.interruptions.fallback else None
                    slots.append(SpotSlot(machine, fallback, np.random.default_rng([self.fleet.seed, 7, len(slots)])))
        return slots

    def _add_machine(self, pool: int, spot: bool, running: bool) -> int:
        one, first, machine = self.fleet.pools[pool], len(self.schedulers), len(self.machines)
        server, log = one.server, self.prefill_log if one.role == "prefill" else self.log
        for _ in range(server.stages):
            self.schedulers.append(SCHEDULERS[one.role](server.steps, server.batch_limits, log, self.hash_tokens))
            self.machine_of.append(machine)
        schedulers = range(first, len(self.schedulers))
        self.machines.append(ReplicaMachine(pool, schedulers, spot, running, 0.0 if running else None))
        return machine

    def serve(self, arrivals: Iterable[Arrival], misses: MissLimit | None = None) -> bool:
        """Start each request at its arrival time, then run until all have finished; return False if too many missed a limit."""
        events, outside = self.events, self.schedulers[0].limits.request_latency
        for number, (time, prompt, output, hashes) in enumerate(arrivals):
            while events and events[0][0] <= time:
                self._next_event()
            if misses and not number % CHECKED_ARRIVALS and misses.exceeded(self.log, time, outside):
                return False
            self._arrive(time, prompt, output, hashes)
        while events and self.unfinished:
            self._next_event()
        return True

    def _arrive(self, time: float, prompt: int, output: int, hashes: Hashes) -> None:
        if not self.last_arrival <= time < inf or prompt < 1 or output < 1:
            raise UsageError("bad-arrival", msg("fleet.arrival", time=time, prompt=prompt, output=output))
        self.last_arrival = self.now = time
        number = self.log.add(time, prompt, output, hashes)
        if self.disaggregated:
            self.prefill_log.add(time, prompt, 1, hashes)
        if not self.router.fits(prompt, output):
            self.refused += 1
            self._drop_hashes(number)
            return
        self.unfinished += 1
        self._enter(number, time)

    def _enter(self, number: int, now: float) -> None:
        index = self.router.entry(self.log.prompts[number], self.log.outputs[number])
        if index == NO_WORKER:
            self.unrouted.append(number)
            return
        scheduler = self.schedulers[index]
        if isinstance(scheduler, PrefillWorker):
            self.router.pending[index] += self.prefill_log.prompts[number]
            self.log.hashes.pop(number, None)
        if scheduler.accept(number, now):
            self._push_step(index)

    def _push_step(self, index: int) -> None:
        heappush(self.events, (self.schedulers[index].end, STEP_EVENT, index, 0))

    def _next_event(self) -> None:
        time, kind, index, code = heappop(self.events)
        if kind == STEP_EVENT:
            if time == self.schedulers[index].end:  # Otherwise the event is outdated: the steps were shortened.
                self.now = time
                self._end_step(index, time)
        elif kind == TRANSFER_EVENT:
            if self.sending.get(index) == code:
                self.now = time
                self._end_transfer(index, time)
        else:
            assert kind == LIFECYCLE_EVENT
            self.now = time
            self.lifecycle.process(index, code, time)

    def _end_step(self, index: int, now: float) -> None:
        scheduler = self.schedulers[index]
        done = scheduler.complete()
        machine = self.machine_of[index]
        self.answered[self.machines[machine].pool] += len(done)
        if isinstance(scheduler, PrefillWorker):
            for number in done:
                self.router.pending[index] -= self.prefill_log.prompts[number]
                self._end_prefill(number, index, scheduler, now)
        else:
            self.unfinished -= len(done)
        scheduler.plan(now)
        if scheduler.end < inf:
            self._push_step(index)
        if isinstance(scheduler, DecodeWorker) and scheduler.offered:
            self._send_ready(index, scheduler, now)
        self._stop_if_drained(machine, now)

    def _end_prefill(self, number: int, index: int, worker: PrefillWorker, now: float) -> None:
        """Record the first token of a request, and offer its decoding to a decode worker."""
        log = self.log
        if log.first[number] < 0:
            log.first[number] = now
        log.generated[number] += 1
        if log.generated[number] < log.outputs[number]:
            self.source[number] = index
            self._offer(number, now)
            return
        log.finished[number] = now
        self.unfinished -= 1
        self._drop_hashes(number)
        worker.release(number, now)  # The return value is unused because the caller plans the next step anyway.

    def _offer(self, number: int, now: float) -> None:
        pool = self.machines[self.machine_of[self.source[number]]].pool
        index = self.router.decode_worker(pool, self.log.prompts[number] + self.log.outputs[number])
        if index == NO_WORKER:
            self.unoffered.append(number)
            return
        worker = self._decode_worker(index)
        worker.load += 1
        worker.offered.append(number)
        self.target[number] = index
        self._send_ready(index, worker, now)

    def _send_ready(self, index: int, worker: DecodeWorker, now: float) -> None:
        for number in worker.reserve():
            machines = self.machine_of[self.source[number]], self.machine_of[index]
            end = self.transfers.send(*machines, worker.context(number), now)
            self.sending[number] = self.transfers.count
            heappush(self.events, (end, TRANSFER_EVENT, number, self.transfers.count))

    def _end_transfer(self, number: int, now: float) -> None:
        del self.sending[number]
        self._release_source(number, now)
        index = self.target.pop(number)
        if self._decode_worker(index).receive(number, now):
            self._push_step(index)

    def _release_source(self, number: int, now: float) -> None:
        """Free the KV blocks that a request holds at its prefill worker."""
        index = self.source.pop(number)
        worker = self.schedulers[index]
        assert isinstance(worker, PrefillWorker)
        if worker.release(number, now):
            self._push_step(index)
        self._stop_if_drained(self.machine_of[index], now)

    def _decode_worker(self, index: int) -> DecodeWorker:
        worker = self.schedulers[index]
        assert isinstance(worker, DecodeWorker)
        return worker

    def _drop_hashes(self, number: int) -> None:
        self.log.hashes.pop(number, None)
        self.prefill_log.hashes.pop(number, None)

    def opened(self, machine: int, now: float) -> None:
        """Let a machine accept requests, beginning with those that found no open machine."""
        self.machines[machine].open = True
        self.draining.discard(machine)
        self.router.update()
        unrouted, self.unrouted = self.unrouted, []
        for number in unrouted:
            self._enter(number, now)
        unoffered, self.unoffered = self.unoffered, []
        for number in unoffered:
            self._offer(number, now)

    def closed(self, machine: int, now: float) -> None:
        """Stop routing requests to a machine; an on-demand fallback is given back when its requests have finished."""
        self.machines[machine].open = False
        self.router.update()
        if not self.machines[machine].spot:
            self.draining.add(machine)
            self._stop_if_drained(machine, now)

    def _stop_if_drained(self, machine: int, now: float) -> None:
        own = (self.schedulers[index] for index in self.machines[machine].schedulers)
        if machine in self.draining and all(not one.load and not one.in_transfer for one in own):
            self.draining.discard(machine)
            self.machines[machine].stop(now)

    def interrupted(self, machine: int, now: float) -> None:
        """Restart the requests of a lost machine elsewhere, and offer the KV caches being sent to it to other workers."""
        restarted: list[int] = []
        offered: list[int] = []
        for index in self.machines[machine].schedulers:
            scheduler = self.schedulers[index]
            if isinstance(scheduler, PrefillWorker):
                restarted += self._withdraw_unsent(scheduler)
                self.router.pending[index] = 0
            if isinstance(scheduler, DecodeWorker):
                offered += [one for one in (*scheduler.offered, *scheduler.receiving) if one in self.source]
                restarted += scheduler.received
            restarted += stop_scheduler(scheduler, now)
        self.transfers.reset_port(machine, now)
        for number in sorted(restarted):
            self._restart(number, now)
        for number in sorted(offered):
            begun = self.sending.pop(number, None) is not None
            self.target.pop(number, None)
            if begun and self._give_up(number):
                self._release_source(number, now)
            else:
                self._offer(number, now)

    def _withdraw_unsent(self, worker: PrefillWorker) -> list[int]:
        """Withdraw the unsent requests of a lost prefill worker from their decode workers and return them."""
        for number in worker.unsent:
            del self.source[number]
            self.sending.pop(number, None)
            index = self.target.pop(number, None)
            if index is None:
                self.unoffered.remove(number)
                continue
            target = self._decode_worker(index)
            target.load -= 1
            if number in target.receiving:
                target.used -= target.receiving.pop(number)
                target.in_transfer -= 1
            else:
                target.offered.remove(number)
        return list(worker.unsent)

    def _restart(self, number: int, now: float) -> None:
        """Restart a request with the tokens generated so far, or give it up."""
        if self._give_up(number):
            return
        if self.disaggregated:
            self.prefill_log.prompts[number] = self.log.prompts[number] + self.log.generated[number]
            self.prefill_log.generated[number] = 0
        self._enter(number, now)

    def _give_up(self, number: int) -> bool:
        """Count a retry of a request; return whether it has exceeded the limit and is lost."""
        tries = self.tries[number] = self.tries.get(number, 0) + 1
        if tries <= self.fleet.interruptions.retries:
            self.retried += 1
            return False
        self.lost += 1
        self.unfinished -= 1
        self._drop_hashes(number)
        return True

    def outcome(self) -> FleetOutcome:
        """Return the outcome after all requests have finished."""
        end = max(max(self.log.finished, default=0.0), self.now)  # The last event may be the loss of a request.
        served = simulation_outcome(self.log, self.schedulers, self.refused, end)
        sent = max(1, self.transfers.count)
        transfers = Transfers(
            self.transfers.count, self.transfers.bytes, self.transfers.seconds / sent, self.transfers.waited / sent
        )
        uses = tuple(self._pool_use(index, end) for index in range(len(self.fleet.pools)))
        return FleetOutcome(served, uses, transfers, end, self.lost, self.retried, self.lifecycle.interrupted)

    def _pool_use(self, index: int, end: float) -> PoolUse:
        pool = self.fleet.pools[index]
        machines = [one for one in self.machines if one.pool == index]
        own = [self.schedulers[at] for one in machines for at in one.schedulers]
        seconds, busy = sum_ragged([one.batch_seconds for one in own]), float(sum(one.busy for one in own))
        return PoolUse(
            name=pool.name, role=pool.role, replicas=pool.replicas, gpus=pool.gpus, answered=self.answered[index],
            busy_seconds=busy / pool.server.stages,
            on_demand_seconds=sum(one.seconds(end) for one in machines if not one.spot),
            spot_seconds=sum(one.seconds(end) for one in machines if one.spot),
            peak_cache=max(one.peak / one.blocks for one in own),
            mean_batch=float((np.arange(len(seconds)) * seconds).sum() / max(1e-12, seconds.sum())),
        )  # fmt: skip
