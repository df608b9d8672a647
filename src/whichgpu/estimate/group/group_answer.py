"""The time of a workload on a group of GPUs, as figures with ranges: the layout, what its messages cost, where scaling stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.estimate.group.scaling import Scaling, scaling_of
from whichgpu.estimate.group.step import Devices, GroupGrid, evaluate_group
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.fallbacks import precision_warnings
from whichgpu.estimate.time.grid import OVERHEAD_SHARE
from whichgpu.estimate.time.time_estimate import CALIBRATION_SOURCE, TimeEstimate, work_per_step
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Parallel, Workload

GROUP_SOURCE = "group-calibration"
OTHER_KINDS = ("other", "none")  # tiers of a single GPU that nothing of its kind was measured for
BOUND_SHARE = 0.4  # of the time spent on messages from which they are what bounds


@dataclass(frozen=True, slots=True)
class GroupTime:
    """How the time of a group comes about. Shares are of the step's time."""

    layout: str  # dp=2,tp=4
    links: str
    network: str | None  # where there are several nodes
    communication: Figure  # seconds waited for messages
    communication_share: float
    hidden: float  # seconds of messages beside the work
    bubble: float  # seconds a pipeline stands still
    waiting: float  # seconds of waiting for slower GPUs, the host and one another
    scaling: Scaling | None


def group_time_of(
    workload: Workload, shape: Shape, gpu: Gpu, instance: Instance | None = None, calibration: Calibration | None = None
) -> tuple[TimeEstimate, GroupTime]:
    """Time of one step, pass or token on the workload's GPUs in its layout. `workload` has its defaults filled in."""
    fabric = fabric_of(gpu, instance, workload.interconnect, workload.network_gbps, workload.network)
    devices = Devices.of([gpu], [fabric], calibration)
    grid = evaluate_group(workload, shape, devices)
    tier = devices.groups.tier(grid.engine, gpu)
    low, high = _spread(devices, grid, gpu, workload.precision or "")
    basis: Basis = "modelled" if tier == "group-other" else "calibrated"
    sources = _sources(devices, grid.engine, gpu)

    def figure(value: float, floor: float = 0.0) -> Figure:
        return Figure(value, min(value, max(value * exp(low), floor)), value * exp(high), "s", basis, sources)

    told = grid.breakdown
    wall, floor = float(told.wall[0, 0]), float(grid.floor[0, 0])
    done, unit = work_per_step(workload, shape)
    time = figure(wall, floor)
    found = scaling_of(workload, shape, devices)
    facts = GroupTime(
        layout=layout_words(workload.parallel),
        links=fabric.kind,
        network=fabric.network_kind if workload.nodes > 1 else None,
        communication=figure(float(told.communication[0, 0])),
        communication_share=float(told.communication[0, 0]) / wall,
        hidden=float(told.hidden[0, 0]),
        bubble=float(told.bubble[0, 0]),
        waiting=float(told.waiting[0, 0]),
        scaling=found,
    )
    estimate = TimeEstimate(
        time=time,
        time_device=figure(wall - float(told.waiting[0, 0]), floor),
        time_host=figure(float(told.host[0, 0])),
        throughput=Figure(done / time.value, done / time.high, done / time.low, unit, basis, sources),
        ttft=figure(float(grid.first[0, 0])) if workload.serving and grid.first is not None else None,
        tpot=time if workload.serving else None,
        bound=_bound(grid),
        tier=tier,
        calibrated=str(devices.groups.provenance.get("date", "")),
        warnings=(*precision_warnings(workload, gpu), *grid.notes, *_remarks(workload, gpu, fabric, instance, facts)),
    )
    return estimate, facts


def layout_words(parallel: Parallel) -> str:
    """A layout in short.

    >>> layout_words(Parallel(dp=2, tp=4, sp=True)), layout_words(Parallel())
    ('dp=2,tp=4,sp', 'one copy')
    """
    plain = Parallel()
    names = [name for name in Parallel.__dataclass_fields__ if getattr(parallel, name) != getattr(plain, name)]
    words = [name if getattr(parallel, name) is True else f"{name}={getattr(parallel, name)}" for name in names]
    return ",".join(words) or "one copy"


def _spread(devices: Devices, grid: GroupGrid, gpu: Gpu, precision: str) -> tuple[float, float]:
    """The group's range, or the GPU's own where that is wider because nothing of its kind was measured."""
    low, high = devices.groups.spread(devices.groups.tier(grid.engine, gpu), grid.kind)
    alone = devices.calibration.tier(grid.engine, gpu, grid.kind, precision)
    if alone in OTHER_KINDS:
        own = devices.calibration.log_range(alone, grid.kind, engine=grid.engine)
        return min(low, own[0]), max(high, own[1])
    return low, high


def _sources(devices: Devices, engine: str, gpu: Gpu) -> tuple[str, ...]:
    found = (
        CALIBRATION_SOURCE,
        GROUP_SOURCE,
        *devices.calibration.sources_of(engine, gpu.id),
        *devices.groups.sources_of(engine),
    )
    return tuple(dict.fromkeys(found))


def _bound(grid: GroupGrid) -> str:
    place = 0, 0
    wall = float(grid.breakdown.wall[place])
    flops, moved = float(grid.flop_seconds[place]), float(grid.byte_seconds[place])
    if float(grid.breakdown.communication[place]) > BOUND_SHARE * wall:
        return "interconnect"
    if float(grid.breakdown.host[place]) > float(grid.breakdown.work[place]) or max(flops, moved) < OVERHEAD_SHARE * wall:
        return "overhead"
    return "compute" if flops >= moved else "bandwidth"


def _remarks(workload: Workload, gpu: Gpu, fabric: Fabric, instance: Instance | None, facts: GroupTime) -> Sequence[Message]:
    """What stands beside the time: the links it assumes, what messages cost, how far more GPUs help."""
    said = [msg("group.links", links=msg(f"links.{fabric.kind}"), gpu=gpu.name)] if _assumed(workload, instance) else []
    if workload.nodes > 1 and workload.network_gbps is None and not (instance and instance.network_gbps):
        said.append(msg("group.network", kind=fabric.network_kind, rate=f"{fabric.network / 1e9:.3g}"))
    told = {"layout": facts.layout, "share": f"{facts.communication_share:.0%}"}
    said.append(msg("group.cost-beside" if facts.hidden else "group.cost", **told, hidden=format_seconds(facts.hidden)))
    if facts.scaling:
        said.append(facts.scaling.message)
    return said


def _assumed(workload: Workload, instance: Instance | None) -> bool:
    return workload.interconnect is None and not (instance and instance.interconnect)
