"""Requests of one length on one scheduler: the same outcome as `simulator` in a third of the time.

Requests finish in order of arrival, so queues are counters. If KV blocks run so short that a sequence is preempted there is no
outcome, and the caller runs the simulator.
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
    """Outcome of requests that arrive at these times; None if a request does not fit or one is preempted."""
    size, blocks, max_sequences = limits.block_tokens, limits.cache_tokens // limits.block_tokens, limits.max_sequences
    reserve, mixed, chunked = limits.reserve_answers, limits.mixed_steps, limits.chunked_prefill
    needs = -(-(prompt + output) // size) if reserve else -(-prompt // size)
    whole = -(-(prompt + output) // size)
    if whole * size > limits.cache_tokens:
        return None
    left = output - 1  # tokens after the first
    final = whole if reserve else -(-(prompt + left) // size)  # KV blocks of a sequence at its end
    count = len(times)
    first, finished = [-1.0] * count, [-1.0] * count
    batch_seconds, batch_steps = [0.0] * (max_sequences + 1), [0] * (max_sequences + 1)
    phases = [0] * size  # running sequences by fill of their last block
    prefilling: list[list[int]] = []  # number, tokens done
    ends: deque[tuple[int, int]] = deque()  # turn at which a running sequence ends, its number
    arrived = admitted = running = context_total = turn = used = peak = read = 0
    busy, now = 0.0, 0.0
    prompt_seconds = steps.prompt_lookup(prompt)

    def growth(turns: int) -> int:
        """KV blocks the batch takes in so many steps."""
        rounds, rest = divmod(turns, size)
        if not rest:
            return rounds * running
        last = -turn % size
        start = last - rest + 1
        return rounds * running + (sum(phases[start : last + 1]) if start >= 0 else sum(phases[: last + 1]) + sum(phases[start:]))

    while True:
        # Schedule the next step or run of steps.
        if not reserve and used + running > blocks and used + growth(1) > blocks:
            return None
        chunks: list[tuple[list[int], int]] = []
        if prefilling or admitted < arrived:
            budget = limits.max_batched_tokens - (running if mixed else 0)
            for entry in prefilling:
                chunk = min(prompt - entry[1], budget)
                if chunk <= 0:
                    break
                chunks.append((entry, chunk))
                budget -= chunk
            else:
                blocks_grown = -1
                while admitted < arrived and budget > 0 and running + len(prefilling) < max_sequences:
                    if used + running + needs > blocks and (running or prefilling):
                        if blocks_grown < 0:
                            blocks_grown = 0 if reserve else growth(1)
                        if used + blocks_grown + needs > blocks:
                            break
                    if prompt > budget and not chunked and chunks:
                        break
                    used += needs
                    entry = [admitted, 0]
                    admitted += 1
                    prefilling.append(entry)
                    chunk = min(prompt, budget)
                    chunks.append((entry, chunk))
                    budget -= chunk
                if used > peak:
                    peak = used
        if chunks:
            beside = running if mixed else 0
            context = context_total / beside if beside else 0.0
            turns, decoding, slope = 1, beside > 0, 0.0
            if len(chunks) == 1 and chunks[0][1] == prompt:
                step = prompt_seconds(beside, context)
            else:
                tokens = work = 0
                for entry, chunk in chunks:
                    tokens += chunk
                    work += chunk * (2 * entry[1] + chunk)
                step = steps.mixed(tokens, (work / tokens - tokens) / 2, beside, context)
            end = now + step
        elif running:
            turns, decoding = ends[0][0] - turn, True
            if not reserve and used + running * (turns // size + 1) > blocks and used + growth(turns) > blocks:
                return None
            step, last = steps.run(running, context_total / running, turns)
            slope = (last - step) / (turns - 1) if turns > 1 else 0.0
            end = now + turns * (step + last) / 2
        elif arrived < count:
            now = times[arrived]
            arrived += 1
            continue
        else:
            break
        # Arrivals meanwhile; the first that can be admitted shortens a run of decode steps.
        while arrived < count and times[arrived] < end:
            elapsed = times[arrived] - now
            arrived += 1
            if turns < 2 or arrived - admitted > 1 or running + len(prefilling) >= max_sequences or used + needs > blocks:
                continue
            shorter = min(turns, max(1, int(elapsed / (step + slope * turns / 2))))
            while shorter * (step + slope * (shorter - 1) / 2) < elapsed and shorter < turns:
                shorter += 1
            while shorter > 1 and (shorter - 1) * (step + slope * (shorter - 2) / 2) >= elapsed:
                shorter -= 1
            if shorter < turns:
                turns = shorter
                end = now + shorter * (step + slope * (shorter - 1) / 2)
        # Complete the step or run.
        busy += end - now
        batch_seconds[running] += end - now
        now = end
        if decoding:
            batch_steps[running] += turns
            if not reserve:
                used += phases[-turn % size] if turns == 1 else growth(turns)
                if used > peak:
                    peak = used
            context_total += turns * running
            turn += turns
            while ends and ends[0][0] <= turn:
                over, number = ends.popleft()
                phases[(prompt - over + left) % size] -= 1
                running -= 1
                context_total -= prompt + left
                used -= final
                finished[number] = now
        for entry, chunk in chunks:
            entry[1] += chunk
            read += chunk
            if entry[1] < prompt:
                continue
            number = entry[0]
            first[number] = now
            if left <= 0:
                used -= final
                finished[number] = now
                continue
            running += 1
            context_total += prompt
            phases[(prompt - turn) % size] += 1
            ends.append((turn + left, number))
        if chunks:
            prefilling = [entry for entry in prefilling if entry[1] < prompt]
    arrivals, done = np.asarray(times, dtype=float), np.asarray(finished)
    span = float(done.max() - arrivals[0]) if count else 0.0
    return SimulationOutcome(
        arrived=arrivals, first=np.asarray(first), finished=done, prompts=np.full(count, prompt), outputs=np.full(count, output),
        refused=0, preempted=0, recomputed=0, read=read, cached=0, busy=busy / span if span > 0 else 0.0,
        peak_cache=peak / blocks, batch_seconds=np.asarray(batch_seconds), batch_steps=np.asarray(batch_steps),
    )  # fmt: skip
