"""Scaling of a workload on 1, 2, 4, … GPUs, and the last doubling that is worthwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from whichgpu.base.messages import Message, msg
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

MIN_DOUBLING_SPEEDUP = 1.4  # smallest speedup for which doubling the GPUs is worthwhile (assumed)
NODE_GPUS, MAX_GPUS = 8, 64  # GPUs per node unless stated, and GPUs of the largest group evaluated


class ScalingPoint(msgspec.Struct, frozen=True):
    """Throughput of a number of GPUs relative to one GPU."""

    gpus: int
    seconds: float
    speed: float  # throughput relative to that of one GPU
    efficiency: float  # `speed` divided by the number of GPUs


class Scaling(msgspec.Struct, frozen=True):
    """Throughput by number of GPUs; `stops` is the number before the first doubling that is not worthwhile, or None."""

    axis: str  # tp: one replica over more GPUs; dp: more replicas
    points: tuple[ScalingPoint, ...]
    stops: int | None

    @property
    def message(self) -> Message:
        """Return a sentence on how far the workload scales."""
        at = next((point for point in self.points if point.gpus == self.stops), self.points[-1])
        id = "group.scales" if self.stops is None else "group.stops"
        return msg(id, gpus=at.gpus, speed=f"{at.speed:.3g}", axis=msg(f"axis.{self.axis}"))


def scaling_of(workload: Workload, shape: Shape, devices: Devices) -> Scaling | None:
    """Return throughput by number of GPUs along the layout's main axis (tp or dp); None if replicas do not communicate."""
    parallel = workload.parallel
    axis = "tp" if parallel.tp > 1 or (not workload.training and parallel.dp == 1) else "dp"
    if axis == "dp" and not workload.training:
        return None
    timed = [
        (gpus, float(one.batch or 1), float(evaluate_group(one, shape, devices).breakdown.wall[0, 0]))
        for gpus, one in _sizes(workload, shape, axis)
    ]
    if len(timed) < 2:
        return None
    gpus, work, seconds = timed[0]
    single = work / seconds / gpus
    points = [
        ScalingPoint(gpus, seconds, work / seconds / single, work / seconds / single / gpus) for gpus, work, seconds in timed
    ]
    return Scaling(axis, tuple(points), _stop(points))


def _stop(points: Sequence[ScalingPoint]) -> int | None:
    """Return the number of GPUs before the first doubling that is not worthwhile; None if all are."""
    for before, after in pairwise(points):
        doublings = (after.gpus / before.gpus) / 2
        if after.speed / before.speed < MIN_DOUBLING_SPEEDUP * doublings:
            return before.gpus
    return None


def _sizes(workload: Workload, shape: Shape, axis: str) -> Iterator[tuple[int, Workload]]:
    """Yield numbers of GPUs with workloads: the same work for one replica, or the same batch per GPU for more replicas."""
    parallel = workload.parallel
    node_gpus = max(NODE_GPUS, workload.gpus // workload.nodes)
    share = max(1, (workload.batch or 1) // parallel.dp)
    size = 1
    while size <= MAX_GPUS:
        if axis == "tp":
            if isinstance(shape, Transformer) and shape.heads % size:
                return
            gpus, layout, batch = size, Parallel(tp=size), share
        else:
            gpus, layout, batch = size * parallel.tp * parallel.pp * parallel.cp, replace(parallel, dp=size), share * size
        yield gpus, replace(workload, gpus=gpus, nodes=max(1, gpus // node_gpus), parallel=layout, batch=batch)
        size *= 2
