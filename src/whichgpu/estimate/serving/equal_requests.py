"""Requests all of one length on one lane: what `simulator` does with them, in a single loop that takes a third of the time.

Who comes first is done first there, so queues are counters. Where memory runs so short that a sequence is thrown out, there is
no answer, and the simulator is to be asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.estimate.serving.step_tables import StepTables


def simulate_equal_requests(
    times: Sequence[float], prompt: int, output: int, steps: StepTables, limits: SchedulerLimits
) -> SimulationOutcome | None:
    """Requests that come at these times; None where the simulator is to be asked."""
    size, blocks, most = limits.block_tokens, limits.cache_tokens // limits.block_tokens, limits.max_sequences
    reserve, mixed, chunked = limits.reserve_answers, limits.mixed_steps, limits.chunked_prefill
    needs = -(-(prompt + output) // size) if reserve else -(-prompt // size)
    whole = -(-(prompt + output) // size)
    if whole * size > limits.cache_tokens:
        return None
    left = output - 1  # tokens after the first
    ended = whole if reserve else -(-(prompt + left) // size)  # blocks of a sequence at its end
    count = len(times)
    first, finished = [-1.0] * count, [-1.0] * count
    batch_seconds, batch_steps = [0.0] * (most + 1), [0] * (most + 1)
    phases = [0] * size  # sequences by how far they are into their last block
    reading: list[list[int]] = []  # number, tokens read
    ends: deque[tuple[int, int]] = deque()  # turn at which it ends, number
    arrived = taken = running = total = turn = used = peak = read = 0
    busy, now = 0.0, 0.0
    run, both, one, longest = steps.run, steps.mixed, steps.reading(prompt), limits.max_batched_tokens

    def growth(turns: int) -> int:
        """Blocks the batch takes in so many turns."""
        rounds, rest = divmod(turns, size)
        if not rest:
            return rounds * running
        last = -turn % size
        start = last - rest + 1
        return rounds * running + (sum(phases[start : last + 1]) if start >= 0 else sum(phases[: last + 1]) + sum(phases[start:]))

    while True:
        # What comes next, and until when.
        if not reserve and used + running > blocks and used + growth(1) > blocks:
            return None
        chunks: list[tuple[list[int], int]] = []
        if reading or taken < arrived:
            budget = longest - (running if mixed else 0)
            for entry in reading:
                part = min(prompt - entry[1], budget)
                if part <= 0:
                    break
                chunks.append((entry, part))
                budget -= part
            else:
                grown = -1
                while taken < arrived and budget > 0 and running + len(reading) < most:
                    if used + running + needs > blocks and (running or reading):
                        if grown < 0:
                            grown = 0 if reserve else growth(1)
                        if used + grown + needs > blocks:
                            break
                    if prompt > budget and not chunked and chunks:
                        break
                    used += needs
                    entry = [taken, 0]
                    taken += 1
                    reading.append(entry)
                    part = min(prompt, budget)
                    chunks.append((entry, part))
                    budget -= part
                if used > peak:
                    peak = used
        if chunks:
            beside = running if mixed else 0
            context = total / beside if beside else 0.0
            turns, stepping, slope = 1, beside > 0, 0.0
            if len(chunks) == 1 and chunks[0][1] == prompt:
                step = one(beside, context)
            else:
                tokens = work = 0
                for entry, part in chunks:
                    tokens += part
                    work += part * (2 * entry[1] + part)
                step = both(tokens, (work / tokens - tokens) / 2, beside, context)
            end = now + step
        elif running:
            turns, stepping = ends[0][0] - turn, True
            if not reserve and used + running * (turns // size + 1) > blocks and used + growth(turns) > blocks:
                return None
            step, last = run(running, total / running, turns)
            slope = (last - step) / (turns - 1) if turns > 1 else 0.0
            end = now + turns * (step + last) / 2
        elif arrived < count:
            now = times[arrived]
            arrived += 1
            continue
        else:
            break
        # Those who come meanwhile; the first of them ends a run of equal steps where there is room for it.
        while arrived < count and times[arrived] < end:
            came = times[arrived]
            arrived += 1
            if turns < 2 or arrived - taken > 1 or running + len(reading) >= most or used + needs > blocks:
                continue
            passed = came - now
            some = min(turns, max(1, int(passed / (step + slope * turns / 2))))
            while some * (step + slope * (some - 1) / 2) < passed and some < turns:
                some += 1
            while some > 1 and (some - 1) * (step + slope * (some - 2) / 2) >= passed:
                some -= 1
            if some < turns:
                turns = some
                end = now + some * (step + slope * (some - 1) / 2)
        # It is done.
        busy += end - now
        batch_seconds[running] += end - now
        now = end
        if stepping:
            batch_steps[running] += turns
            if not reserve:
                used += phases[-turn % size] if turns == 1 else growth(turns)
                if used > peak:
                    peak = used
            total += turns * running
            turn += turns
            while ends and ends[0][0] <= turn:
                over, number = ends.popleft()
                phases[(prompt - over + left) % size] -= 1
                running -= 1
                total -= prompt + left
                used -= ended
                finished[number] = now
        for entry, part in chunks:
            entry[1] += part
            read += part
            if entry[1] < prompt:
                continue
            number = entry[0]
            first[number] = now
            if left <= 0:
                used -= ended
                finished[number] = now
                continue
            running += 1
            total += prompt
            phases[(prompt - turn) % size] += 1
            ends.append((turn + left, number))
        if chunks:
            reading = [entry for entry in reading if entry[1] < prompt]
    arrivals, done = np.asarray(times, dtype=float), np.asarray(finished)
    span = float(done.max() - arrivals[0]) if count else 0.0
    return SimulationOutcome(
        arrived=arrivals, first=np.asarray(first), finished=done, prompts=np.full(count, prompt), outputs=np.full(count, output),
        refused=0, preempted=0, recomputed=0, read=read, cached=0, busy=busy / span if span > 0 else 0.0,
        peak_cache=peak / blocks, batch_seconds=np.asarray(batch_seconds), batch_steps=np.asarray(batch_steps),
    )  # fmt: skip
