"""One engine at work: what it schedules next, how long that takes, who is done then.

Steps in which nothing changes but the length of every answer are taken together: from one arrival, end or lack of memory to
the next. A sequence in the decode phase is known by the turn at which it ends; the cache's blocks are counted by how far each
sequence is into its last block.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from whichgpu.estimate.serving.prefix_cache import PrefixCache
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.step_tables import StepTables

Hashes = Sequence[int]


class RequestLog:
    """What happened to every request, in the order they came; seconds from the start."""

    __slots__ = ("arrived", "finished", "first", "generated", "hashes", "outputs", "prompts")

    def __init__(self) -> None:
        self.arrived, self.first, self.finished = array("d"), array("d"), array("d")
        self.prompts, self.outputs, self.generated = array("q"), array("q"), array("q")
        self.hashes: dict[int, Hashes] = {}  # of those in the system

    def add(self, arrived: float, prompt: int, output: int, hashes: Hashes = ()) -> int:
        """A new request's number."""
        number = len(self.arrived)
        self.arrived.append(arrived)
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.first.append(-1.0)
        self.finished.append(-1.0)
        self.generated.append(0)
        if hashes:
            self.hashes[number] = hashes
        return number


class Scheduler:
    """A lane: the state of one engine's scheduler. `end` is when what it is doing is done; `load` the requests it has."""

    __slots__ = (
        "batch_seconds",
        "batch_steps",
        "blocks",
        "busy",
        "chunks",
        "count",
        "end",
        "heap",
        "held",
        "hits",
        "joined",
        "ledger",
        "limits",
        "load",
        "order",
        "peak",
        "phases",
        "pipeline",
        "preempted",
        "prefilling",
        "prefixes",
        "read",
        "recomputed",
        "running",
        "slope",
        "start",
        "step",
        "stepping",
        "steps",
        "total",
        "turn",
        "used",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        steps: StepTables,
        limits: SchedulerLimits,
        ledger: RequestLog,
        hash_tokens: int = 0,
        pipeline: list[float] | None = None,
    ) -> None:
        self.steps, self.limits, self.ledger = steps, limits, ledger
        self.pipeline = pipeline  # when each stage of the copy is free, where its lanes follow one another through several
        self.blocks = limits.cache_tokens // limits.block_tokens
        self.waiting: deque[int] = deque()
        self.prefilling: list[list[int]] = []  # number, tokens in the cache, tokens to read, order
        self.heap: list[tuple[int, int]] = []  # turn at which it ends, number
        self.joined: dict[int, tuple[int, int, int]] = {}  # turn, context then, order
        self.phases = [0] * limits.block_tokens
        self.chunks: list[tuple[list[int], int]] = []
        self.running = self.total = self.turn = self.used = self.load = self.order = 0
        self.held = 0  # sequences that take room without being at work: on their way to or from another engine
        self.count, self.start, self.end, self.step, self.slope = 0, 0.0, inf, 0.0, 0.0
        self.stepping = False
        self.preempted = self.recomputed = self.read = self.hits = self.peak = 0
        self.busy = 0.0
        self.batch_seconds, self.batch_steps = [0.0] * (limits.max_sequences + 1), [0] * (limits.max_sequences + 1)
        self.prefixes = PrefixCache(limits.cache_tokens, hash_tokens) if limits.prefix_caching and hash_tokens else None

    def accept(self, number: int, now: float) -> bool:
        """Take a request; whether `end` has changed by it."""
        self.load += 1
        self.waiting.append(number)
        if self.end == inf:
            self.plan(now)
            return True
        if self.count < 2 or len(self.waiting) > 1 or not self._admits(number):
            return False
        return self._shorten(now)

    def _admits(self, number: int) -> bool:
        if self.running + len(self.prefilling) >= self.limits.max_sequences:
            return False
        return self.used + self._needs(number) <= self.blocks

    def _needs(self, number: int) -> int:
        """Blocks a request takes when it starts."""
        ledger, size = self.ledger, self.limits.block_tokens
        if self.limits.reserve_answers:
            return -(-(ledger.prompts[number] + ledger.outputs[number]) // size)
        return -(-(ledger.prompts[number] + ledger.generated[number]) // size)

    def _shorten(self, now: float) -> bool:
        """End the run of equal steps with the one during which somebody came."""
        passed = now - self.start
        step, slope = self.step, self.slope
        turns = min(self.count, max(1, int(passed / (step + slope * self.count / 2))))
        while turns * (step + slope * (turns - 1) / 2) < passed and turns < self.count:
            turns += 1
        while turns > 1 and (turns - 1) * (step + slope * (turns - 2) / 2) >= passed:
            turns -= 1
        if turns >= self.count:
            return False
        self.count = turns
        self.end = self.start + turns * (step + slope * (turns - 1) / 2)
        return True

    def plan(self, now: float) -> None:
        """Decide what comes next, and until when."""
        self.start = now
        limits, steps = self.limits, self.steps
        if self.running and not limits.reserve_answers:
            while self.used + self._growth(1) > self.blocks:
                self._preempt()
        chunks = self._schedule() if self.prefilling or self.waiting else []
        self.chunks = chunks
        batch = self.running
        if chunks:
            tokens = work = 0
            for entry, size in chunks:
                tokens += size
                work += size * (2 * entry[1] + size)
            reach = (work / tokens - tokens) / 2
            beside = batch if limits.mixed_steps else 0
            self.count, self.stepping = 1, beside > 0
            self.step = steps.mixed(tokens, reach, beside, self.total / beside if beside else 0.0)
            self.slope, self.end = 0.0, self._through(now) if self.pipeline else now + self.step
            return
        if not batch:
            self.count, self.end, self.stepping = 0, inf, False
            return
        turns = 1 if self.pipeline else self.heap[0][0] - self.turn
        if not limits.reserve_answers and self.used + self._growth(turns) > self.blocks:
            turns = self._affordable(turns)
        context = self.total / batch
        first = steps.decode(batch, context)
        last = steps.decode(batch, context + turns - 1) if turns > 1 else first
        self.step, self.slope = first, (last - first) / (turns - 1) if turns > 1 else 0.0
        self.count, self.stepping = turns, True
        self.end = self._through(now) if self.pipeline else now + turns * (first + last) / 2

    def _through(self, now: float) -> float:
        """When a step comes out of the last stage: at each it waits for the batch before it, however long that one takes."""
        assert self.pipeline is not None
        each, end = self.step / len(self.pipeline), now
        for stage, free in enumerate(self.pipeline):
            end = (free if free > end else end) + each
            self.pipeline[stage] = end
        return end

    def _schedule(self) -> list[tuple[list[int], int]]:
        """Chunks of prompts of the next step: those begun, then those that wait, first come first served."""
        limits, ledger = self.limits, self.ledger
        budget = limits.max_batched_tokens - (self.running if limits.mixed_steps else 0)
        chunks: list[tuple[list[int], int]] = []
        for entry in self.prefilling:
            size = min(entry[2] - entry[1], budget)
            if size <= 0:
                return chunks
            chunks.append((entry, size))
            budget -= size
        waiting, growth = self.waiting, 0 if limits.reserve_answers else self._growth(1)
        while waiting and budget > 0 and self.running + len(self.prefilling) < limits.max_sequences:
            number = waiting[0]
            needs = self._needs(number)
            if self.used + growth + needs > self.blocks and (self.running or self.prefilling or self.held):
                break
            target = ledger.prompts[number] + ledger.generated[number]
            found = self.prefixes.found(ledger.hashes.get(number, ()), target - 1) if self.prefixes else 0
            left = target - found
            if left > budget and not limits.chunked_prefill and chunks:
                break
            waiting.popleft()
            self.hits += found
            self.used += needs
            self.order += 1
            entry = [number, found, target, self.order]
            self.prefilling.append(entry)
            size = min(left, budget)
            chunks.append((entry, size))
            budget -= size
        if self.used > self.peak:
            self.peak = self.used
        return chunks

    def complete(self) -> list[int]:
        """What is being done is done: who has finished by it."""
        ledger, now, batch = self.ledger, self.end, self.running
        done: list[int] = []
        self.busy += now - self.start
        self.batch_seconds[batch] += now - self.start
        if self.stepping:
            turns = self.count
            self.batch_steps[batch] += turns
            if not self.limits.reserve_answers:
                self.used += self._growth(turns)
                if self.used > self.peak:
                    self.peak = self.used
            self.total += turns * batch
            self.turn += turns
            heap = self.heap
            while heap and heap[0][0] <= self.turn:
                number = heappop(heap)[1]
                self._leave(number)
                ledger.generated[number] = ledger.outputs[number]
                self._finish(number, now, done)
        if self.chunks:
            self._progress(now, done)
        return done

    def _progress(self, now: float, done: list[int]) -> None:
        """Chunks are read; a prompt read to its end gives a token."""
        ledger, ended = self.ledger, False
        for entry, size in self.chunks:
            entry[1] += size
            self.read += size
            if entry[1] < entry[2]:
                continue
            ended = True
            number, target = entry[0], entry[2]
            if self.prefixes and number in ledger.hashes:
                self.prefixes.keep(ledger.hashes[number])
            if ledger.first[number] < 0:
                ledger.first[number] = now
            ledger.generated[number] += 1
            left = ledger.outputs[number] - ledger.generated[number]
            if left <= 0:
                self._let_go(number, target)
                self._finish(number, now, done)
                continue
            self._join(number, target, entry[3], left)
        if ended:
            self.prefilling = [entry for entry in self.prefilling if entry[1] < entry[2]]
        self.chunks = []

    def _join(self, number: int, context: int, order: int, left: int) -> None:
        """A sequence with so many tokens in the cache and so many to write enters the batch."""
        self.running += 1
        self.total += context
        self.joined[number] = self.turn, context, order
        self.phases[(context - self.turn) % self.limits.block_tokens] += 1
        heappush(self.heap, (self.turn + left, number))

    def _let_go(self, number: int, context: int) -> None:
        """The room of a prompt whose answer was one token."""
        self.used -= self._held(number, context)

    def _finish(self, number: int, now: float, done: list[int]) -> None:
        self.load -= 1
        self.ledger.finished[number] = now
        self.ledger.hashes.pop(number, None)
        done.append(number)

    def _leave(self, number: int) -> int:
        """Take a sequence out of the batch; its tokens in the cache."""
        turn, context, _ = self.joined.pop(number)
        size = self.limits.block_tokens
        self.phases[(context - turn) % size] -= 1
        context += self.turn - turn
        self.running -= 1
        self.total -= context
        self.used -= self._held(number, context)
        return context

    def _held(self, number: int, context: int) -> int:
        """Blocks a sequence has."""
        ledger, size = self.ledger, self.limits.block_tokens
        if self.limits.reserve_answers:
            context = ledger.prompts[number] + ledger.outputs[number]
        return -(-context // size)

    def _preempt(self) -> None:
        """Throw out whoever came last; it waits at the front and is read again, answer so far included."""
        self.preempted += 1
        if self.prefilling:
            number, read, target, _ = self.prefilling.pop()
            self.used -= self._held(number, target)
            self.recomputed += read
        else:
            number = max(self.joined, key=lambda one: self.joined[one][2])
            left = next(turn for turn, one in self.heap if one == number) - self.turn
            self.heap = [entry for entry in self.heap if entry[1] != number]
            heapify(self.heap)
            self.recomputed += self._leave(number)
            self.ledger.generated[number] = self.ledger.outputs[number] - left
        self.waiting.appendleft(number)

    def _growth(self, turns: int) -> int:
        """Blocks the batch takes in so many turns: one for each sequence whose last block is full when its turn comes."""
        size, phases = self.limits.block_tokens, self.phases
        rounds, rest = divmod(turns, size)
        grown = rounds * self.running
        if rest:
            last = -self.turn % size
            first = last - rest + 1
            grown += sum(phases[first : last + 1]) if first >= 0 else sum(phases[: last + 1]) + sum(phases[first:])
        return grown

    def _affordable(self, turns: int) -> int:
        """The most turns there is memory for; at least one."""
        low, high = 1, turns
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.used + self._growth(middle) <= self.blocks else (low, middle)
        return low
