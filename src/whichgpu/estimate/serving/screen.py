"""A load against a server in formulas: how busy it will be, where it saturates, how long requests wait. Simulation settles it."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.serving.load import Load, means
from whichgpu.estimate.serving.queueing import mean_wait
from whichgpu.estimate.serving.server import Server

ROUNDS = 60  # halvings of a batch between one sequence and as many as fit


@dataclass(frozen=True, slots=True)
class Screen:
    """Of mean lengths: requests a second at which it saturates, share of that in use, sequences at once, seconds."""

    saturation: float
    utilisation: float
    batch: float  # sequences at work in one copy's batch
    slots: int  # sequences one copy has room for
    tpot: float
    wait: float


def screen(server: Server, load: Load) -> Screen:
    """What formulas say of a load."""
    prompt, output = means(load)
    lanes = server.copies * server.stages
    rate = load.rate / lanes
    slots = slots_of(server, prompt, output)
    most = 1.0 / _request_seconds(server, prompt, output, slots)
    low, high = 1.0, float(slots)
    for _ in range(ROUNDS):  # Little's law: so many are at work that arrivals times stay is as many
        middle = (low + high) / 2
        low, high = (middle, high) if rate * _stay(server, prompt, output, middle) > middle else (low, middle)
    batch = (low + high) / 2
    stay = _stay(server, prompt, output, batch)
    wait = mean_wait(slots, rate, _stay(server, prompt, output, float(slots)), load.burstiness)
    return Screen(most * lanes, rate / most, batch, slots, stay / max(1.0, output), wait)


def slots_of(server: Server, prompt: float, output: float) -> int:
    """Sequences a lane has room for: half-way through their answers on average, or with all of it where that is kept free."""
    lane = server.lane
    held = prompt + (output if lane.reserve_answers else output / 2)
    return max(1, min(lane.max_sequences, int(lane.cache_tokens / held)))


def _request_seconds(server: Server, prompt: float, output: float, batch: float) -> float:
    """Seconds of a lane one request takes of it with so many at once: its prompt, and its share of every step."""
    return _stay(server, prompt, output, batch) / batch


def _stay(server: Server, prompt: float, output: float, batch: float) -> float:
    """Seconds from first token to last with so many at once: steps, and the prompts of those that take the others' places."""
    size = max(1, round(batch))
    step = server.steps.decode(size, prompt + output / 2)
    chunk = max(1, min(round(prompt), server.lane.max_batched_tokens))
    read = server.steps.mixed(chunk, 0.0, 0, 0.0) * prompt / chunk
    if server.lane.mixed_steps:  # beside the tokens of others, weights are read once
        both = server.steps.mixed(chunk, 0.0, size, prompt + output / 2) - step
        read = min(read, both * prompt / chunk)
    return output * step + batch * read
