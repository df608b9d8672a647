"""Scheduler of one engine with continuous batching, as in vLLM: the next step, its duration, and the requests that finish.

Decode steps in which only the context lengths change are simulated together, up to the next arrival, finish or shortage of KV
blocks. For each running sequence the scheduler stores the step at which it ends; it counts KV blocks by how full each
sequence's last block is.
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
    """Log of simulated requests as columns, in order of arrival; times in seconds from the start, -1 before they happen."""

    def __init__(self) -> None:
        self.arrived, self.first, self.finished = array("d"), array("d"), array("d")
        self.prompts, self.outputs, self.generated = array("q"), array("q"), array("q")  # tokens of each request
        self.hashes: dict[int, Hashes] = {}  # prompt block hashes of the requests in the system
        self.refused: list[int] = []  # numbers of the requests that can never fit into the KV cache

    def add(self, arrived: float, prompt: int, output: int, hashes: Hashes = ()) -> int:
        """Add a request and return its number."""
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


class Prefill:
    """Prompt being prefilled: request number, tokens in the KV cache so far and at the end, order of admission."""

    __slots__ = ("done", "number", "order", "target")

    def __init__(self, number: int, done: int, target: int, order: int) -> None:
        self.number, self.done, self.target, self.order = number, done, target, order


class Scheduler:
    """Scheduler of one engine. `end` is the time in seconds at which its current steps end; `load` is its number of requests."""

    def __init__(
        self,
        steps: StepTables,
        limits: SchedulerLimits,
        log: RequestLog,
        hash_tokens: int = 0,
        pipeline: list[float] | None = None,
    ) -> None:
        self.steps, self.limits, self.log = steps, limits, log
        self.pipeline = pipeline  # times at which the replica's pipeline stages are free, shared by the schedulers of its batches
        self.blocks = limits.cache_tokens // limits.block_tokens
        self.prefix_cache = PrefixCache(limits.cache_tokens, hash_tokens) if limits.prefix_caching and hash_tokens else None
        self.turn = self.order = 0
        self.preempted = self.recomputed = self.read = self.hits = self.peak = 0
        self.busy = 0.0
        self.batch_seconds, self.batch_steps = [0.0] * (limits.max_sequences + 1), [0] * (limits.max_sequences + 1)
        self.reset()

    def reset(self) -> None:
        """Drop all requests and the KV cache; statistics stay."""
        self.waiting: deque[int] = deque()
        self.prefilling: list[Prefill] = []
        self.ends: list[tuple[int, int]] = []  # heap of running sequences: (number of the last decode step, request number)
        self.joined: dict[int, tuple[int, int, int]] = {}  # by request: decode step and context at joining, order of admission
        self.phases = [0] * self.limits.block_tokens  # running sequences by (context - decode steps so far) modulo block size
        self.chunks: list[tuple[Prefill, int]] = []  # prefill chunks of the current step and their tokens
        self.running = self.context_total = self.used = self.load = 0
        self.in_transfer = 0  # sequences that hold KV blocks on their way to or from another engine
        self.count, self.start, self.end, self.step, self.slope = 0, 0.0, inf, 0.0, 0.0  # of decode steps simulated together
        self.decoding = False
        # The next step takes in requests that arrived by this time, in seconds: all, unless steps are scheduled ahead.
        self.seen_until = 0.0 if self.limits.schedules_ahead else inf
        if self.prefix_cache:
            self.prefix_cache.clear()

    def accept(self, number: int, now: float) -> bool:
        """Add a request to the waiting queue; return whether the end of the current steps (`end`) has changed."""
        self.load += 1
        self.waiting.append(number)
        if self.end == inf:
            self.plan(now)
            return True
        if self.count < 2 or len(self.waiting) > 1 or self.running + len(self.prefilling) >= self.limits.max_sequences:
            return False
        return self.used + self._admission_blocks(number) <= self.blocks and self._shorten(now)

    def _admission_blocks(self, number: int) -> int:
        """Return the KV blocks that a request takes at admission."""
        return self._blocks_of(number, self.log.prompts[number] + self.log.generated[number])

    def _blocks_of(self, number: int, context: int) -> int:
        """Return the KV blocks of a sequence with `context` tokens cached, or of the whole sequence if outputs are reserved."""
        if self.limits.reserve_answers:
            context = self.log.prompts[number] + self.log.outputs[number]
        return -(-context // self.limits.block_tokens)

    def _seconds_of(self, turns: int) -> float:
        """Return the seconds of the first `turns` of the decode steps that are simulated together."""
        return turns * (self.step + self.slope * (turns - 1) / 2)

    def _shorten(self, now: float) -> bool:
        """End the steps simulated together so that the next one takes in a request; return whether some were cut off.

        That is after the step during which it arrives, or one later if that next step is already scheduled.
        """
        elapsed = now - self.start
        turns = min(self.count, max(1, int(elapsed / (self.step + self.slope * self.count / 2))))
        while self._seconds_of(turns) < elapsed and turns < self.count:
            turns += 1
        while turns > 1 and self._seconds_of(turns - 1) >= elapsed:
            turns -= 1
        turns += self.limits.schedules_ahead
        if turns >= self.count:
            return False
        self.count = turns
        self.end = self.start + self._seconds_of(turns)
        return True

    def plan(self, now: float) -> None:
        """Schedule the next step, or several decode steps to simulate together, and set the time at which they end."""
        self.start = now
        limits, steps = self.limits, self.steps
        if self.used + self.running > self.blocks:  # A decode step adds one block per sequence at most.
            while self._exceeds_blocks(1):
                self._preempt()
        if limits.schedules_ahead and not (self.running or self.prefilling):
            self.seen_until = now  # Nothing could be scheduled ahead.
        self.chunks = chunks = self._schedule_chunks() if self.prefilling or self.waiting else []
        batch = self.running
        if chunks:
            tokens = work = 0
            for prefill, size in chunks:
                tokens += size
                work += size * (2 * prefill.done + size)
            reach = (work / tokens - tokens) / 2
            running = batch if limits.mixed_steps else 0
            self.count, self.decoding = 1, running > 0
            self.step = steps.mixed(tokens, reach, running, self.context_total / running if running else 0.0)
            self.slope, self.end = 0.0, self._through_pipeline(now) if self.pipeline else now + self.step
            return
        if not batch:
            self.count, self.end, self.decoding = 0, inf, False
            return
        turns = 1 if self.pipeline or (self.waiting and self._unseen()) else self.ends[0][0] - self.turn
        if self.used + batch * (turns // limits.block_tokens + 1) > self.blocks and self._exceeds_blocks(turns):
            turns = self._affordable_turns(turns)
        first, last = steps.run(batch, self.context_total / batch, turns)
        self.step, self.slope = first, (last - first) / (turns - 1) if turns > 1 else 0.0
        self.count, self.decoding = turns, True
        self.end = self._through_pipeline(now) if self.pipeline else now + turns * (first + last) / 2

    def _unseen(self) -> bool:
        """Whether the first waiting request arrived after the next step was scheduled, while the step before it ran."""
        return self.log.arrived[self.waiting[0]] > self.seen_until

    def _through_pipeline(self, now: float) -> float:
        """Return the time at which a step leaves the last pipeline stage; at each stage it waits for the batch before it."""
        assert self.pipeline is not None
        stage_seconds, end = self.step / len(self.pipeline), now
        for stage, free in enumerate(self.pipeline):
            end = (free if free > end else end) + stage_seconds
            self.pipeline[stage] = end
        return end

    def _schedule_chunks(self) -> list[tuple[Prefill, int]]:
        """Return the prefill chunks of the next step: prompts already begun, then the waiting queue, first come first served."""
        limits, log = self.limits, self.log
        budget = limits.max_batched_tokens - (self.running if limits.mixed_steps else 0)
        chunks: list[tuple[Prefill, int]] = []
        for prefill in self.prefilling:
            size = min(prefill.target - prefill.done, budget)
            if size <= 0:
                return chunks
            chunks.append((prefill, size))
            budget -= size
        waiting = self.waiting
        while waiting and budget > 0 and self.running + len(self.prefilling) < limits.max_sequences:
            number = waiting[0]
            if log.arrived[number] > self.seen_until:
                break
            needs = self._admission_blocks(number)
            if (self.running or self.prefilling or self.in_transfer) and self._exceeds_blocks(1, needs):
                break
            target = log.prompts[number] + log.generated[number]
            hits = min(target - 1, int(limits.prefix_share * log.prompts[number]))
            if self.prefix_cache:
                hits = max(hits, self.prefix_cache.cached_tokens(log.hashes.get(number, ()), target - 1))
            left = target - hits
            if left > budget and not limits.chunked_prefill and chunks:
                break
            waiting.popleft()
            self.hits += hits
            self.used += needs
            self.order += 1
            prefill = Prefill(number, hits, target, self.order)
            self.prefilling.append(prefill)
            size = min(left, budget)
            chunks.append((prefill, size))
            budget -= size
        if self.used > self.peak:
            self.peak = self.used
        return chunks

    def complete(self) -> list[int]:
        """Finish the current step, or all steps simulated together; return the requests that finished with them."""
        now, batch, turns = self.end, self.running, self.count
        done: list[int] = []
        if self.limits.schedules_ahead:
            self.seen_until = self.start + self._seconds_of(turns - 1) if turns > 1 else self.start
        elapsed = now - self.start
        self.busy += elapsed
        self.batch_seconds[batch] += elapsed
        if self.decoding:
            self.batch_steps[batch] += turns
            if not self.limits.reserve_answers:
                self.used += self._growth(turns)
                if self.used > self.peak:
                    self.peak = self.used
            self.context_total += turns * batch
            self.turn += turns
            ends = self.ends
            while ends and ends[0][0] <= self.turn:
                number = heappop(ends)[1]
                self._leave_batch(number)
                self.log.generated[number] = self.log.outputs[number]
                self._finish(number, now, done)
        if self.chunks:
            self._complete_chunks(now, done)
        return done

    def _complete_chunks(self, now: float, done: list[int]) -> None:
        """Advance prefills by their chunks; a complete prefill yields an output token."""
        log, ended = self.log, False
        for prefill, size in self.chunks:
            prefill.done += size
            self.read += size
            if prefill.done < prefill.target:
                continue
            ended = True
            number = prefill.number
            if self.prefix_cache and number in log.hashes:
                self.prefix_cache.insert(log.hashes[number])
            if log.first[number] < 0:
                log.first[number] = now
            log.generated[number] += 1
            left = log.outputs[number] - log.generated[number]
            if left <= 0:
                self._release_prompt(number, prefill.target)
                self._finish(number, now, done)
                continue
            self._join_batch(number, prefill.target, prefill.order, left)
        if ended:
            self.prefilling = [one for one in self.prefilling if one.done < one.target]
        self.chunks = []

    def _join_batch(self, number: int, context: int, order: int, left: int) -> None:
        """Add a sequence with `context` tokens in the KV cache and `left` tokens still to generate to the running sequences."""
        self.running += 1
        self.context_total += context
        self.joined[number] = self.turn, context, order
        self.phases[(context - self.turn) % self.limits.block_tokens] += 1
        heappush(self.ends, (self.turn + left, number))

    def _release_prompt(self, number: int, context: int) -> None:
        """Free the KV blocks of a request with a single output token."""
        self.used -= self._blocks_of(number, context)

    def _finish(self, number: int, now: float, done: list[int]) -> None:
        self.load -= 1
        self.log.finished[number] = now
        self.log.hashes.pop(number, None)
        done.append(number)

    def _leave_batch(self, number: int) -> int:
        """Remove a running sequence and free its KV blocks; return its context in tokens."""
        turn, context, _ = self.joined.pop(number)
        self.phases[(context - turn) % self.limits.block_tokens] -= 1
        context += self.turn - turn
        self.running -= 1
        self.context_total -= context
        self.used -= self._blocks_of(number, context)
        return context

    def _preempt(self) -> None:
        """Preempt the sequence admitted last: it returns to the front of the waiting queue, and its output is recomputed."""
        self.preempted += 1
        if self.prefilling:
            prefill = self.prefilling.pop()
            number = prefill.number
            self.used -= self._blocks_of(number, prefill.target)
            self.recomputed += prefill.done
        else:
            number = max(self.joined, key=lambda one: self.joined[one][2])
            left = next(turn for turn, one in self.ends if one == number) - self.turn
            self.ends = [entry for entry in self.ends if entry[1] != number]
            heapify(self.ends)
            self.recomputed += self._leave_batch(number)
            self.log.generated[number] = self.log.outputs[number] - left
        self.waiting.appendleft(number)

    def _exceeds_blocks(self, turns: int, more: int = 0) -> bool:
        """Whether the batch after `turns` more steps, together with `more` blocks, exceeds the KV blocks available."""
        if self.limits.reserve_answers:
            return self.used + more > self.blocks
        bound = self.running * (turns // self.limits.block_tokens + 1)  # This upper bound avoids the slower exact count.
        return self.used + bound + more > self.blocks and self.used + self._growth(turns) + more > self.blocks

    def _growth(self, turns: int) -> int:
        """Return the KV blocks that the batch adds in `turns` decode steps: one per sequence whenever its last block is full."""
        size, phases = self.limits.block_tokens, self.phases
        if turns == 1:
            return phases[-self.turn % size]
        rounds, rest = divmod(turns, size)
        blocks = rounds * self.running
        if rest:
            last = -self.turn % size
            first = last - rest + 1
            blocks += sum(phases[first : last + 1]) if first >= 0 else sum(phases[: last + 1]) + sum(phases[first:])
        return blocks

    def _affordable_turns(self, turns: int) -> int:
        """Return the most decode steps, up to `turns`, for which there are KV blocks; at least one."""
        low, high = 1, turns
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.used + self._growth(middle) <= self.blocks else (low, middle)
        return low
