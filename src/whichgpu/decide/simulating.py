"""A server's iterations simulated for the few groups that may be the answer: what rate a copy bears, and what users wait.

Queueing formulas say at the least and at the most how many copies a rate takes; in between, simulation settles it. Requests are
drawn from a fixed seed, so the same question always gets the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from whichgpu.base.errors import NoAnswer
from whichgpu.base.recent import Recent
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.generating import in_precision
from whichgpu.decide.groups import Group
from whichgpu.decide.way import Asked, Outcome, Refusal, Served, Way
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.group.steps import GroupSteps
from whichgpu.estimate.serving.alike import serve_alike
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.limits import Limits, lanes, limits_of
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.screen import screen
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.summary import Summary, summary
from whichgpu.estimate.serving.tables import Questions, Sizes, StepTables
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Parallel, Workload

REQUESTS = 400  # drawn for one try, at the least: some twenty lie beyond the 95th percentile
STAYS, MOST_REQUESTS = 8, 1000  # times the sequences at work: a queue that grows slowly is seen by then
WIDEST = 512  # sequences at once a table is made for; more than that no objective is kept with
FINE = 64  # rows: between these, products grow in a line, save for the leap after each
# Of what saturates it by formula. Where memory is short, sequences are thrown out and read again: it saturates at 0.84 to 0.97
# of that (simulated at length): it may go well for long, but what once piles up is never worked off.
BUSIEST = 0.85
UNSURE = 1.05  # times the objective that formulas may put a mean at, and simulations keep it
FARTHEST = 2.0  # times the copies the formulas ask for, where even these fail
# What a request says of its load and the run: no step is longer by it, so servers are shared by requests that differ in these.
UNTIMED: dict[str, Any] = {
    "model": "", "gpu": None, "rate": None, "seq_in": None, "seq_out": None, "ttft_max": None, "tpot_max": None, "percentile": 95,
    "samples": None,
}  # fmt: skip
# Seconds of steps, with the GPU and the corrections whose identities are parts of the key.
Timed = tuple[Floats, Floats, Gpu, Calibration]
_TIMED = Recent[Timed](256)


class Simulator:
    """Simulates copies for one question; groups whose copies are alike share them, and what was tried is not tried again."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._servers: dict[Hashable, Server | None] = {}
        self._tried: dict[Hashable, Served | None] = {}

    def prepare(self, candidates: Iterable[tuple[Group, Way]]) -> None:
        """Make the servers of candidates that will be asked for; those alike but for the GPU are worked out in one go."""
        alike: dict[Hashable, dict[Hashable, _Copy]] = defaultdict(dict)
        for group, way in candidates:
            key = _key(group, way)
            if key not in self._servers and way.most and way.capacity:
                self._servers[key] = None  # where there is no room for a cache
                if (copy := _copy(self._asked, group, way)) is not None:
                    alike[replace(copy.workload, model=""), copy.lane.max_batched_tokens][key] = copy
        for copies in alike.values():
            self._servers |= zip(copies, _servers(self._asked, list(copies.values())), strict=True)

    def bears(self, group: Group, way: Way) -> Outcome:
        """The way with the fewest copies that keep the objectives, from what formulas hope on."""
        rate, most, safe = self._asked.workload.rate, way.most, way.capacity
        assert rate is not None
        if not most or not safe:
            return way
        fewest, sure = (max(1, ceil(rate / each - 1e-9)) for each in (most, safe))
        self.prepare([(group, way)])
        key = _key(group, way)
        if (server := self._servers[key]) is None:
            return Refusal("memory", 0.0)

        def load(copies: int) -> Load:
            return _load(self._asked.workload, rate / copies / way.parallel.dp)

        def tried(copies: int) -> Served | None:
            one = _long_enough(server, load(copies))
            if (key, one.rate, one.requests) not in self._tried:
                self._tried[key, one.rate, one.requests] = _tried(self._asked.workload, server, one)
            return self._tried[key, one.rate, one.requests]

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


def _long_enough(server: Server, load: Load) -> Load:
    """With so many requests that a queue which grows is seen to grow."""
    return load.at(load.rate, int(max(REQUESTS, min(MOST_REQUESTS, STAYS * screen(server, load).batch * server.stages))))


def _may_hold(workload: Workload, server: Server, load: Load) -> bool:
    """Whether a simulation is worth the while: the queue comes to rest, and not even the mean is beyond the objective."""
    told = screen(server, load)
    slow = workload.tpot_max is not None and told.tpot > workload.tpot_max * UNSURE
    return told.utilisation <= BUSIEST and not slow


def _tried(workload: Workload, server: Server, load: Load) -> Served | None:
    """What users of one copy wait under a load; None where the objectives fail or the queue grows."""
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile)
    lengths = round(load.prompts.mean), round(load.outputs.mean)
    outcome = serve_alike(load.times().tolist(), *lengths, server.steps, server.lane) if server.stages == 1 else None
    outcome = outcome or server.run(load.arrivals())
    if outcome.refused:
        return None
    told = summary(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,))
    if told.growing or (goals.any and not goals.hold(told)):
        return None
    return _served(told, load.rate)


def _served(told: Summary, rate: float) -> Served:
    return Served(rate, told.ttft.at[0], told.tpot.at[0], told.requests)


def _key(group: Group, way: Way) -> Hashable:
    """What copies that behave alike have in common."""
    return group.kind, way.precision, way.parallel.tp, way.parallel.pp, group.machines > 1


@dataclass(frozen=True, slots=True)
class _Copy:
    """One copy of the model on its GPUs, not yet timed."""

    workload: Workload
    group: Group
    limits: Limits
    lane: Limits


def _copy(asked: Asked, group: Group, way: Way) -> _Copy | None:
    """None where there is no room for a cache."""
    shape = asked.shape
    assert isinstance(shape, Transformer)
    tp, pp = way.parallel.tp, way.parallel.pp
    base = in_precision(asked.workload, way.precision)
    one = replace(base, gpus=tp * pp, nodes=min(pp, group.machines), parallel=Parallel(tp=tp, pp=pp), batch=None)
    try:
        limits = limits_of(one, shape, group.gpu, None, _context(one))
    except NoAnswer:
        return None
    lane = lanes(limits, pp)
    most = min(lane.max_sequences, max(1, lane.cache_tokens // lane.block_tokens), WIDEST)
    return _Copy(one, group, limits, replace(lane, max_sequences=most))


def _context(workload: Workload) -> int:
    return (workload.seq_in or 1) + (workload.seq_out or 0)


def _same(told: Timed) -> Timed:
    return told


def _servers(asked: Asked, copies: Sequence[_Copy]) -> Iterator[Server]:
    """Copies of one layout as the simulator wants them: their steps are timed on all GPUs at once, or were a moment ago."""
    workload, lane, shape = replace(copies[0].workload, **UNTIMED), copies[0].lane, asked.shape
    assert isinstance(shape, Transformer)
    pp, context = workload.parallel.pp, 1 << (_context(copies[0].workload) - 1).bit_length()
    wanted = Questions(Sizes(WIDEST, max(lane.max_batched_tokens, 2), context), pp, FINE)
    keys = [
        (workload, shape, id(copy.group.gpu), copy.group.fabric, id(asked.calibration), lane.max_batched_tokens, context)
        for copy in copies
    ]
    known = [_TIMED.known(key) for key in keys]  # taken out at once: what is put in may push them out
    new = [copy.group for copy, one in zip(copies, known, strict=True) if one is None]
    timed: Iterator[tuple[Floats, Floats]] = iter(())
    if new:
        gpus = [group.gpu for group in new]
        devices = Devices.of(gpus, [group.fabric for group in new], asked.calibration)
        steps = GroupSteps(workload, shape, gpus[0], None, devices)
        timed = zip(steps.decode_on_each(*wanted.decode), steps.mixed_on_each(*wanted.mixed), strict=True)
    for copy, key, one in zip(copies, keys, known, strict=True):
        told = one or (*next(timed), copy.group.gpu, asked.calibration)
        _TIMED.get(key, partial(_same, told))
        yield Server(StepTables.holding(wanted.answered(*told[:2])), copy.limits, copy.lane, 1, pp)
