"""The fastest layout that fits: memory first, then time, for every layout, micro-batch and kind of GPU at once.

A screen tells all candidates from a few evaluations; the best of it are then counted and timed exactly (`time_best_layouts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.fit import Verdict, fit, required_memory
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.layout_memory import LayoutMemory, apply_layout
from whichgpu.estimate.group.layout_times import LayoutTimes, micro_batch_sizes
from whichgpu.estimate.group.layouts import legal_layouts
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.usable import usable_bytes
from whichgpu.workload.shapes import Shape, TracedShape, Transformer
from whichgpu.workload.workload import Parallel, Workload

MAX_TIMED, MAX_COUNTED = 4, 16  # candidates timed exactly, of so many at most whose memory is counted exactly
LONG = 16384  # tokens below which no sequence is cut over GPUs


@dataclass(frozen=True, slots=True)
class LayoutCandidate:
    """A layout with the micro-batch, accumulation and checkpointing that the tool would run it with."""

    parallel: Parallel
    micro_batch: int
    accumulation: int
    checkpointing: str

    def workload(self, workload: Workload) -> Workload:
        """The request in this layout."""
        return replace(
            apply_layout(workload, self.parallel, self.micro_batch, self.accumulation, self.checkpointing), batch=workload.batch
        )


@dataclass(frozen=True, slots=True)
class ScreenedLayouts:
    """Seconds and bytes of every candidate: [gpus, candidates] and [candidates]; seconds are infinite where it does not fit."""

    candidates: tuple[LayoutCandidate, ...]
    seconds: Array
    need: Array

    def best(self, gpu: int, count: int = MAX_COUNTED) -> list[LayoutCandidate]:
        """The fastest that fit, best first."""
        order = np.argsort(self.seconds[gpu], kind="stable")[:count]
        return [self.candidates[place] for place in order if np.isfinite(self.seconds[gpu, place])]


@dataclass(frozen=True, slots=True)
class TimedLayout:
    """A candidate counted and timed exactly."""

    candidate: LayoutCandidate
    seconds: float
    need: int
    fits: Verdict


def screen_layouts(workload: Workload, shape: Shape, devices: Devices, gpus: int, nodes: int = 1) -> ScreenedLayouts:
    """Every layout, micro-batch and checkpointing on groups of each GPU; the global batch stays the request's."""
    layouts = [one for one in legal_layouts(workload, shape, gpus, nodes) if one.cp == 1 or (workload.seq_in or 0) >= LONG]
    batches = {one: micro_batches(workload, shape, one) for one in layouts}
    sizes = np.unique(np.concatenate([np.zeros(0), *(micro for micro, _ in batches.values())]))
    needs, screen = LayoutMemory(workload, shape), LayoutTimes(workload, shape, devices, gpus, nodes, sizes=sizes)
    candidates: list[LayoutCandidate] = []
    seconds: list[Array] = []
    need: list[Array] = []
    room = np.array([[usable_bytes(gpu, workload)] for gpu in devices.gpus], dtype=float)
    for parallel in layouts:
        for checkpointing in _checkpointings(workload, shape):
            micro, rounds = batches[parallel]
            if not len(micro):
                continue
            bytes_needed = needs.of(parallel, checkpointing, micro, rounds)
            fitting = bytes_needed <= room.max()
            micro, rounds, bytes_needed = micro[fitting], rounds[fitting], bytes_needed[fitting]
            if not len(micro):
                continue
            candidates += [
                LayoutCandidate(parallel, int(size), int(times), checkpointing) for size, times in zip(micro, rounds, strict=True)
            ]
            need.append(bytes_needed)
            seconds.append(screen.seconds(parallel, checkpointing, micro, rounds))
    if not candidates:
        return ScreenedLayouts((), np.zeros((len(devices.gpus), 0)), np.zeros(0))
    told, bytes_ = np.concatenate(seconds, axis=1), np.concatenate(need)
    return ScreenedLayouts(tuple(candidates), np.where(bytes_[None, :] <= room, told, np.inf), bytes_)


def time_best_layouts(
    workload: Workload, shape: Shape, devices: Devices, found: ScreenedLayouts, gpu: int, nodes: int = 1
) -> list[TimedLayout]:
    """The best of a screen, counted and timed exactly: those that surely fit before the tight ones, each fastest first."""
    one = replace(devices, gpus=[devices.gpus[gpu]], fabrics=[devices.fabrics[gpu]])
    told: list[TimedLayout] = []
    for candidate in found.best(gpu):
        asked = replace(candidate.workload(workload), nodes=nodes)
        need = required_memory(estimate_memory(asked, shape, devices.gpus[gpu]), asked)
        verdict = fit(need, asked, devices.gpus[gpu]).fits
        if verdict == "no":
            continue
        lined = float(found.need[found.candidates.index(candidate)])
        if len(told) == MAX_TIMED:
            break
        seconds = float(evaluate_group(asked, shape, one).breakdown.wall[0, 0])
        told.append(TimedLayout(candidate, seconds, int(max(need.value, lined)), verdict))
    return sorted(told, key=lambda one: (one.fits != "fits", one.seconds))


def best_layout(workload: Workload, shape: Shape, gpu: Gpu, devices: Devices) -> TimedLayout | None:
    """The fastest layout of a request's GPUs that fits, or none."""
    assert devices.gpus[0] is gpu
    found = screen_layouts(workload, shape, devices, workload.gpus, workload.nodes)
    settled = time_best_layouts(workload, shape, devices, found, 0, workload.nodes)
    return settled[0] if settled else None


def micro_batches(workload: Workload, shape: Shape, parallel: Parallel) -> tuple[Array, Array]:
    """Sequences at a time and how many times a step, for the whole batch."""
    share, rest = divmod(workload.batch or 1, parallel.dp)
    if rest or not share:
        return np.zeros(0), np.zeros(0)
    if not workload.training:
        return np.array([float(share)]), np.ones(1)
    if workload.micro_batch is not None and (isinstance(shape, TracedShape) or share % workload.micro_batch):
        return np.array([float(share)]), np.ones(1)
    micro = micro_batch_sizes(share)
    return micro, share / micro


def _checkpointings(workload: Workload, shape: Shape) -> Sequence[str]:
    """What the user asked for, or with and without."""
    if not workload.training or not isinstance(shape, Transformer) or workload.checkpointing != "none":
        return (workload.checkpointing,)
    return ("none", "full")
