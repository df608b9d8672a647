"""Workloads that process whole samples in each pass (vision models, encoders and others), for training and inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.groups import Group, solve_by_class
from whichgpu.estimate.fit import adapts_by_default, required_memory, verdict
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.offline import SAMPLES
from whichgpu.estimate.time.grid import evaluate_grid
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Floats
from whichgpu.workload.denoisers import pipeline_of
from whichgpu.workload.shapes import Shape
from whichgpu.workload.training_defaults import default_batch, micro_batches
from whichgpu.workload.workload import Parallel, Workload

SIZES_TIMED = 2  # In training only the two largest sizes that fit are timed, since no smaller one is faster.
SERVED_SAMPLES = SAMPLES[SAMPLES <= 256]  # A server batches at most 256 samples (assumed), since each waits for the pass before.
BUSIEST = 0.7  # A server of vision models or encoders may be busy at most this share of time (assumed).
Needs = dict[tuple[str, str, float, bool], Figure]  # bytes by precision, GPU, samples, gradient accumulation


def evaluate_batches(request: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """Return the best batch of each group of GPUs, or why it has none; each GPU processes an equal share of the batch."""
    needs: Needs = {}

    def solve(key: tuple[str, int, int], members: list[Group]) -> list[GroupResult]:
        precision, gpus, machines = key
        return _of_size(request, replace(request.workload, precision=precision), members, gpus, machines, needs)

    return solve_by_class(
        groups, lambda group: (group.precision or request.precision_on(group.gpu), group.gpus, group.machines), solve
    )


def _of_size(
    request: WorkloadRequest, workload: Workload, groups: Sequence[Group], gpus: int, machines: int, needs: Needs
) -> list[GroupResult]:
    """Return the best batches of groups of GPUs that have the same number of GPUs and of machines."""
    sizes = _sizes(request, workload, gpus)
    if not len(sizes):
        return [Infeasibility("layout", np.inf) for _ in groups]
    adapts = adapts_by_default(workload, request.shape, request.stated)
    passes = [int(times) if adapts else 1 for times in _rounds(request, workload, sizes, gpus)]
    need_of = [
        [_need(workload, request.shape, group.gpu, size, times, needs) for size, times in zip(sizes, passes, strict=True)]
        for group in groups
    ]
    usable = np.array([usable_bytes(group.gpu, workload) for group in groups], dtype=float)
    values = np.array([[figure.value for figure in row] for row in need_of])
    timed: np.ndarray = np.any(values <= usable[:, None], axis=0)
    if not timed.any():
        return [Infeasibility("memory", float(row[0] / own) - 1.0) for row, own in zip(values, usable, strict=True)]
    if workload.training:
        timed &= _largest(values, usable)
    sizes = sizes[timed]
    need_of = [[figure for figure, keep in zip(row, timed, strict=True) if keep] for row in need_of]
    one = replace(workload, gpus=gpus, nodes=machines, parallel=Parallel(dp=gpus), accumulation=1, micro_batch=None)
    seconds, compute, floor = _seconds(request, one, groups, sizes)
    return [
        _best(request, workload, float(usable[at]), sizes, need_of[at], seconds[at], compute[at], floor[at], gpus)
        for at in range(len(groups))
    ]


def _largest(need: Floats, usable: Floats) -> np.ndarray:
    """Return a mask of the batch sizes that are among the `SIZES_TIMED` largest that fit on at least one GPU."""
    largest = np.zeros(need.shape[-1], dtype=bool)
    for row, own in zip(np.broadcast_to(need, (len(usable), need.shape[-1])), usable, strict=True):
        largest[np.flatnonzero(row <= own)[-SIZES_TIMED:]] = True
    return largest


def _need(workload: Workload, shape: Shape, gpu: Gpu, size: float, passes: int, needs: Needs) -> Figure:
    """Return the bytes one GPU needs for `size` samples in a pass, from the cache `needs` if computed before."""
    key = (workload.precision or "", gpu.id, float(size), passes > 1)
    if key not in needs:
        one = replace(workload, gpus=1, nodes=1, parallel=Parallel(), batch=int(size) * passes, accumulation=passes)
        alone = replace(one, micro_batch=int(size) if passes > 1 else None)
        needs[key] = required_memory(estimate_memory(alone, shape, gpu), alone)
    return needs[key]


def _sizes(request: WorkloadRequest, workload: Workload, gpus: int) -> Floats:
    """Return the numbers of samples to try that one GPU processes in a pass."""
    if workload.micro_batch is not None:
        return np.array([float(workload.micro_batch)])
    if "batch" not in request.stated:
        if pipeline_of(workload, request.shape):
            return SAMPLES[:1]
        if not workload.training:
            return SAMPLES if workload.task == "batch" else SERVED_SAMPLES
        usual = default_batch(request.shape, 1).micro_batch
        adapts = adapts_by_default(workload, request.shape, request.stated)
        return np.array(micro_batches(usual) if adapts else (usual,), dtype=float)
    share, rest = divmod(workload.batch or 1, gpus)
    if not workload.training:
        return np.array([float(max(1, share + bool(rest)))])
    if rest or not share:
        return np.zeros(0)
    if adapts_by_default(workload, request.shape, request.stated):
        return np.array(micro_batches(share), dtype=float)
    return np.array([float(share // times) for times in (8, 4, 2, 1) if share % times == 0])


def _seconds(request: WorkloadRequest, one: Workload, groups: Sequence[Group], sizes: Floats) -> tuple[Floats, Floats, Floats]:
    """Return seconds of a pass, whether it is compute-bound, and the fewest seconds at the GPU's peaks, [groups, sizes]."""
    gpus = [group.gpu for group in groups]
    shape = (len(gpus), len(sizes))
    if one.gpus == 1 or not one.training:  # Replicas that only run forward passes do not communicate.
        grid = evaluate_grid(replace(one, gpus=1, nodes=1, parallel=Parallel()), request.shape, gpus, sizes, request.calibration)
        wall, flops, moved, floor = grid.seconds.wall, grid.flop_seconds, grid.byte_seconds, grid.floor
    else:
        devices = Devices.of(gpus, [group.fabric for group in groups], request.calibration)
        step = evaluate_group(one, request.shape, devices, sizes)
        wall, flops, moved, floor = step.breakdown.wall, step.flop_seconds, step.byte_seconds, step.floor
    return np.broadcast_to(wall, shape), np.broadcast_to(flops >= moved, shape).astype(float), np.broadcast_to(floor, shape)


def _best(
    request: WorkloadRequest, workload: Workload, usable: float, sizes: Floats, needs: Sequence[Figure],
    seconds: Floats, compute: Floats, floor: Floats, gpus: int,
) -> GroupResult:  # fmt: skip
    """Return the batch size with the highest throughput among those that fit in memory and meet the latency objective."""
    fitting = np.array([figure.high <= usable for figure in needs])
    if not fitting.any():
        fitting = np.array([figure.value <= usable for figure in needs])
    if not fitting.any():
        return Infeasibility("memory", needs[0].value / usable - 1.0)
    rounds = _rounds(request, workload, sizes, gpus)
    rate = sizes / seconds
    if workload.serving and workload.ttft_max is not None:
        in_time = 2.0 * seconds <= workload.ttft_max  # A sample waits for the batch before its own.
        if not (fitting & in_time).any():
            return Infeasibility("latency", float(2.0 * seconds[fitting].min() / workload.ttft_max) - 1.0)
        fitting &= in_time
    at = int(np.argmax(np.where(fitting, rate, -1.0)))
    if adapts_by_default(workload, request.shape, request.stated):
        at = int(np.flatnonzero(fitting)[-1])  # Training takes the largest micro-batch that fits, as all commands do by default.
    batch = int(sizes[at] * gpus * rounds[at])
    step = float(seconds[at] * rounds[at])
    done, unit = work_per_step(replace(workload, batch=batch), request.shape)
    return Configuration(
        precision=workload.precision or "fp32", parallel=Parallel(dp=gpus), batch=batch,
        micro_batch=int(sizes[at]) if workload.training else None, accumulation=int(rounds[at]), checkpointing="none",
        seconds=step, rate=done / step, unit=unit, need=int(needs[at].value), usable=int(usable),
        fits=verdict(needs[at], int(usable)), bound="compute" if compute[at] else "bandwidth",
        kind="train" if workload.training else "forward", ttft=step if workload.serving else None,
        capacity=BUSIEST * done / step if workload.serving else None, floor=float(floor[at] * rounds[at]),
        curve=tuple((int(size * gpus), float(one), float(size * gpus / one)) for size, one in zip(sizes, seconds, strict=True)),
    )  # fmt: skip


def _rounds(request: WorkloadRequest, workload: Workload, sizes: Floats, gpus: int) -> Floats:
    """Return the forward and backward passes per optimizer step (gradient accumulation) at each number of samples per GPU."""
    if "batch" in request.stated and workload.training and workload.micro_batch is None:
        rounds: Floats = (workload.batch or 1) / gpus / sizes
        return rounds
    if adapts_by_default(workload, request.shape, request.stated):
        halved: Floats = default_batch(request.shape, 1).micro_batch / sizes
        return halved
    return np.full(len(sizes), float(workload.accumulation if workload.training else 1))
