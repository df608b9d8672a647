"""Engines with one half of the work: those that read prompts and hold what they read until it is sent, those that write answers
to prompts read elsewhere; and what is left of an engine's work when its machine goes."""

from __future__ import annotations

from collections import deque
from math import inf

from whichgpu.estimate.serving.scheduler import RequestLog, Scheduler
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.step_tables import StepTables


class PrefillWorker(Scheduler):
    """Reads prompts; its ledger knows answers of one token alone. A prompt read keeps its room until `release`."""

    __slots__ = ("kept",)

    def __init__(self, steps: StepTables, limits: SchedulerLimits, ledger: RequestLog, hash_tokens: int = 0) -> None:
        super().__init__(steps, limits, ledger, hash_tokens)
        self.kept: dict[int, int] = {}  # blocks by number

    def _let_go(self, number: int, context: int) -> None:
        self.kept[number] = self._held(number, context)
        self.held += 1

    def release(self, number: int, now: float) -> bool:
        """Its keys and values are elsewhere, or of no more use; whether `end` has changed by it."""
        self.used -= self.kept.pop(number)
        self.held -= 1
        if self.end == inf and self.waiting:
            self.plan(now)
            return True
        return False


class DecodeWorker(Scheduler):
    """Writes answers to prompts read elsewhere: it makes room, is sent keys and values, and goes on from there.

    A sequence thrown out for lack of room is read again here: it has the whole model.
    """

    __slots__ = ("expected", "landed", "landing")

    def __init__(self, steps: StepTables, limits: SchedulerLimits, ledger: RequestLog, hash_tokens: int = 0) -> None:
        super().__init__(steps, limits, ledger, hash_tokens)
        self.expected: deque[int] = deque()  # offered, without room yet
        self.landing: dict[int, int] = {}  # on their way, with the blocks kept for them
        self.landed: list[int] = []  # there, to join with the next step

    def context(self, number: int) -> int:
        """Tokens whose keys and values were sent: all but the last one written, which is still to be read."""
        return self.ledger.prompts[number] + self.ledger.generated[number] - 1

    def ready(self) -> list[int]:
        """Those for whom there is room now: they may be sent."""
        found: list[int] = []
        if self.waiting:  # thrown out: they come first
            return found
        growth = 0 if self.limits.reserve_answers else self._growth(1) if self.running else 0
        while self.expected:
            taken = self.running + len(self.prefilling) + self.held
            number = self.expected[0]
            context = self.context(number)
            blocks = self._held(number, context)
            room = self.used + growth + max(blocks, self._held(number, context + 1)) <= self.blocks
            if taken >= self.limits.max_sequences or not (room or not taken):
                break
            self.expected.popleft()
            self.landing[number] = blocks
            self.held += 1
            self.used += blocks
            found.append(number)
        if self.used > self.peak:
            self.peak = self.used
        return found

    def land(self, number: int, now: float) -> bool:
        """Keys and values have come; whether `end` has changed by it."""
        self.landed.append(number)
        if self.end == inf:
            self.plan(now)
            return True
        return self._shorten(now) if self.count > 1 else False

    def plan(self, now: float) -> None:
        ledger = self.ledger
        for number in self.landed:
            del self.landing[number]
            self.held -= 1
            self.order += 1
            self._join(number, self.context(number), self.order, ledger.outputs[number] - ledger.generated[number])
        self.landed.clear()
        super().plan(now)


def stop_scheduler(lane: Scheduler, now: float) -> list[int]:
    """Take all work from an engine whose machine goes: its requests, with the tokens they have got. It is then as new.

    Tokens of whole steps are with their users; a step under way is lost with all it was doing.
    """
    ledger = lane.ledger
    turns = 0
    if lane.end < inf and now > lane.start:
        lane.busy += now - lane.start
        lane.batch_seconds[lane.running] += now - lane.start
        if lane.stepping:
            turns = _turns(lane, now)
            lane.batch_steps[lane.running] += turns
    for turn, number in lane.heap:
        ledger.generated[number] = ledger.outputs[number] - max(1, turn - lane.turn - turns)
        lane.recomputed += lane.joined[number][1] + lane.turn + turns - lane.joined[number][0]
    for entry in lane.prefilling:
        lane.recomputed += entry[1]
    inside = [number for _, number in lane.heap] + [entry[0] for entry in lane.prefilling] + list(lane.waiting)
    lane.waiting.clear()
    lane.heap, lane.prefilling, lane.chunks = [], [], []
    lane.joined.clear()
    lane.phases = [0] * lane.limits.block_tokens
    lane.running = lane.total = lane.used = lane.load = lane.held = lane.count = 0
    lane.end, lane.stepping = inf, False
    if lane.prefixes:
        lane.prefixes.clear()
    if isinstance(lane, PrefillWorker):
        lane.kept.clear()
    if isinstance(lane, DecodeWorker):
        lane.expected.clear()
        lane.landing.clear()
        lane.landed.clear()
    return sorted(inside)


def _turns(lane: Scheduler, now: float) -> int:
    """Whole steps of the run under way that are done by now."""
    passed = now - lane.start
    low, high = 0, lane.count
    while low < high:
        middle = (low + high + 1) // 2
        if middle * (lane.step + lane.slope * (middle - 1) / 2) <= passed * (1 + 1e-12):
            low = middle
        else:
            high = middle - 1
    return low
