"""How far more GPUs help: the same work on 1, 2, 4, … of them, and where a doubling stops paying."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from whichgpu.base.messages import Message, msg
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

PAYS = 1.4  # times as fast that a doubling must bring
A_NODE, MOST = 8, 64  # GPUs of a node where nothing is said, and the largest group looked at


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """So many GPUs and how fast they are together against one."""

    gpus: int
    seconds: float
    speed: float  # work a second against one GPU's
    efficiency: float  # of that, a GPU's part


@dataclass(frozen=True, slots=True)
class Scaling:
    """Points by number of GPUs; `stops` is the last doubling that pays, None where all of them do."""

    axis: str  # tp: one copy cut up; dp: more copies
    points: tuple[ScalingPoint, ...]
    stops: int | None

    @property
    def message(self) -> Message:
        """In a sentence."""
        last = self.points[-1]
        if self.stops is None:
            return msg("group.scales", gpus=last.gpus, speed=f"{last.speed:.3g}", axis=msg(f"axis.{self.axis}"))
        at = next(point for point in self.points if point.gpus == self.stops)
        return msg("group.stops", gpus=at.gpus, speed=f"{at.speed:.3g}", axis=msg(f"axis.{self.axis}"))


def scaling_of(workload: Workload, shape: Shape, devices: Devices) -> Scaling | None:
    """Of the axis the layout uses most; nothing where it only makes copies that never talk."""
    parallel = workload.parallel
    axis = "tp" if parallel.tp > 1 or (not workload.training and parallel.dp == 1) else "dp"
    if axis == "dp" and not workload.training:
        return None
    timed = [
        (gpus, float(asked.batch or 1), float(evaluate_group(asked, shape, devices).breakdown.wall[0, 0]))
        for gpus, asked in _sizes(workload, shape, axis)
    ]
    if len(timed) < 2:
        return None
    gpus, done, seconds = timed[0]
    one = done / seconds / gpus
    points = [ScalingPoint(gpus, seconds, done / seconds / one, done / seconds / one / gpus) for gpus, done, seconds in timed]
    return Scaling(axis, tuple(points), _stop(points))


def _stop(points: Sequence[ScalingPoint]) -> int | None:
    """The last size before a doubling brings less than it must."""
    for before, after in pairwise(points):
        doublings = (after.gpus / before.gpus) / 2
        if after.speed / before.speed < PAYS * doublings:
            return before.gpus
    return None


def _sizes(workload: Workload, shape: Shape, axis: str) -> Iterator[tuple[int, Workload]]:
    """The same work for one copy cut into more parts, or the same batch a GPU for more copies."""
    parallel = workload.parallel
    per_node = max(1, workload.gpus // workload.nodes)
    node = max(A_NODE, per_node)
    share = max(1, (workload.batch or 1) // parallel.dp)
    size = 1
    while size <= MOST:
        layout = Parallel(tp=size) if axis == "tp" else replace(parallel, dp=size)
        gpus = size if axis == "tp" else size * parallel.tp * parallel.pp * parallel.cp
        if axis == "tp" and isinstance(shape, Transformer) and shape.heads % size:
            return
        yield (
            gpus,
            replace(
                workload, gpus=gpus, nodes=max(1, gpus // node), parallel=layout, batch=share if axis == "tp" else share * size
            ),
        )
        size *= 2
