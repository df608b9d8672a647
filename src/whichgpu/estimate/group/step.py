"""Seconds of one workload on groups of many GPU kinds at many batch sizes, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.messages import Message
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.confidence.axes import NEWEST_SOFTWARE_YEAR
from whichgpu.estimate.group.breakdown import StepBreakdown, StepParts, combine_parts
from whichgpu.estimate.group.collectives import Array, collective_cost
from whichgpu.estimate.group.expert_exchange import exchange_cost
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.group.group_calibration import GroupCalibration, group_setting, load_group_calibration
from whichgpu.estimate.group.host_launches import call_cost_factor, framework_calls, lacks_cuda_graphs, worker_dispatch_seconds
from whichgpu.estimate.group.ranks import pipeline_schedule, rank_ops, rank_pass
from whichgpu.estimate.group.traffic import (
    Collective,
    communicator_of,
    inference_collectives,
    parameter_tensors,
    step_collectives,
)
from whichgpu.estimate.time.calibration import Calibration, load_calibration
from whichgpu.estimate.time.combine import device_host_and_fixed_seconds, host_loop_seconds, host_mode
from whichgpu.estimate.time.curves.evaluate import OperatorTotals, operator_totals
from whichgpu.estimate.time.curves.gpus import GpuColumns, cached_gpu_columns
from whichgpu.estimate.time.grid import (
    correction_keys,
    request_latency,
    scheduled_sequences,
    terms_from_totals,
)
from whichgpu.estimate.time.lower import cached_prefix
from whichgpu.estimate.time.operators import LoweredStep, Op
from whichgpu.estimate.time.terms import DEVICE_TERMS, TERMS, TimeTerms
from whichgpu.workload.layouts import expert_ranks
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

ATTENTION, FORWARD_CALLS, SEQUENCES = (TERMS.index(name) for name in ("attention", "forward_calls", "sequences"))


class GroupGrid(msgspec.Struct, frozen=True):
    """Time of one workload's step on groups of each GPU kind at each batch size; arrays of seconds, [gpus, batches]."""

    engine: str
    kind: str  # step whose fitted multipliers apply: train, forward, generate, …
    breakdown: StepBreakdown
    floor: Array  # least seconds physically possible
    flop_seconds: Array  # FLOPs divided by the GPU's peak
    byte_seconds: Array  # bytes moved divided by memory bandwidth
    ttft: Array | None = None  # time to a sequence's first token; None unless text is generated
    notes: tuple[Message, ...] = ()


class RankPass(msgspec.Struct, frozen=True):
    """Times of one rank's pass before multi-GPU multipliers: parts of its wall time, and seconds by class of operator."""

    parts: StepParts
    terms: TimeTerms
    kind: str
    notes: tuple[Message, ...] = ()


class Devices(msgspec.Struct, frozen=True):
    """Kinds of GPU to evaluate, the links (fabric) of each, and the fitted multipliers of single GPUs and of groups."""

    gpus: Sequence[Gpu]
    fabrics: Sequence[Fabric]
    calibration: Calibration
    groups: GroupCalibration

    @staticmethod
    def of(
        gpus: Sequence[Gpu],
        fabrics: Sequence[Fabric],
        calibration: Calibration | None = None,
        groups: GroupCalibration | None = None,
    ) -> Devices:
        """Return these GPUs and fabrics with the bundled fitted multipliers, unless others are passed."""
        return Devices(gpus, fabrics, calibration or load_calibration(), groups or load_group_calibration())


def evaluate_group(workload: Workload, shape: Shape, devices: Devices, batches: Array | None = None) -> GroupGrid:
    """Return the time of a workload (defaults filled in) in its layout on groups of each GPU, per replica batch in `batches`."""
    batch: Number = float(workload.local_batch) if batches is None else batches
    if workload.generating and shape.is_generative and isinstance(shape, Transformer):
        return _generation_grid(workload, shape, devices, batch)
    one = step_pass(workload, shape, devices, batch)
    return _grid(workload, one, pass_breakdown(workload, one, devices))


def step_pass(workload: Workload, shape: Shape, devices: Devices, batch: Number) -> RankPass:
    """Return the times of one rank's pass in a workload's step: a training step, forward pass, prefill, or decode step."""
    kind = workload.traits.step
    micro_batch, pipeline = pipeline_schedule(workload, batch)
    lowered = rank_ops(workload, shape, micro_batch)
    running = scheduled_sequences(workload, batch) if kind == "decode" else 0.0
    collectives = step_collectives(workload, shape, micro_batch)
    return lowered_pass(workload, shape, devices, lowered, collectives, kind, running, pipeline)


def inference_pass(
    workload: Workload, shape: Transformer, devices: Devices, batch: Number, tokens: Number, context: Number | None,
    cached: float = 0.0,
) -> RankPass:  # fmt: skip
    """Return the times of one rank's prefill of `tokens` per sequence of a batch, or of a decode step if `context` is set.

    A prefill finds `cached` further tokens of each sequence in the prefix cache.
    """
    task = replace(workload, task="prefill" if context is None else "decode")
    micro_batch, pipeline = pipeline_schedule(task, batch)
    lowered = LoweredStep(tuple(rank_pass(task, shape, micro_batch, tokens, context, chunked=True, cached=cached)))
    collectives = inference_collectives(task, shape, micro_batch, tokens if context is None else 1.0)
    running = scheduled_sequences(workload, batch) if context is not None else 0.0
    return lowered_pass(workload, shape, devices, lowered, collectives, "generate", running, pipeline)


def pass_breakdown(workload: Workload, one: RankPass, devices: Devices) -> StepBreakdown:
    """Return the seconds of a pass by what they are spent on, multiplied by the fitted multi-GPU corrections."""
    return combine_parts(one.parts, link_corrections(workload, one.kind, devices))


def _generation_grid(workload: Workload, shape: Transformer, devices: Devices, batch: Number) -> GroupGrid:
    """Return the time per output token in generation: a decode step plus its share of other requests' prefills."""
    length = float(max(1, workload.seq_out or 1))
    prompt = float(workload.seq_in or 1)
    token = inference_pass(workload, shape, devices, batch, 1.0, prompt + length / 2)
    prefill_batch = 1.0 if workload.serving else batch
    cached = 0.0 if engine_record(workload.engine).eager else cached_prefix(workload, prompt)
    prefill = inference_pass(workload, shape, devices, prefill_batch, prompt - cached, None, cached)
    step, read = pass_breakdown(workload, token, devices), pass_breakdown(workload, prefill, devices)
    share = np.asarray(batch) / length if workload.serving else np.asarray(1.0 / length)
    total = StepBreakdown(*(getattr(step, name) + getattr(read, name) * share for name in StepBreakdown.__struct_fields__))
    grid = _grid(workload, replace(token, terms=token.terms + prefill.terms * share), total)
    return replace(grid, ttft=read.wall + step.wall + request_latency(workload))


def lowered_pass(
    workload: Workload,
    shape: Shape,
    devices: Devices,
    lowered: LoweredStep,
    collectives: Sequence[Collective],
    kind: str,
    running: Number,
    pipeline: Number,
) -> RankPass:
    """Return the times of a rank's pass; `running`: sequences in its batch; `pipeline`: ratio of wall time to a stage's work."""
    columns, parallel = cached_gpu_columns(devices.gpus), workload.parallel
    phases = _phases(lowered, columns) if workload.training else {}
    timed = reduce(add, (one for _, one in phases.values())) if phases else operator_totals(lowered.ops, columns)
    terms = terms_from_totals(timed, lowered, running, workload.accumulation)
    factors = devices.calibration.factors(correction_keys(workload, kind, terms.unit, devices.gpus))
    device, calls, once = device_host_and_fixed_seconds(terms, factors, workload.host_speed)
    ones = np.ones_like(device)
    zeros = forward_calls = launches = 0.0 * ones

    def phase_seconds(name: str) -> Array:
        if name not in phases:
            return zeros
        ops, one = phases[name]
        return device_host_and_fixed_seconds(terms_from_totals(one, ops), factors)[0] / _overlapped_rounds(workload, name)

    communication = collective_seconds(workload, collectives, devices)
    if parallel.threads:  # `DataParallel` broadcasts are few and large, so their start-up latency is part of the calibrated step.
        communication["exposed_latency"] = 0.0 * communication["exposed_latency"]
    mode = host_mode(workload.engine, workload.year)
    if mode.launches:
        forward_calls = terms.seconds[FORWARD_CALLS] * factors[FORWARD_CALLS][:, None] / workload.host_speed
    else:
        calls = zeros
    if lacks_cuda_graphs(workload):  # Its calls are counted from its source, with those of collectives, instead of per kernel.
        calls = forward_calls = zeros
        launches = framework_calls(workload, shape, lowered, collectives)
        launches = launches * call_cost_factor(devices.calibration, devices.gpus, terms.unit) / workload.host_speed * ones
        once = once + worker_dispatch_seconds(workload) / workload.host_speed
    if mode.overlaps:
        scheduling = terms.seconds[SEQUENCES] * factors[SEQUENCES][:, None] / workload.host_speed
        calls, once = calls + scheduling, once - scheduling
    calls = calls + host_loop_seconds(workload.engine, workload.year, terms) / workload.host_speed
    if kind == "prefill":
        once = once + request_latency(workload)
    parts = StepParts(
        device=device,
        calls=calls,
        forward_calls=forward_calls,
        once=once,
        forward=phase_seconds("forward"),
        backward=phase_seconds("backward"),
        attention=terms.seconds[ATTENTION] * (device / np.maximum(terms.seconds[: len(DEVICE_TERMS)].sum(axis=0), 1e-30)),
        **{name: value * ones for name, value in communication.items()},
        launches=launches,
        ranks=float(_waiting_ranks(workload)) * ones,
        synchronised=float(_synchronised_processes(workload)) * ones,
        pipeline=np.asarray(pipeline, dtype=float) * ones,
        copied_tensors=(parameter_tensors(workload, shape) if parallel.threads else 0.0) * ones,
        threads=float(parallel.dp if parallel.threads else 1) * ones,
    )
    return RankPass(parts, terms, kind, lowered.notes)


def _phases(lowered: LoweredStep, gpus: GpuColumns) -> dict[str, tuple[LoweredStep, OperatorTotals]]:
    """Return the operators and their total times by phase that occurs, such as "forward" or "backward"."""
    phases: dict[str, list[Op]] = {}
    for op in lowered.ops:
        phases.setdefault(op.phase, []).append(op)
    return {phase: (LoweredStep(tuple(ops)), operator_totals(ops, gpus)) for phase, ops in phases.items()}


def _overlapped_rounds(workload: Workload, phase: str) -> float:
    """Return by what to divide a phase's seconds to get those that can overlap communication: 1, or the accumulation rounds."""
    return 1.0 if workload.parallel.zero >= 2 or phase == "forward" else float(workload.accumulation)


def _waiting_ranks(workload: Workload) -> int:
    """Return the ranks that wait for one another within a step: replicas in serving do only if they share experts."""
    parallel = workload.parallel
    if workload.training:
        return 1 if parallel.threads else parallel.dp * parallel.tp * parallel.cp
    return parallel.tp * parallel.cp * expert_ranks(parallel)[1]


def _synchronised_processes(workload: Workload) -> int:
    """Return the processes or threads that the host synchronises once per step; 1 if it calls no workers step by step."""
    if not (workload.training or engine_record(workload.engine, workload.year).host.calls_workers):
        return 1
    return max(_waiting_ranks(workload), workload.parallel.dp if workload.parallel.threads else 1)


def smallest_domain(devices: Devices) -> int:
    """Return the fewest GPUs that the links of any of the devices join."""
    return min((fabric.domain_gpus for fabric in devices.fabrics), default=8)


def collective_seconds(workload: Workload, collectives: Sequence[Collective], devices: Devices) -> dict[str, Array]:
    """Return the seconds of all collectives as fields of `StepParts`, grouped by the work that may overlap them."""
    sums: dict[str, Array] = {
        f"{overlap}_{name}": np.zeros((len(devices.gpus), 1))
        for overlap in ("exposed", "backward", "forward", "attention", "layers")
        for name in ("latency", "volume")
    }
    tail = np.zeros((1, 1))
    engine = engine_record(workload.engine, workload.year)
    custom_kernels = engine.id if engine.own_all_reduce else ""
    domain_gpus = smallest_domain(devices)
    for one in collectives:
        ranks = communicator_of(workload.parallel, one.axis, workload.gpus, workload.nodes, domain_gpus, one.ranks)
        if one.exchange:
            once_per_node = workload.training and engine.exchange_once_per_node
            cost = exchange_cost(one.exchange, ranks, devices.fabrics, engine.low_latency_exchange, once_per_node=once_per_node)
        else:
            cost = collective_cost(
                one.kind, one.size, ranks, devices.fabrics, custom_kernels, custom_on_mesh=engine.own_all_reduce_mesh
            )
        overlap, count = one.overlap or "exposed", np.asarray(one.count, dtype=float)
        sums[f"{overlap}_latency"] = sums[f"{overlap}_latency"] + cost.latency * count
        sums[f"{overlap}_volume"] = sums[f"{overlap}_volume"] + cost.volume * count
        if overlap == "backward":
            tail = np.maximum(tail, 1.0 / np.maximum(count, 1.0))
    return {**sums, "backward_tail": tail}


def link_corrections(workload: Workload, kind: str, devices: Devices) -> dict[str, Array]:
    """Return the fitted multipliers of a multi-GPU step by name, such as "latency", each of shape [gpus, 1]."""
    engine, year = workload.engine or default_engine(), workload.year or NEWEST_SOFTWARE_YEAR
    return devices.groups.factors(
        [group_setting(fabric, engine, year, kind, workload.parallel.threads) for fabric in devices.fabrics]
    )


def _grid(workload: Workload, one: RankPass, breakdown: StepBreakdown) -> GroupGrid:
    return GroupGrid(
        engine=workload.engine or default_engine(),
        kind=one.kind,
        breakdown=breakdown,
        floor=one.terms.floors.sum(axis=0),
        flop_seconds=one.terms.flop_seconds,
        byte_seconds=one.terms.byte_seconds,
        notes=one.notes,
    )
