"""Fastest layout that fits: memory and time of every layout, micro-batch and GPU kind at once.

Approximate memory and times screen all candidates; `time_best_layouts` evaluates the best of them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.fit import Verdict, fit, required_memory
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.layout_memory import LayoutMemory, apply_layout
from whichgpu.estimate.group.layout_times import LayoutStep, LayoutTimes, micro_batch_sizes
from whichgpu.estimate.group.layouts import legal_layouts
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.usable import usable_bytes
from whichgpu.workload.shapes import Shape, TracedShape, Transformer
from whichgpu.workload.workload import Parallel, Workload

MAX_TIMED, MAX_COUNTED = 4, 16  # most candidates timed exactly, and most whose memory is counted exactly
MIN_CONTEXT_PARALLEL_TOKENS = 16384  # Shorter sequences are not sharded over GPUs (assumed).


class LayoutCandidate(msgspec.Struct, frozen=True):
    """Parallel degrees of a step with a micro-batch size, a number of accumulation rounds and a kind of checkpointing."""

    parallel: Parallel
    micro_batch: int
    accumulation: int
    checkpointing: str

    def workload(self, workload: Workload) -> Workload:
        """Return the workload in this layout; its global batch is unchanged."""
        one = apply_layout(workload, self.parallel, self.micro_batch, self.accumulation, self.checkpointing)
        return replace(one, batch=workload.batch)


class ScreenedLayouts(msgspec.Struct, frozen=True):
    """Approximate step seconds [gpus, candidates], infinite where one does not fit, and bytes per GPU [candidates]."""

    candidates: tuple[LayoutCandidate, ...]
    seconds: Array
    need: Array

    def best(self, gpu: int) -> list[LayoutCandidate]:
        """Return the fastest candidates that fit on the kind of GPU with index `gpu`, fastest first."""
        order = np.argsort(self.seconds[gpu], kind="stable")[:MAX_COUNTED]
        return [self.candidates[index] for index in order if np.isfinite(self.seconds[gpu, index])]


class TimedLayout(msgspec.Struct, frozen=True):
    """Layout with its exact seconds per step, bytes required on one GPU, and the verdict whether these fit."""

    candidate: LayoutCandidate
    seconds: float
    need: int
    fits: Verdict


def screen_layouts(workload: Workload, shape: Shape, devices: Devices, gpus: int, nodes: int = 1) -> ScreenedLayouts:
    """Return approximate memory and time of every layout, micro-batch and checkpointing on `gpus` GPUs of each kind."""
    long = (workload.seq_in or 0) >= MIN_CONTEXT_PARALLEL_TOKENS
    layouts = [one for one in legal_layouts(workload, shape, gpus, nodes) if one.cp == 1 or long]
    splits = {one: batch_splits(workload, shape, one) for one in layouts}
    sizes = np.unique(np.concatenate([np.zeros(0), *(micro for micro, _ in splits.values())]))
    needs, times = LayoutMemory(workload, shape), LayoutTimes(workload, shape, devices, gpus, nodes, sizes=sizes)
    steps: list[LayoutStep] = []
    need: list[Array] = [np.zeros(0)]
    room = np.array([[usable_bytes(gpu, workload)] for gpu in devices.gpus], dtype=float)
    for parallel, checkpointing in product(layouts, _checkpointings(workload, shape)):
        micro, rounds = splits[parallel]
        bytes_needed = needs.of(parallel, checkpointing, micro, rounds) if len(micro) else np.zeros(0)
        fitting = bytes_needed <= room.max()
        if not fitting.any():
            continue
        steps.append(LayoutStep(parallel, checkpointing, micro[fitting], rounds[fitting]))
        need.append(bytes_needed[fitting])
    candidates = [
        LayoutCandidate(step.parallel, int(size), int(rounds), step.checkpointing)
        for step in steps
        for size, rounds in zip(step.micro, step.accumulation, strict=True)
    ]
    seconds = [np.zeros((len(devices.gpus), 0)), *(times.seconds(steps) if steps else ())]
    all_bytes = np.concatenate(need)
    fitting_seconds = np.where(all_bytes[None, :] <= room, np.concatenate(seconds, axis=1), np.inf)
    return ScreenedLayouts(tuple(candidates), fitting_seconds, all_bytes)


def time_best_layouts(
    workload: Workload, shape: Shape, devices: Devices, screened: ScreenedLayouts, gpu: int, nodes: int = 1
) -> list[TimedLayout]:
    """Return the best layouts on GPU number `gpu`, counted and timed exactly: verdict "fits" before "tight", then by time."""
    own = replace(devices, gpus=[devices.gpus[gpu]], fabrics=[devices.fabrics[gpu]])
    timed: list[TimedLayout] = []
    for candidate in screened.best(gpu):
        one = replace(candidate.workload(workload), nodes=nodes)
        need = required_memory(estimate_memory(one, shape, devices.gpus[gpu]), one)
        verdict = fit(need, one, devices.gpus[gpu]).fits
        if verdict == "no":
            continue
        if len(timed) == MAX_TIMED:
            break
        approximate = float(screened.need[screened.candidates.index(candidate)])
        seconds = float(evaluate_group(one, shape, own).breakdown.wall[0, 0])
        timed.append(TimedLayout(candidate, seconds, int(max(need.value, approximate)), verdict))
    return sorted(timed, key=lambda one: (one.fits != "fits", one.seconds))


def batch_splits(workload: Workload, shape: Shape, parallel: Parallel) -> tuple[Array, Array]:
    """Return micro-batch sizes and the accumulation rounds of each that make up the global batch; empty if none do."""
    share, rest = divmod(workload.batch or 1, parallel.dp)
    if rest or not share:
        return np.zeros(0), np.zeros(0)
    fixed = workload.micro_batch is not None and (isinstance(shape, TracedShape) or share % workload.micro_batch)
    if fixed or not workload.training:
        return np.array([float(share)]), np.ones(1)
    micro = micro_batch_sizes(share)
    return micro, share / micro


def _checkpointings(workload: Workload, shape: Shape) -> Sequence[str]:
    """Return the requested checkpointing, or both without and with checkpointing if none was requested."""
    if not workload.training or not isinstance(shape, Transformer) or workload.checkpointing != "none":
        return (workload.checkpointing,)
    return ("none", "full")
