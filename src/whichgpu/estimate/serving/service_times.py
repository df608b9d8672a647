"""How long requests of mean lengths take on a lane, by how many are at work: what formulas about a load are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.step_tables import batch_grid

Array = np.ndarray
# Of an answer's tokens: so many are read once more on average where more prompts are let in than answers have room for, and
# some are thrown out again. 220 servers short of memory, flooded: they answered 0.70 to 1.19 of what was worked out without
# this, 0.85 to 1.22 with it.
REREAD = 0.5


@dataclass(frozen=True, slots=True)
class MeanLengths:
    """Mean tokens of prompts and answers."""

    prompt: float
    output: float

    @property
    def context(self) -> float:
        """Of a sequence half-way through its answer."""
        return self.prompt + self.output / 2


class ServiceTimes:
    """Seconds by how many are at work on each of so many lanes: of a step, and of a prompt beyond the steps it is read beside."""

    def __init__(
        self, lengths: MeanLengths, lane: SchedulerLimits, lanes: int, places: Array, steps: Array, reads: Array
    ) -> None:
        self.lengths, self._lane, self._lanes = lengths, lane, lanes
        self._places, self._steps, self._reads = places, steps, reads
        self.slots = max_running(lane, lengths.prompt, lengths.output)

    @staticmethod
    def of(server: Server, prompt: float, output: float) -> ServiceTimes:
        """Of a server's own steps."""
        lengths, lane, told = MeanLengths(prompt, output), server.lane, server.steps
        places = batch_grid(max_running(lane, prompt, output))
        steps = np.array([told.decode(int(one), lengths.context) for one in places])
        chunk = max(1, min(round(prompt), lane.max_batched_tokens))
        first, parts = told.mixed(chunk, 0.0, 0, 0.0), int(prompt / chunk)
        # Later chunks look back at those before them.
        back = max(0, parts - 1) * (told.mixed(chunk, chunk * parts / 2, 0, 0.0) - first)
        alone = first * prompt / chunk + back
        reads = np.full(len(places), alone)
        if lane.mixed_steps:  # beside the tokens of others, weights are read once
            chunks = np.clip(lane.max_batched_tokens - places, 1, chunk)
            both = np.array([told.mixed(int(a), 0.0, int(b), lengths.context) for a, b in zip(chunks, places, strict=True)])
            reads = np.minimum(alone, (both - steps) * prompt / chunks + back)
        return ServiceTimes(lengths, lane, server.copies * server.stages, places, steps, reads)

    def scaled(self, factor: float) -> ServiceTimes:
        """The same with every step so many times as long."""
        return ServiceTimes(self.lengths, self._lane, self._lanes, self._places, self._steps * factor, self._reads * factor)

    def at_each(self, rate: float) -> float:
        """Requests a second that come to one lane."""
        return rate / self._lanes

    @cached_property
    def curve(self) -> tuple[Array, Array]:
        """With one, two, ... as many at work as there is room for: seconds of a step, and of a prompt read beside it."""
        numbers = np.arange(1, self.slots + 1)
        return np.interp(numbers, self._places, self._steps), np.interp(numbers, self._places, self._reads)

    def stay(self, batch: float) -> float:
        """From first token to last: steps, and the prompts of those that take the others' places."""
        steps, reads = self.curve
        place = max(1, round(batch)) - 1
        return float(self.lengths.output * steps[place] + batch * reads[place])

    @cached_property
    def saturation(self) -> float:
        """Requests a second of all lanes together when more wait than they can take.

        Where every step has all the tokens of prompts it can take, no more are at work than come in by that.
        """
        lane, prompt, output = self._lane, self.lengths.prompt, self.lengths.output
        fed = int(output * lane.max_batched_tokens / (prompt + output)) if lane.mixed_steps else self.slots
        batch = max(1, min(self.slots, fed))
        crowded = not lane.reserve_answers and self.slots < lane.max_sequences
        again = REREAD * output / prompt * float(self.curve[1][batch - 1]) if crowded else 0.0
        return self._lanes / (self.stay(batch) / batch + again)


def max_running(lane: SchedulerLimits, prompt: float, output: float) -> int:
    """Sequences a lane has room for: half-way through their answers on average, or with all of it where that is kept free."""
    held = prompt + (output if lane.reserve_answers else output / 2)
    return max(1, min(lane.max_sequences, int(lane.cache_tokens / held)))
