"""A server's iterations simulated for the few groups that may be the answer: what rate a copy bears, and what users wait.

Queueing formulas say at the least and at the most how many copies a rate takes; in between, simulation settles it. Requests are
drawn from a fixed seed, so the same question always gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from whichgpu.base.errors import NoAnswer
from whichgpu.decide.generating import in_precision
from whichgpu.decide.groups import Group
from whichgpu.decide.way import Asked, Outcome, Refusal, Served, Way
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.group.steps import GroupSteps
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.limits import lanes, limits_of
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.screen import screen
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.summary import Summary, summary
from whichgpu.estimate.serving.tables import Sizes, StepTables
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel, Workload

REQUESTS = 400  # drawn for one try: some twenty lie beyond the 95th percentile
WIDEST = 512  # sequences at once a table is made for; more than that no objective is kept with
FINE = 64  # rows: between these, products grow in a line, save for the leap after each
BUSIEST = 0.95  # of what saturates it; above, a queue comes to rest too late for any user
UNSURE = 1.05  # times the objective that formulas may put a mean at, and simulations keep it
FARTHEST = 2.0  # times the copies the formulas ask for, where even these fail


class Sampled:
    """Step times asked for at fewer sizes: a table of every number of rows is read off those at full tiles and next to them."""

    def __init__(self, steps: GroupSteps) -> None:
        self.decode = steps.decode
        self._steps = steps

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> np.ndarray:
        """As `GroupSteps.mixed`."""
        rows = np.asarray(tokens, dtype=float)
        if rows.ndim != 1 or len(rows) < 4 * FINE or np.ndim(context) or np.ndim(batch):
            return self._steps.mixed(tokens, context, batch, decode_context)
        edges = np.arange(FINE, rows[-1] + 1, FINE)
        points = np.unique(np.concatenate([rows[:8], edges, edges + 1, rows[-1:]]).clip(rows[0], rows[-1]))
        told: np.ndarray = np.interp(rows, points, self._steps.mixed(points, context, batch, decode_context))
        return told


class Simulator:
    """Simulates copies for one question; groups whose copies are alike share them, and what was tried is not tried again."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._servers: dict[Hashable, Server | None] = {}
        self._tried: dict[Hashable, Served | None] = {}

    def bears(self, group: Group, way: Way) -> Outcome:
        """The way with the fewest copies that keep the objectives, from what formulas hope on."""
        rate, most, safe = self._asked.workload.rate, way.most, way.capacity
        assert rate is not None
        if not most or not safe:
            return way
        fewest, sure = (max(1, ceil(rate / each - 1e-9)) for each in (most, safe))
        key = (group.kind, way.precision, way.parallel.tp, way.parallel.pp, group.machines > 1)
        if key not in self._servers:
            self._servers[key] = _server(self._asked, group, way)
        if (server := self._servers[key]) is None:
            return Refusal("memory", 0.0)

        def load(copies: int) -> Load:
            return _load(self._asked.workload, rate / copies / way.parallel.dp)

        def tried(copies: int) -> Served | None:
            one = load(copies)
            if (key, one.rate) not in self._tried:
                self._tried[key, one.rate] = _tried(self._asked.workload, server, one)
            return self._tried[key, one.rate]

        most_copies = ceil(sure * FARTHEST + 0.5)
        least = _fewest(fewest, most_copies, lambda count: _may_hold(self._asked.workload, server, load(count)))
        copies = None if least is None else _fewest(least, most_copies, lambda count: tried(count) is not None)
        if copies is None:
            return Refusal("latency", 0.0)
        return replace(way, capacity=rate / copies * (1 + 1e-9), served=tried(copies))


def _fewest(fewest: int, most: int, holds: Callable[[int], bool]) -> int | None:
    """The least number of copies that holds: sought in longer and longer strides from the fewest, then between the last two.

    >>> _fewest(2, 26, lambda count: count >= 4), _fewest(3, 7, lambda count: count >= 7), _fewest(1, 4, lambda count: False)
    (4, 7, None)
    """
    failed, found, stride = fewest - 1, fewest, 1
    while not holds(found):
        if found >= most:
            return None
        failed, found, stride = found, min(found + stride, most), stride * 2
    while found - failed > 1:
        middle = (failed + found) // 2
        failed, found = (failed, middle) if holds(middle) else (middle, found)
    return found


def _load(workload: Workload, rate: float) -> Load:
    prompts, outputs = Lengths(float(workload.seq_in or 1), 0.0), Lengths(float(workload.seq_out or 1), 0.0)
    return Load(rate=rate, prompts=prompts, outputs=outputs, requests=REQUESTS, burstiness=1.0, seed=0, trace=None)


def _may_hold(workload: Workload, server: Server, load: Load) -> bool:
    """Whether a simulation is worth the while: the queue comes to rest, and not even the mean is beyond the objective."""
    told = screen(server, load)
    slow = workload.tpot_max is not None and told.tpot > workload.tpot_max * UNSURE
    return told.utilisation <= BUSIEST and not slow


def _tried(workload: Workload, server: Server, load: Load) -> Served | None:
    """What users of one copy wait under a load; None where the objectives fail or the queue grows."""
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile)
    outcome = server.run(load.arrivals())
    if outcome.refused:
        return None
    told = summary(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,))
    if told.growing or (goals.any and not goals.hold(told)):
        return None
    return _served(told, load.rate)


def _served(told: Summary, rate: float) -> Served:
    return Served(rate, told.ttft.at[0], told.tpot.at[0], told.requests)


def _server(asked: Asked, group: Group, way: Way) -> Server | None:
    """One copy of the model, as the simulator wants it, with tables only as wide as it is ever filled; None: there is no room."""
    shape = asked.shape
    assert isinstance(shape, Transformer)
    tp, pp = way.parallel.tp, way.parallel.pp
    base = in_precision(asked.workload, way.precision)
    one = replace(base, gpus=tp * pp, nodes=min(pp, group.machines), parallel=Parallel(tp=tp, pp=pp), batch=None)
    context = (one.seq_in or 1) + (one.seq_out or 0)
    try:
        limits = limits_of(one, shape, group.gpu, None, context)
    except NoAnswer:
        return None
    lane = lanes(limits, pp)
    widest = min(lane.max_sequences, max(1, lane.cache_tokens // lane.block_tokens), WIDEST)
    lane = replace(lane, max_sequences=widest)
    devices = Devices.of([group.gpu], [group.fabric], asked.calibration)
    steps = Sampled(GroupSteps(one, shape, group.gpu, None, devices))
    return Server(StepTables(steps, Sizes(widest, max(lane.max_batched_tokens, 2), context), pp), limits, lane, 1, pp)
