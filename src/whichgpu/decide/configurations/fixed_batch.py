"""Everything that is done in one pass or step of whole samples: vision and other nets, encoders; trained or run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.groups import Group
from whichgpu.estimate.fit import adapts_by_default, required_memory, verdict
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.offline import SAMPLES
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import Shape
from whichgpu.workload.training_defaults import default_batch, micro_batches
from whichgpu.workload.workload import Parallel, Workload

TRIED = 2  # of the sizes a GPU holds when it trains
Needs = dict[tuple[str, str, float, bool], Figure]  # by precision, GPU, samples, and whether gradients are accumulated
SERVED_SAMPLES = SAMPLES[SAMPLES <= 256]  # of one pass of a server (assumed): a sample waits for the pass before it
BUSIEST = 0.7  # share of the time a server of whole samples may be busy


def pass_through(asked: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """The best batch of each group; every GPU works on a share of it."""
    found: dict[int, GroupResult] = {}
    classes: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        classes[asked.precision_on(group.gpu), group.gpus, group.machines].append(place)
    needs: Needs = {}
    for (precision, gpus, machines), places in classes.items():
        workload = replace(asked.workload, precision=precision)
        own = [groups[place] for place in places]
        found |= zip(places, _of_size(asked, workload, own, gpus, machines, needs), strict=True)
    return [found[place] for place in range(len(groups))]


def _of_size(
    asked: WorkloadRequest, workload: Workload, groups: Sequence[Group], gpus: int, machines: int, needs: Needs
) -> list[GroupResult]:
    shape, sizes = asked.shape, _sizes(asked, workload, gpus)
    if not len(sizes):
        return [Infeasibility("layout", np.inf) for _ in groups]
    one = replace(workload, gpus=gpus, nodes=machines, parallel=Parallel(dp=gpus), accumulation=1, micro_batch=None)
    rounds = _rounds(asked, workload, sizes, gpus)
    passes = [int(times) if adapts_by_default(workload, asked.given) else 1 for times in rounds]
    counted = [
        [_need(workload, shape, group.gpu, size, times, needs) for size, times in zip(sizes, passes, strict=True)]
        for group in groups
    ]
    room = np.array([usable_bytes(group.gpu, workload) for group in groups], dtype=float)
    values = np.array([[figure.value for figure in row] for row in counted])
    kept: np.ndarray = np.any(values <= room[:, None], axis=0)
    if not kept.any():
        return [Infeasibility("memory", float(row[0] / own) - 1.0) for row, own in zip(values, room, strict=True)]
    if workload.training:
        kept &= _largest(values, room)
    sizes = sizes[kept]
    counted = [[figure for figure, keep in zip(row, kept, strict=True) if keep] for row in counted]
    seconds, compute, floor = _seconds(asked, one, groups, sizes)
    return [
        _best(asked, workload, float(room[place]), sizes, counted[place], seconds[place], compute[place], floor[place], gpus)
        for place in range(len(groups))
    ]


def _largest(need: Floats, room: Floats) -> np.ndarray:
    """The few largest sizes each room holds: no smaller one trains faster."""
    found = np.zeros(need.shape[-1], dtype=bool)
    for row, own in zip(np.broadcast_to(need, (len(room), need.shape[-1])), room, strict=True):
        found[np.flatnonzero(row <= own)[-TRIED:]] = True
    return found


def _need(workload: Workload, shape: Shape, gpu: Gpu, size: float, passes: int, needs: Needs) -> Figure:
    """Bytes one GPU takes for so many samples at once, each computed once."""
    key = (workload.precision or "", gpu.id, float(size), passes > 1)
    if key not in needs:
        one = replace(workload, gpus=1, nodes=1, parallel=Parallel(), batch=int(size) * passes, accumulation=passes)
        alone = replace(one, micro_batch=int(size) if passes > 1 else None)
        needs[key] = required_memory(estimate_memory(alone, shape, gpu), alone)
    return needs[key]


def _sizes(asked: WorkloadRequest, workload: Workload, gpus: int) -> Floats:
    """Samples one GPU takes at a time."""
    if workload.micro_batch is not None:
        return np.array([float(workload.micro_batch)])
    if "batch" not in asked.given:
        if not workload.training:
            return SAMPLES if workload.task == "batch" else SERVED_SAMPLES
        usual = default_batch(asked.shape, 1).micro_batch
        return np.array(micro_batches(usual) if adapts_by_default(workload, asked.given) else (usual,), dtype=float)
    share, rest = divmod(workload.batch or 1, gpus)
    if not workload.training:
        return np.array([float(max(1, share + bool(rest)))])
    if rest or not share:
        return np.zeros(0)
    if adapts_by_default(workload, asked.given):
        return np.array(micro_batches(share), dtype=float)
    return np.array([float(share // times) for times in (8, 4, 2, 1) if share % times == 0])


def _seconds(asked: WorkloadRequest, one: Workload, groups: Sequence[Group], sizes: Floats) -> tuple[Floats, Floats, Floats]:
    """Seconds, whether arithmetic bounds them, and the least there can be."""
    gpus = [group.gpu for group in groups]
    shape = (len(gpus), len(sizes))
    if one.gpus == 1 or not one.training:  # copies that only run do not speak to one another
        grid = evaluate_grid(replace(one, gpus=1, nodes=1, parallel=Parallel()), asked.shape, gpus, sizes, asked.calibration)
        wall, flops, moved, floor = grid.seconds.wall, grid.flop_seconds, grid.byte_seconds, grid.floor
    else:
        devices = Devices.of(gpus, [group.fabric for group in groups], asked.calibration)
        told = evaluate_group(one, asked.shape, devices, sizes)
        wall, flops, moved, floor = told.breakdown.wall, told.flop_seconds, told.byte_seconds, told.floor
    return np.broadcast_to(wall, shape), np.broadcast_to(flops >= moved, shape).astype(float), np.broadcast_to(floor, shape)


def _best(
    asked: WorkloadRequest, workload: Workload, room: float, sizes: Floats, needs: Sequence[Figure],
    seconds: Floats, compute: Floats, floor: Floats, gpus: int,
) -> GroupResult:  # fmt: skip
    fitting = np.array([figure.high <= room for figure in needs])
    if not fitting.any():
        fitting = np.array([figure.value <= room for figure in needs])
    if not fitting.any():
        return Infeasibility("memory", needs[0].value / room - 1.0)
    rounds = _rounds(asked, workload, sizes, gpus)
    rate = sizes / seconds
    if workload.serving and workload.ttft_max is not None:
        in_time = 2.0 * seconds <= workload.ttft_max  # a sample waits for the batch before it
        if not (fitting & in_time).any():
            return Infeasibility("latency", float(2.0 * seconds[fitting].min() / workload.ttft_max) - 1.0)
        fitting &= in_time
    at = int(np.argmax(np.where(fitting, rate, -1.0)))
    if adapts_by_default(workload, asked.given):
        at = int(np.flatnonzero(fitting)[-1])  # the largest micro-batch that fits, as every command takes it
    batch = int(sizes[at] * gpus * rounds[at])
    step = float(seconds[at] * rounds[at])
    done, unit = work_per_step(replace(workload, batch=batch), asked.shape)
    return Configuration(
        precision=workload.precision or "fp32", parallel=Parallel(dp=gpus), batch=batch,
        micro_batch=int(sizes[at]) if workload.training else None, accumulation=int(rounds[at]), checkpointing="none",
        seconds=step, rate=done / step, unit=unit, need=int(needs[at].value), usable=int(room),
        fits=verdict(needs[at], int(room)), bound="compute" if compute[at] else "bandwidth",
        kind="train" if workload.training else "forward", ttft=step if workload.serving else None,
        capacity=BUSIEST * done / step if workload.serving else None, floor=float(floor[at] * rounds[at]),
        curve=tuple((int(size * gpus), float(one), float(size * gpus / one)) for size, one in zip(sizes, seconds, strict=True)),
    )  # fmt: skip


def _rounds(asked: WorkloadRequest, workload: Workload, sizes: Floats, gpus: int) -> Floats:
    if "batch" in asked.given and workload.training and workload.micro_batch is None:
        told: Floats = (workload.batch or 1) / gpus / sizes
        return told
    if adapts_by_default(workload, asked.given):
        halved: Floats = default_batch(asked.shape, 1).micro_batch / sizes
        return halved
    return np.full(len(sizes), float(workload.accumulation if workload.training else 1))
