"""Schedulers of disaggregated serving: prefill workers, which hold KV blocks until they are sent, and decode workers, which
receive them; also the handling of a scheduler's requests when its machine is lost."""

from __future__ import annotations

from collections import deque
from math import inf

from whichgpu.estimate.serving.scheduler import Scheduler


class PrefillWorker(Scheduler):
    """Prefills prompts and generates one token of each. A prompt holds its KV blocks until `release`."""

    def reset(self) -> None:
        super().reset()
        self.unsent: dict[int, int] = {}  # KV blocks held by each prefilled request

    def _release_prompt(self, number: int, context: int) -> None:
        self.unsent[number] = self._blocks_of(number, context)
        self.in_transfer += 1

    def release(self, number: int, now: float) -> bool:
        """Free the KV blocks of a request that was sent or dropped; return whether that started a step, so that `end` is new."""
        self.used -= self.unsent.pop(number)
        self.in_transfer -= 1
        if self.end == inf and self.waiting:
            self.plan(now)
            return True
        return False


class DecodeWorker(Scheduler):
    """Decodes requests prefilled elsewhere: it reserves KV blocks, receives the KV cache and continues generation.

    A preempted sequence is recomputed on this worker, which has the complete model.
    """

    def reset(self) -> None:
        super().reset()
        self.offered: deque[int] = deque()  # offered requests that have no KV blocks yet
        self.receiving: dict[int, int] = {}  # reserved KV blocks of each request under way
        self.received: list[int] = []  # requests that join the batch at the next step

    def context(self, number: int) -> int:
        """Return the number of tokens whose keys and values are sent: all but the last one generated."""
        return self.log.prompts[number] + self.log.generated[number] - 1

    def reserve(self) -> list[int]:
        """Reserve KV blocks for offered requests; return the requests that may be sent now."""
        ready: list[int] = []
        if self.waiting:  # Preempted sequences come first.
            return ready
        growth = 0 if self.limits.reserve_answers else self._growth(1) if self.running else 0
        while self.offered:
            sequences = self.running + len(self.prefilling) + self.in_transfer
            number = self.offered[0]
            context = self.context(number)
            blocks = self._blocks_of(number, context)
            fits = self.used + growth + max(blocks, self._blocks_of(number, context + 1)) <= self.blocks
            if sequences >= self.limits.max_sequences or not (fits or not sequences):
                break
            self.offered.popleft()
            self.receiving[number] = blocks
            self.in_transfer += 1
            self.used += blocks
            ready.append(number)
        self.peak = max(self.peak, self.used)
        return ready

    def receive(self, number: int, now: float) -> bool:
        """Add a request whose KV cache has arrived; return whether the end of the current steps (`end`) has changed."""
        self.received.append(number)
        if self.end == inf:
            self.plan(now)
            return True
        return self._shorten(now) if self.count > 1 else False

    def plan(self, now: float) -> None:
        log = self.log
        for number in self.received:
            del self.receiving[number]
            self.in_transfer -= 1
            self.order += 1
            self._join_batch(number, self.context(number), self.order, log.outputs[number] - log.generated[number])
        self.received.clear()
        super().plan(now)


def stop_scheduler(scheduler: Scheduler, now: float) -> list[int]:
    """Reset the scheduler of a lost machine; return its requests, which keep the tokens generated so far.

    Tokens of completed steps have reached their users; a step under way is lost.
    """
    log = scheduler.log
    turns = 0
    if scheduler.end < inf and now > scheduler.start:
        scheduler.busy += now - scheduler.start
        scheduler.batch_seconds[scheduler.running] += now - scheduler.start
        if scheduler.decoding:
            turns = _completed_turns(scheduler, now)
            scheduler.batch_steps[scheduler.running] += turns
    for turn, number in scheduler.ends:
        log.generated[number] = log.outputs[number] - max(1, turn - scheduler.turn - turns)
        scheduler.recomputed += scheduler.joined[number][1] + scheduler.turn + turns - scheduler.joined[number][0]
    scheduler.recomputed += sum(one.done for one in scheduler.prefilling)
    requests = [number for _, number in scheduler.ends] + [one.number for one in scheduler.prefilling] + list(scheduler.waiting)
    scheduler.reset()
    return sorted(requests)


def _completed_turns(scheduler: Scheduler, now: float) -> int:
    """Return how many of the decode steps that are simulated together have ended by `now` seconds."""
    elapsed = now - scheduler.start
    low, high = 0, scheduler.count
    while low < high:
        middle = (low + high + 1) // 2
        if middle * (scheduler.step + scheduler.slope * (middle - 1) / 2) <= elapsed * (1 + 1e-12):
            low = middle
        else:
            high = middle - 1
    return low
