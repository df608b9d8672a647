"""Requests a second of each bucket that one copy of a model serves under its objectives, on every kind of GPU at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.base.errors import NoAnswer
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.capacity_bound import BUSIEST
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.plan.solver.problem import Bools, Floats
from whichgpu.decide.plan.traffic import Bucket
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.group.step import Devices, inference_pass, pass_breakdown
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits, scheduler_limits
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.workload import Parallel, Workload

BATCHES = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
DEGREES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Goals:
    """Seconds not to be exceeded by so many percent of the requests; None asks nothing."""

    ttft_max: float | None = None
    tpot_max: float | None = None
    latency_max: float | None = None
    percentile: float = 95.0

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return any(one is not None for one in (self.ttft_max, self.tpot_max, self.latency_max))


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a replica lacks for the buckets it cannot serve; arrays over all buckets, seconds by objective (ttft, tpot, latency).

    `fits` says whether the KV cache holds any one request of the bucket. `least` is the smallest limit of one objective at which
    the bucket is served while the other objectives hold, infinite where that objective alone is not enough. `together` are the
    limits of all objectives at the batch that exceeds them by the smallest factor.
    """

    fits: Bools
    least: Mapping[str, Floats]
    together: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """One copy of a model on `tp` GPUs of a kind: requests a second by bucket, the batch it does them in, and its limits.

    `short` says why it cannot where it serves nothing: memory, ttft, tpot or latency; `off` by how much, as a share.
    `shortfall` says the same bucket by bucket; None where it serves all of them, or the weights alone do not fit.
    """

    tp: int
    precision: str
    rates: Floats
    batches: Floats
    limits: SchedulerLimits | None
    short: str = ""
    off: float = 0.0
    shortfall: Shortfall | None = None


Kind = tuple[Gpu, Fabric]


def replica_capacities(
    asked: WorkloadRequest, buckets: Sequence[Bucket], goals: Goals, kinds: Sequence[Kind], widest: Sequence[int]
) -> list[list[ReplicaCapacity]]:
    """For every kind of GPU its copies by tensor degree, up to the most GPUs of one machine."""
    shape = as_transformer(asked.shape)
    found: list[list[ReplicaCapacity]] = [[] for _ in kinds]
    classes: dict[str, list[int]] = {}
    for place, (gpu, _) in enumerate(kinds):
        classes.setdefault(asked.precision_on(gpu), []).append(place)
    for precision, places in classes.items():
        workload = with_precision(asked.workload, precision)
        for tp in DEGREES:
            mine = [place for place in places if widest[place] >= tp]
            if mine and divides_evenly(workload, shape, tp, 1, 1):
                timed = _timed(asked, workload, shape, tp, buckets, goals, [kinds[place] for place in mine])
                for place, one in zip(mine, timed, strict=True):
                    found[place].append(one)
    return found


def _timed(
    asked: WorkloadRequest,
    workload: Workload,
    shape: Transformer,
    tp: int,
    buckets: Sequence[Bucket],
    goals: Goals,
    kinds: Sequence[Kind],
) -> list[ReplicaCapacity]:
    """One degree on all kinds: two vectorised passes, then each kind's memory and objectives."""
    one = replace(workload, gpus=tp, nodes=1, parallel=Parallel(tp=tp), batch=1, micro_batch=None)
    alike = {gpu.id: _limits(one, shape, gpu) for gpu in {gpu.id: gpu for gpu, _ in kinds}.values()}  # whatever machine it is in
    rooms = [alike[gpu.id] for gpu, _ in kinds]
    able = [place for place, room in enumerate(rooms) if isinstance(room, SchedulerLimits)]
    none = np.zeros(len(buckets))
    found = [
        ReplicaCapacity(tp, one.precision or "", none, none, None, "memory", room if isinstance(room, float) else 0.0)
        for room in rooms
    ]
    if not able:
        return found
    devices = Devices.of([kinds[place][0] for place in able], [kinds[place][1] for place in able], asked.calibration)
    prompts = np.array([max(1.0, bucket.prompt) for bucket in buckets])
    outputs = np.array([max(1.0, bucket.output) for bucket in buckets])
    longest = np.array([float(bucket.most_tokens) for bucket in buckets])
    size = (len(able), len(BATCHES), len(buckets))
    batch, context = (np.ascontiguousarray(one.ravel()) for one in np.broadcast_arrays(BATCHES[:, None], prompts + outputs / 2))
    step = pass_breakdown(one, inference_pass(one, shape, devices, batch, 1.0, context), devices).wall
    read = pass_breakdown(one, inference_pass(one, shape, devices, np.ones(len(buckets)), prompts, None), devices).wall
    steps = np.broadcast_to(step, (len(able), size[1] * size[2])).reshape(size)
    reads = np.broadcast_to(read, (len(able), len(buckets)))
    for at, place in enumerate(able):
        limits = rooms[place]
        assert isinstance(limits, SchedulerLimits)
        found[place] = _copy(one, tp, limits, steps[at], reads[at], (prompts, outputs, longest), goals)
    return found


def _limits(workload: Workload, shape: Transformer, gpu: Gpu) -> SchedulerLimits | float:
    """The engine's limits on this GPU, or by which share of its memory it is too small."""
    try:
        return scheduler_limits(workload, shape, gpu, typical=(workload.seq_in or 1) + (workload.seq_out or 0))
    except NoAnswer:
        return 0.0


def _copy(
    workload: Workload,
    tp: int,
    limits: SchedulerLimits,
    step: Floats,
    read: Floats,
    lengths: tuple[Floats, Floats, Floats],
    goals: Goals,
) -> ReplicaCapacity:
    """Of all batches that the cache holds the one that serves most while the objectives hold, for each bucket.

    `lengths` are the mean input and output tokens of each bucket, and the most tokens of one of its requests.
    """
    prompts, outputs, longest = lengths
    held = prompts + (outputs if limits.reserve_answers else outputs / 2)
    slots = np.minimum(limits.max_sequences, np.floor(limits.cache_tokens / held))
    fits = (slots[None, :] >= BATCHES[:, None]) & (longest <= limits.cache_tokens)[None, :]
    between = (
        step + read[None, :] * BATCHES[:, None] / outputs[None, :]
    )  # a step, and its share of the prompts that come meanwhile
    first = read[None, :] + step
    stay = first + outputs[None, :] * between
    rate = BATCHES[:, None] / stay
    utilisation = np.minimum(rate * read[None, :], BUSIEST)
    rate = np.minimum(rate, BUSIEST / np.maximum(read[None, :], 1e-12))
    wait = utilisation / (2.0 * (1.0 - utilisation)) * read[None, :] * -np.log(1.0 - goals.percentile / 100.0)
    tests = {
        "ttft": (first + wait, goals.ttft_max),
        "tpot": (np.where(outputs > 1.0, between, 0.0), goals.tpot_max),  # nothing lies between the tokens of an answer of one
        "latency": (stay + wait, goals.latency_max),
    }
    kept = fits.copy()
    for value, most in tests.values():
        if most is not None:
            kept &= value <= most
    score = np.where(kept, rate, 0.0)
    best = score.argmax(axis=0)
    rates = score[best, np.arange(len(prompts))]
    short, off = _short(fits, tests, rates)
    batches = np.where(rates > 0, BATCHES[best], 0.0)
    shortfall = None if (rates > 0).all() else _shortfall(fits, tests)
    return ReplicaCapacity(tp, workload.precision or "", rates, batches, limits, short, off, shortfall)


def _shortfall(fits: Bools, tests: Mapping[str, tuple[Floats, float | None]]) -> Shortfall:
    """Limits the objectives would need, for every bucket; `fits` and the values of `tests` are [batches, buckets]."""
    stated = {name: (value, most) for name, (value, most) in tests.items() if most is not None}
    least = {}
    for name, (value, _) in stated.items():
        able = fits.copy()
        for other, (seconds, most) in stated.items():
            if other != name:
                able &= seconds <= most
        least[name] = np.where(able, value, np.inf).min(axis=0)
    factors = [value / most for value, most in stated.values()]
    nearest = np.where(fits, np.max(factors, axis=0) if factors else 1.0, np.inf).argmin(axis=0)
    places = np.arange(fits.shape[1])
    some: Bools = np.any(fits, axis=0)
    together = {name: np.where(some, value[nearest, places], np.inf) for name, (value, _) in stated.items()}
    return Shortfall(some, least, together)


def _short(fits: np.ndarray, tests: dict[str, tuple[Floats, float | None]], rates: Floats) -> tuple[str, float]:
    """What keeps it from the buckets it cannot serve: the first test that no batch passes, and how far the best is off."""
    lost = np.flatnonzero(rates <= 0)
    if not len(lost):
        return "", 0.0
    if not fits[:, lost].any(axis=0).all():
        return "memory", 0.0
    worst, name = 0.0, "latency"
    for test, (value, most) in tests.items():
        if most is None:
            continue
        over = float(np.where(fits[:, lost], value[:, lost], np.inf).min(axis=0).max() / most - 1.0)
        if over > worst:
            worst, name = over, test
    return name, worst
