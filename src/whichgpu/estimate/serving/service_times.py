"""Service times of requests of mean length, by number of running sequences: the input of the queueing formulas."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.step_tables import batch_grid

Array = np.ndarray
# Share of the output tokens recomputed on average when more prompts are admitted than outputs have KV blocks for. Measured on 220
# simulated servers short of memory under a flood: throughput 0.85 to 1.22 of the formula, 0.70 to 1.19 without this share.
RECOMPUTED_OUTPUT_SHARE = 0.5


class MeanLengths(msgspec.Struct, frozen=True):
    """Mean input and output tokens of a load's requests."""

    prompt: float
    output: float

    @property
    def context(self) -> float:
        """Mean context in tokens, that of a sequence half-way through its output."""
        return self.prompt + self.output / 2


class ServiceTimes:
    """Seconds of a decode step, and seconds that one prefill adds to decoding, by number of running sequences."""

    def __init__(
        self, lengths: MeanLengths, limits: SchedulerLimits, batches: int, sizes: Array, steps: Array, prefills: Array
    ) -> None:
        self.lengths, self._limits, self._batches = lengths, limits, batches
        self._sizes, self._steps, self._prefills = sizes, steps, prefills
        self.slots = max_running(limits, lengths.prompt, lengths.output)
        self.tpot_tails: dict[tuple[float, float, int], float] = {}  # seconds by request rate, percentile and replicas

    @staticmethod
    def of(server: Server, prompt: float, output: float) -> ServiceTimes:
        """Return the service times of requests of these mean lengths on a server."""
        lengths, limits, steps = MeanLengths(prompt, output), server.batch_limits, server.steps
        sizes = batch_grid(max_running(limits, prompt, output))
        decode = np.array([steps.decode(int(size), lengths.context) for size in sizes])
        chunk = max(1, min(round(prompt), limits.max_batched_tokens))
        first, chunks = steps.mixed(chunk, 0.0, 0, 0.0), int(prompt / chunk)
        # Later chunks also attend to the chunks before them.
        attention = max(0, chunks - 1) * (steps.mixed(chunk, chunk * chunks / 2, 0, 0.0) - first)
        alone = first * prompt / chunk + attention
        prefills = np.full(len(sizes), alone)
        if limits.mixed_steps:  # In a shared step, the weights are read only once.
            # In steady state 1/`output` of the running requests finish in a step and as many new prompts join it.
            joining = np.maximum(1.0, sizes / max(1.0, output)) * chunk
            parts = np.clip(np.minimum(limits.max_batched_tokens - sizes, joining), 1, None).astype(int)
            mixed = [
                steps.mixed(int(part), min(0.0, (chunk - int(part)) / 2), int(size), lengths.context)
                for part, size in zip(parts, sizes, strict=True)
            ]
            prefills = np.minimum(alone, (np.array(mixed) - decode) * prompt / parts + attention)
        return ServiceTimes(lengths, limits, server.batches, sizes, decode, prefills)

    def scaled(self, factor: float) -> ServiceTimes:
        """Return the service times with the seconds of every step multiplied by `factor`."""
        steps, prefills = self._steps * factor, self._prefills * factor
        return ServiceTimes(self.lengths, self._limits, self._batches, self._sizes, steps, prefills)

    def rate_per_batch(self, rate: float) -> float:
        """Return the requests per second that arrive at one batch if `rate` arrive at the server."""
        return rate / self._batches

    @cached_property
    def curve(self) -> tuple[Array, Array]:
        """Seconds of a decode step and of a prefill for 1, 2, ... `slots` running sequences."""
        numbers = np.arange(1, self.slots + 1)
        return np.interp(numbers, self._sizes, self._steps), np.interp(numbers, self._sizes, self._prefills)

    @cached_property
    def full_tpot(self) -> Array:
        """Seconds between tokens while 1, 2, ... `slots` sequences of equal length run and prompts always wait.

        While a sequence generates its output, every other slot gets one new prompt; a mixed step has one chunk at most.
        """
        steps, prefills = self.curve
        limits, others = self._limits, np.arange(self.slots)
        per_token = others / max(1.0, self.lengths.output - 1.0)
        if limits.mixed_steps and limits.chunked_prefill:
            per_token = np.minimum(per_token, 1.0 / np.ceil(self.lengths.prompt / limits.max_batched_tokens))
        full: Array = steps + per_token * prefills
        return full

    def most_within(self, tpot: float) -> int:
        """Return the most running sequences whose time between tokens is at most `tpot` seconds at any load; 0 if none."""
        within = self.full_tpot <= tpot
        return self.slots if within.all() else int(np.argmin(within))

    def limited_to(self, sequences: int | None, step_tokens: int | None = None) -> ServiceTimes:
        """Return the same service times on a server with fewer sequences, or fewer tokens per step; None leaves the limit."""
        limits = self._limits
        limits = replace(
            limits,
            max_sequences=min(sequences or limits.max_sequences, limits.max_sequences),
            max_batched_tokens=min(step_tokens or limits.max_batched_tokens, limits.max_batched_tokens),
        )
        return ServiceTimes(self.lengths, limits, self._batches, self._sizes, self._steps, self._prefills)

    def stay(self, batch: float) -> float:
        """Return a request's seconds from first to last token among `batch` sequences: decode steps, and others' prefills."""
        steps, prefills = self.curve
        index = max(1, round(batch)) - 1
        return float(self.lengths.output * steps[index] + batch * prefills[index])

    @cached_property
    def saturation(self) -> float:
        """Requests per second of the whole server when the waiting queue never empties.

        With mixed steps, no more sequences run than the prefill tokens of full steps admit.
        """
        limits, prompt, output = self._limits, self.lengths.prompt, self.lengths.output
        admitted = int(output * limits.max_batched_tokens / (prompt + output)) if limits.mixed_steps else self.slots
        batch = max(1, min(self.slots, admitted))
        recompute = 0.0
        if not limits.reserve_answers and self.slots < limits.max_sequences:
            recompute = RECOMPUTED_OUTPUT_SHARE * output / prompt * float(self.curve[1][batch - 1])
        return self._batches / (self.stay(batch) / batch + recompute)


def max_running(limits: SchedulerLimits, prompt: float, output: float) -> int:
    """Return the sequences that fit in the KV cache, half-way through outputs on average, or whole if outputs are reserved."""
    tokens = prompt + (output if limits.reserve_answers else output / 2)
    return max(1, min(limits.max_sequences, int(limits.cache_tokens / tokens)))
