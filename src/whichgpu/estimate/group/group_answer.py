"""Time of a workload on several GPUs as figures with ranges: layout, cost of communication, and where scaling stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

import msgspec
from msgspec.structs import asdict

from whichgpu.base.figure import Figure
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
from whichgpu.estimate.time.software_age import age_warnings
from whichgpu.estimate.time.step_confidence import step_confidence
from whichgpu.estimate.time.time_estimate import CALIBRATION_SOURCE, TimeEstimate, work_per_step
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Parallel, Workload

GROUP_SOURCE = "group-calibration"
MIN_COMMUNICATION_BOUND_SHARE = 0.4  # share of the step from which communication is named as its bound (assumed)


class GroupTime(msgspec.Struct, frozen=True):
    """What the time of a step on several GPUs is spent on, with their layout and links. Shares are of the step's time."""

    layout: str  # dp=2,tp=4
    links: str
    network: str | None  # None for a single node
    communication: Figure  # exposed seconds
    communication_share: float
    hidden: float  # seconds of communication overlapped with work
    bubble: float  # seconds of pipeline bubble
    waiting: float  # seconds of waiting for slower GPUs, the host and other processes
    scaling: Scaling | None


def group_time_of(
    workload: Workload,
    shape: Shape,
    gpu: Gpu,
    instance: Instance | None = None,
    calibration: Calibration | None = None,
    with_scaling: bool = True,
) -> tuple[TimeEstimate, GroupTime]:
    """Return the time of a step, pass or token on the GPUs of a workload (defaults filled in), and what that time is spent on.

    Without `with_scaling`, other numbers of GPUs are not evaluated, which takes most of the computation.
    """
    fabric = fabric_of(gpu, instance, workload.interconnect, workload.network_gbps, workload.network)
    devices = Devices.of([gpu], [fabric], calibration)
    grid = evaluate_group(workload, shape, devices)
    seconds = {name: float(values[0, 0]) for name, values in asdict(grid.breakdown).items()}
    bound = _bound(grid, seconds)
    confidence = step_confidence(workload, shape, gpu, grid.kind, bound)
    low, high, basis = confidence.low, confidence.high, confidence.basis
    own_sources = devices.calibration.sources_of(grid.engine, gpu.id), devices.groups.sources_of(grid.engine)
    sources = tuple(dict.fromkeys((CALIBRATION_SOURCE, GROUP_SOURCE, *own_sources[0], *own_sources[1])))

    def figure(value: float, floor: float = 0.0) -> Figure:
        return Figure(value, min(value, max(value * exp(low), floor)), value * exp(high), "s", basis, sources)

    wall, floor = seconds["wall"], float(grid.floor[0, 0])
    done, unit = work_per_step(workload, shape)
    time = figure(wall, floor)
    facts = GroupTime(
        layout=layout_words(workload.parallel),
        links=fabric.kind,
        network=fabric.network_kind if workload.nodes > 1 else None,
        communication=figure(seconds["communication"]),
        communication_share=seconds["communication"] / wall,
        hidden=seconds["hidden"],
        bubble=seconds["bubble"],
        waiting=seconds["waiting"],
        scaling=scaling_of(workload, shape, devices) if with_scaling else None,
    )
    estimate = TimeEstimate(
        time=time,
        time_device=figure(wall - seconds["waiting"], floor),
        time_host=figure(seconds["host"]),
        throughput=Figure(done / time.value, done / time.high, done / time.low, unit, basis, sources),
        ttft=figure(float(grid.ttft[0, 0])) if workload.serving and grid.ttft is not None else None,
        tpot=time if workload.serving else None,
        bound=bound,
        tier=confidence.tier,
        new_on=confidence.new_on,
        calibrated=str(devices.groups.provenance.get("date", "")),
        warnings=(
            *precision_warnings(workload, gpu),
            *age_warnings(workload, gpu),
            *grid.notes,
            *_remarks(workload, gpu, fabric, instance, facts),
        ),
    )
    return estimate, facts


def layout_words(parallel: Parallel) -> str:
    """Return a short text of the layout: the parallel degrees that are not the default.

    >>> layout_words(Parallel(dp=2, tp=4, sp=True)), layout_words(Parallel())
    ('dp=2,tp=4,sp', 'one copy')
    """
    degrees = asdict(parallel)
    changed = {name: value for name, value in degrees.items() if value != getattr(Parallel(), name)}
    return ",".join(name if value is True else f"{name}={value}" for name, value in changed.items()) or "one copy"


def _bound(grid: GroupGrid, seconds: Mapping[str, float]) -> str:
    flops, moved = float(grid.flop_seconds[0, 0]), float(grid.byte_seconds[0, 0])
    if seconds["communication"] > MIN_COMMUNICATION_BOUND_SHARE * seconds["wall"]:
        return "interconnect"
    if seconds["host"] > seconds["work"] or max(flops, moved) < OVERHEAD_SHARE * seconds["wall"]:
        return "overhead"
    return "compute" if flops >= moved else "bandwidth"


def _remarks(workload: Workload, gpu: Gpu, fabric: Fabric, instance: Instance | None, facts: GroupTime) -> Sequence[Message]:
    """Return messages on the links assumed, on the cost of communication and on how far more GPUs help."""
    remarks = []
    if workload.interconnect is None and not (instance and instance.interconnect):
        remarks.append(msg("group.links", links=msg(f"links.{fabric.kind}"), gpu=gpu.name))
    if workload.nodes > 1 and workload.network_gbps is None and not (instance and instance.network_gbps):
        remarks.append(msg("group.network", kind=fabric.network_kind, rate=f"{fabric.network_bandwidth / 1e9:.3g}"))
    id, share = "group.cost-beside" if facts.hidden else "group.cost", f"{facts.communication_share:.0%}"
    remarks.append(msg(id, layout=facts.layout, share=share, hidden=format_seconds(facts.hidden)))
    return [*remarks, facts.scaling.message] if facts.scaling else remarks
