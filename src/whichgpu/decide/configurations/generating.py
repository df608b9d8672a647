"""Language models that answer: the tensor degree, copies and batch of each group that get most done within the objectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.base.figure import Figure
from whichgpu.decide.configurations.capacity_bound import hopes, stands
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.fit import required_memory, verdict
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.offline import CONCURRENCY
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.workload import Parallel, Workload

BATCHES = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
DEGREES = (1, 2, 4, 8, 16)
TOGETHER = 1024  # tokens of prompts that a step reads for the price of one prompt at the very best (assumed): a bound on hopes
STRAIGHT = 1e-3  # how far off a line the need may be and still be read off it


@dataclass(frozen=True, slots=True)
class Copies:
    """One copy of the model on so many GPUs, at every batch: seconds between tokens and to the first, [groups, batches]."""

    parallel: Parallel
    seconds: Floats
    first: Floats
    compute: Floats  # whether arithmetic bounds rather than bandwidth
    floor: Floats  # seconds at the least
    need: Floats  # low, value, high of the bytes each GPU must hold, [3, batches]


def generate(asked: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """The best way of each group."""
    found: dict[int, GroupResult] = {}
    classes: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        classes[asked.precision_on(group.gpu)].append(place)
    for precision, places in classes.items():
        workload = with_precision(asked.workload, precision)
        found |= zip(places, _of_class(asked, workload, [groups[place] for place in places]), strict=True)
    return [found[place] for place in range(len(groups))]


def with_precision(workload: Workload, precision: str) -> Workload:
    """The request in another precision, its cache with it."""
    if precision == workload.precision:
        return workload
    return replace(workload, precision=precision, kv_precision={"fp32": "fp32"}.get(precision, "fp16"))


def _of_class(asked: WorkloadRequest, workload: Workload, groups: Sequence[Group]) -> list[GroupResult]:
    shape = as_transformer(asked.shape)
    kinds = {group.kind: group for group in groups}
    devices, of = list(kinds.values()), {key: place for place, key in enumerate(kinds)}
    sizes = _batches(workload, asked.given)
    most = max(group.gpus for group in groups)
    room = np.array([usable_bytes(group.gpu, workload) for group in devices], dtype=float)
    copies, smallest = [], {}
    for tp, pp in _degrees(asked, workload, shape, groups):
        need = _need(workload, shape, tp, pp, sizes)
        smallest[tp * pp] = need[1, 0]
        if tp * pp <= most and need[1, 0] <= room.max():
            copies.append(_timed(asked, workload, shape, devices, tp, pp, sizes, need))
    told: list[GroupResult] = []
    for group in groups:
        place = of[group.kind]
        least = min((need for size, need in smallest.items() if size <= group.gpus), default=np.inf)
        told.append(_best(asked, workload, group, place, room[place], copies, sizes, least))
    return told


def _degrees(asked: WorkloadRequest, workload: Workload, shape: Transformer, groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Tensor degrees within a machine, and stages over several; the degree asked for, where one is."""
    widest, machines = max(group.per_machine for group in groups), max(group.machines for group in groups)
    if "parallel" in asked.given and workload.parallel != Parallel():
        return [(workload.parallel.tp, 1)] if workload.parallel.tp <= widest else []
    found = [(tp, 1) for tp in DEGREES if tp <= widest and divides_evenly(workload, shape, tp, 1, 1)]
    if machines > 1:
        found += [(tp, pp) for tp in (8,) for pp in (2, 4, 8) if pp <= machines and divides_evenly(workload, shape, tp, pp, 1)]
    return found or [(1, 1)]


def _batches(workload: Workload, given: frozenset[str]) -> Floats:
    """Sequences in hand of one copy: all of these, or the request's own where it names one and no rate."""
    if workload.traits.offline and "batch" not in given:
        return CONCURRENCY
    if "batch" in given and workload.rate is None:
        own = float(workload.batch or 1)
        return np.unique(np.maximum(1.0, np.ceil(own / np.array(DEGREES, dtype=float))))
    return BATCHES


def _laid(workload: Workload, tp: int, pp: int, batch: float) -> Workload:
    return replace(workload, gpus=tp * pp, nodes=pp, parallel=Parallel(tp=tp, pp=pp), batch=int(batch), micro_batch=None)


def _need(workload: Workload, shape: Transformer, tp: int, pp: int, sizes: Floats) -> Floats:
    """Bytes at each batch: counted at the ends and the middle, read off the line between where it is one, else halved on."""
    counted: dict[int, Floats] = {}

    def at(place: int) -> Floats:
        if place not in counted:
            one = _laid(workload, tp, pp, sizes[place])
            figure = required_memory(estimate_memory(one, shape), one)
            counted[place] = np.array([figure.low, figure.value, figure.high])
        return counted[place]

    def fill(low: int, high: int) -> None:
        middle = (low + high) // 2
        share = (sizes[middle] - sizes[low]) / (sizes[high] - sizes[low]) if high > low else 0.0
        line = at(low) + (at(high) - at(low)) * share
        if low < middle and np.max(np.abs(line - at(middle)) / at(middle)) > STRAIGHT:
            fill(low, middle)
            fill(middle, high)

    fill(0, len(sizes) - 1)
    places = sorted(counted)
    points = np.stack([counted[place] for place in places])
    return np.stack([np.interp(sizes, sizes[places], column) for column in points.T])


def _timed(
    asked: WorkloadRequest,
    workload: Workload,
    shape: Transformer,
    devices: Sequence[Group],
    tp: int,
    pp: int,
    sizes: Floats,
    need: Floats,
) -> Copies:
    one, gpus = _laid(workload, tp, pp, 1), [group.gpu for group in devices]
    if tp * pp == 1:
        grid = evaluate_grid(one, shape, gpus, sizes, asked.calibration)
        wall, first, floor = grid.seconds.wall, grid.ttft, grid.floor
        flops, moved = grid.flop_seconds, grid.byte_seconds
    else:
        told = evaluate_group(one, shape, Devices.of(gpus, [group.fabric for group in devices], asked.calibration), sizes)
        wall, first, floor = told.breakdown.wall, told.ttft, told.floor
        flops, moved = told.flop_seconds, told.byte_seconds
    assert first is not None
    shaped = np.broadcast_to
    size = (len(gpus), len(sizes))
    compute = shaped(np.asarray(flops >= moved, dtype=float), size)
    return Copies(one.parallel, shaped(wall, size), shaped(first, size), compute, shaped(floor, size), need)


def _best(
    asked: WorkloadRequest,
    workload: Workload,
    group: Group,
    place: int,
    room: float,
    copies: Sequence[Copies],
    sizes: Floats,
    least: float,
) -> GroupResult:
    """Of all degrees and batches the one that gets most done."""
    best: Configuration | None = None
    reason = Infeasibility("memory", least / room - 1.0) if np.isfinite(least) else Infeasibility("layout", np.inf)
    for one in copies:
        taken = one.parallel.tp * one.parallel.pp
        if taken > group.gpus or group.gpus % taken or one.parallel.tp > group.per_machine:
            continue
        fitting = one.need[2] <= room
        if not fitting.any() and one.need[1, 0] <= room:
            fitting[0] = True  # tight: usable memory lies within the estimate's range
        if not fitting.any():
            continue
        dp = group.gpus // taken
        own = fitting if workload.rate is not None or "batch" not in asked.given else fitting & _share(workload, dp, sizes)
        seconds, first = one.seconds[place], one.first[place]
        rate = sizes / seconds * dp
        capacity, most, read = None, None, 0.0
        if workload.serving:
            within = own | _within(one.need[0], room, workload) if workload.rate is not None else own
            read = _read(workload, sizes, seconds, one.first[place])
            most = float(np.where(within, _hoped(workload, sizes, seconds, first, read), 0.0).max()) * dp
            capacity, first = stands(workload, sizes, seconds, first)
            missed = own & (capacity <= 0)
            if not (own & (capacity > 0)).any():
                if missed.any() and not isinstance(best, Configuration):
                    reason = Infeasibility("latency", _off(workload, seconds, first, own))
                continue
            capacity = capacity * dp
        if not own.any():
            continue
        score = np.where(own, capacity if capacity is not None and workload.rate is not None else rate, -1.0)
        if capacity is not None:
            score = np.where(capacity > 0, score, -1.0)
        at = int(np.argmax(score))
        way = _way(workload, one, at, place, dp, sizes, room, rate, first, capacity, fitting)
        if most is not None:
            way = replace(way, rate_bound=max(most, way.capacity or 0.0), prefill=read)
        if best is None or _better(way, best, workload):
            best = way
    return best or reason


def _read(workload: Workload, sizes: Floats, seconds: Floats, first: Floats) -> float:
    """Seconds of one prompt: a first token takes it and a step, a later one a step and its share of the prompts that come in."""
    apart = 1.0 - sizes / max(1, workload.seq_out or 1)
    place = int(np.argmax(np.abs(apart)))
    return max(0.0, float((first[place] - seconds[place]) / apart[place])) if apart[place] else 0.0


def _hoped(workload: Workload, sizes: Floats, seconds: Floats, first: Floats, read: float) -> Floats:
    """Requests a second at the most: prompts so short that a step takes several are read for the price of one, at best."""
    together = max(1, TOGETHER // max(1, workload.seq_in or 1))
    spared = read * (1.0 - 1.0 / together)
    return hopes(workload, sizes, seconds - spared * sizes / max(1, workload.seq_out or 1), first, together)


def _within(least: Floats, room: float, workload: Workload) -> np.ndarray:
    """Batches a server may reach: what they need at the least fits, answers being half written, and the size after those.

    A server fills what its cache holds by pages, whatever the range of the count: a batch is never ruled out by its high end.
    """
    length = float((workload.seq_in or 1) + (workload.seq_out or 0))
    written = ((workload.seq_in or 1) + 0.5 * (workload.seq_out or 0)) / length
    weights = least[0] - (least[-1] - least[0]) / max(BATCHES[-1] - BATCHES[0], 1.0) * (len(least) > 1)
    fits: np.ndarray = weights + (least - weights) * written <= room
    reached = fits.copy()
    reached[1:] |= fits[:-1]
    return reached


def _share(workload: Workload, dp: int, sizes: Floats) -> np.ndarray:
    mine: np.ndarray = sizes == max(1.0, np.ceil((workload.batch or 1) / dp))
    return mine


def _off(workload: Workload, seconds: Floats, first: Floats, own: np.ndarray) -> float:
    """How far the best batch is from its objectives."""
    worst = np.zeros_like(seconds)
    if workload.tpot_max is not None:
        worst = np.maximum(worst, seconds / workload.tpot_max)
    if workload.ttft_max is not None:
        worst = np.maximum(worst, first / workload.ttft_max)
    return float(worst[own].min()) - 1.0


def _better(one: Configuration, other: Configuration, workload: Workload) -> bool:
    if workload.rate is not None and one.capacity is not None and other.capacity is not None:
        return one.capacity > other.capacity
    return one.rate > other.rate


def _way(
    workload: Workload, one: Copies, at: int, place: int, dp: int, sizes: Floats, room: float, rate: Floats,
    first: Floats, capacity: Floats | None, fitting: np.ndarray,
) -> Configuration:  # fmt: skip
    low, value, high = (float(one.need[row, at]) for row in range(3))
    parallel = replace(one.parallel, dp=dp)
    curve = tuple((int(sizes[b] * dp), float(one.seconds[place, b]), float(rate[b])) for b in range(len(sizes)) if fitting[b])
    return Configuration(
        precision=workload.precision or "bf16", parallel=parallel, batch=int(sizes[at] * dp), micro_batch=None, accumulation=1,
        checkpointing="none", seconds=float(one.seconds[place, at]), rate=float(rate[at]), unit="output tokens/s",
        need=int(value), usable=int(room), fits=verdict(Figure(value, low, high, "byte", "modelled"), int(room)),
        bound="compute" if one.compute[place, at] else "bandwidth", kind="generate",
        ttft=float(first[at]) if workload.serving else None,
        capacity=None if capacity is None else float(capacity[at]), floor=float(one.floor[place, at]),
        min_tpot=float(one.floor[place, 0]), curve=curve,
    )  # fmt: skip
