"""A server's iterations simulated for the few groups that may be the answer: what rate a copy bears, and what users wait.

Queueing formulas say at the least and at the most how many copies a rate takes; in between, simulation settles it. Requests are
drawn from a fixed seed, so the same question always gets the same answer.
"""

from __future__ import annotations

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
TRIES = 6  # counts of copies looked at
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


def bears(asked: Asked, group: Group, way: Way) -> Outcome:
    """The way with the fewest copies that keep the objectives, between what formulas hope and what they are sure of."""
    workload, most, safe = asked.workload, way.most, way.capacity
    assert workload.rate is not None
    if not most or not safe:
        return way
    fewest, sure = max(1, ceil(workload.rate / most - 1e-9)), max(1, ceil(workload.rate / safe - 1e-9))
    try:
        server = _server(asked, group, way)
    except NoAnswer:
        return way
    for copies in _counts(fewest, sure):
        each = workload.rate / copies / way.parallel.dp
        if (served := _tried(workload, server, each)) is not None:
            return replace(way, capacity=workload.rate / copies * (1 + 1e-9), served=served)
    return Refusal("latency", 0.0)


def _counts(fewest: int, sure: int) -> list[int]:
    """Numbers of copies to try, in order: a few from the fewest to the sure one, and beyond it."""
    between = np.unique(np.linspace(fewest, sure, min(TRIES - 2, sure - fewest + 1)).round()).astype(int).tolist()
    return [*between, ceil(sure * 1.25 + 0.5), ceil(sure * FARTHEST + 0.5)]


def _tried(workload: Workload, server: Server, rate: float) -> Served | None:
    """What users of one copy wait at a rate; None where the objectives fail or the queue grows."""
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile)
    prompts, outputs = Lengths(float(workload.seq_in or 1), 0.0), Lengths(float(workload.seq_out or 1), 0.0)
    load = Load(rate=rate, prompts=prompts, outputs=outputs, requests=REQUESTS, burstiness=1.0, seed=0, trace=None)
    if screen(server, load).utilisation > BUSIEST:
        return None
    outcome = server.run(load.arrivals())
    if outcome.refused:
        return None
    told = summary(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,))
    if told.growing or (goals.any and not goals.hold(told)):
        return None
    return _served(told, rate)


def _served(told: Summary, rate: float) -> Served:
    return Served(rate, told.ttft.at[0], told.tpot.at[0], told.requests)


def _server(asked: Asked, group: Group, way: Way) -> Server:
    """One copy of the model, as the simulator wants it; tables only as wide as such a copy is ever filled."""
    shape = asked.shape
    assert isinstance(shape, Transformer)
    tp, pp = way.parallel.tp, way.parallel.pp
    base = in_precision(asked.workload, way.precision)
    one = replace(base, gpus=tp * pp, nodes=min(pp, group.machines), parallel=Parallel(tp=tp, pp=pp), batch=None)
    context = (one.seq_in or 1) + (one.seq_out or 0)
    limits = limits_of(one, shape, group.gpu, None, context)
    lane = lanes(limits, pp)
    widest = min(lane.max_sequences, max(1, lane.cache_tokens // lane.block_tokens), WIDEST)
    lane = replace(lane, max_sequences=widest)
    devices = Devices.of([group.gpu], [group.fabric], asked.calibration)
    steps = Sampled(GroupSteps(one, shape, group.gpu, None, devices))
    return Server(StepTables(steps, Sizes(widest, max(lane.max_batched_tokens, 2), context), pp), limits, lane, 1, pp)
