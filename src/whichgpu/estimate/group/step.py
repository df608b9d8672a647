"""One workload on groups of many kinds of GPU at many batch sizes, in one call: from a layout to seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.base.messages import Message
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.group.breakdown import StepBreakdown, StepParts, combine_parts
from whichgpu.estimate.group.collectives import Array, collective_cost
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
from whichgpu.estimate.time.combine import device_host_and_fixed_seconds
from whichgpu.estimate.time.curves.evaluate import OperatorTotals, operator_totals
from whichgpu.estimate.time.curves.gpus import GpuColumns, cached_gpu_columns
from whichgpu.estimate.time.grid import NEWEST_SOFTWARE_YEAR, correction_keys, scheduled_sequences, terms_from_totals
from whichgpu.estimate.time.lower.lowered import LoweredStep
from whichgpu.estimate.time.operators import Op
from whichgpu.estimate.time.terms import DEVICE_TERMS, TERMS, TimeTerms
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

ATTENTION, FORWARD_CALLS = TERMS.index("attention"), TERMS.index("forward_calls")


@dataclass(frozen=True, slots=True)
class GroupGrid:
    """Seconds, [gpus, batches]; `first` is the time to a sequence's first token where tokens are generated."""

    engine: str
    kind: str
    breakdown: StepBreakdown
    floor: Array
    flop_seconds: Array
    byte_seconds: Array
    first: Array | None = None
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class RankPass:
    """One pass of a rank before the links' corrections, with what tells its bounds."""

    parts: StepParts
    terms: TimeTerms
    kind: str
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Devices:
    """GPUs with the fabric each stands in, and both calibrations."""

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
        """With the product's own calibrations where none is given."""
        return Devices(gpus, fabrics, calibration or load_calibration(), groups or load_group_calibration())


def evaluate_group(workload: Workload, shape: Shape, devices: Devices, batches: Array | None = None) -> GroupGrid:
    """Time of the workload in its layout, its defaults filled in, on groups of each GPU; at each of `batches` (of one copy)."""
    batch: Number = float(workload.local_batch) if batches is None else batches
    if workload.generating and shape.is_generative and isinstance(shape, Transformer):
        return _generated(workload, shape, devices, batch)
    one = step_pass(workload, shape, devices, batch)
    return _grid(workload, one, pass_breakdown(workload, one, devices))


def step_pass(workload: Workload, shape: Shape, devices: Devices, batch: Number) -> RankPass:
    """A training step, a forward pass, a batch's prompts or one token of each sequence."""
    kind = workload.traits.step
    shared, bubble = pipeline_schedule(workload, batch)
    lowered = rank_ops(workload, shape, shared)
    sequences = scheduled_sequences(workload, batch) if kind == "decode" else 0.0
    said = step_collectives(workload, shape, shared)
    return lowered_pass(workload, shape, devices, lowered, said, kind, sequences, bubble)


def inference_pass(
    workload: Workload,
    shape: Transformer,
    devices: Devices,
    batch: Number,
    tokens: Number,
    context: Number | None,
    kind: str = "",
) -> RankPass:
    """An inference pass over `batch` sequences: of `tokens` new tokens each, or of one at a `context`."""
    kind = kind or ("prefill" if context is None else "decode")
    task = replace(workload, task="prefill" if context is None else "decode")
    shared, bubble = pipeline_schedule(task, batch)
    lowered = LoweredStep(tuple(rank_pass(task, shape, shared, tokens, context)))
    said = inference_collectives(task, shape, shared, tokens if context is None else 1.0)
    sequences = scheduled_sequences(workload, batch) if context is not None else 0.0
    return lowered_pass(workload, shape, devices, lowered, said, kind, sequences, bubble)


def pass_breakdown(workload: Workload, one: RankPass, devices: Devices) -> StepBreakdown:
    """A pass with what was measured of groups put in."""
    return combine_parts(one.parts, link_corrections(workload, one.kind, devices))


def _generated(workload: Workload, shape: Transformer, devices: Devices, batch: Number) -> GroupGrid:
    """Seconds between one sequence's tokens: a decode step, and its share of the prompts that come in meanwhile."""
    length = float(max(1, workload.seq_out or 1))
    prompt = float(workload.seq_in or 1)
    token = inference_pass(workload, shape, devices, batch, 1.0, prompt + length / 2, "generate")
    readers = 1.0 if workload.serving else batch
    prompts = inference_pass(workload, shape, devices, readers, prompt, None, "generate")
    step, read = pass_breakdown(workload, token, devices), pass_breakdown(workload, prompts, devices)
    share = np.asarray(batch) / length if workload.serving else np.asarray(1.0 / length)
    whole = StepBreakdown(*(getattr(step, name) + getattr(read, name) * share for name in StepBreakdown.__dataclass_fields__))
    grid = _grid(workload, replace(token, terms=token.terms + prompts.terms * share), whole)
    return replace(grid, first=read.wall + step.wall)


def lowered_pass(
    workload: Workload,
    shape: Shape,
    devices: Devices,
    lowered: LoweredStep,
    said: Sequence[Collective],
    kind: str,
    sequences: Number,
    bubble: Number,
) -> RankPass:
    """A pass of these operators and messages, its work corrected; `sequences` are those a serving engine has in hand."""
    column = cached_gpu_columns(devices.gpus)
    apart = _phases(lowered, column) if workload.training else {}
    timed = reduce(add, (told for _, told in apart.values())) if apart else operator_totals(lowered.ops, column)
    terms = terms_from_totals(timed, lowered, sequences, workload.accumulation)
    factors = devices.calibration.factors(correction_keys(workload, kind, terms.unit, devices.gpus))
    device, calls, once = device_host_and_fixed_seconds(terms, factors, workload.host_speed)
    eager = not engine_record(workload.engine).captures_graphs
    share = device / np.maximum(terms.seconds[: len(DEVICE_TERMS)].sum(axis=0), 1e-30)
    backward = forward = np.zeros_like(device)
    if apart:
        forward, backward = (
            device_host_and_fixed_seconds(terms_from_totals(apart[name][1], apart[name][0]), factors)[0]
            / _overlapped_rounds(workload, name)
            if name in apart
            else forward
            for name in ("forward", "backward")
        )
    heard = collective_seconds(workload, said, devices)
    if workload.parallel.threads:  # its messages are few and large: what starting them costs is part of its step
        heard["open_latency"] = 0.0 * heard["open_latency"]
    ones = np.ones_like(device)
    parallel = workload.parallel
    launches = 0.0 * ones
    if lacks_cuda_graphs(workload):
        launches = framework_calls(workload, shape, lowered, said) * call_cost_factor(
            devices.calibration, devices.gpus, terms.unit
        )
        launches = launches / workload.host_speed * ones
        once = once + worker_dispatch_seconds(workload) / workload.host_speed
    parts = StepParts(
        device=device,
        calls=calls if eager else 0.0 * ones,
        forward_calls=terms.seconds[FORWARD_CALLS] * factors[FORWARD_CALLS][:, None] / workload.host_speed
        if eager
        else 0.0 * ones,
        once=once,
        forward=forward,
        backward=backward,
        attention=terms.seconds[ATTENTION] * share,
        **{name: value * ones for name, value in heard.items()},
        launches=launches,
        members=float(parallel.dp * parallel.tp * parallel.cp) * ones if _ranks_wait(workload) else ones,
        bubble=np.asarray(bubble, dtype=float) * ones,
        copied=(parameter_tensors(workload, shape) if parallel.threads else 0.0) * ones,
        threads=float(parallel.dp if parallel.threads else 1) * ones,
    )
    return RankPass(parts, terms, kind, lowered.notes)


def _phases(lowered: LoweredStep, gpus: GpuColumns) -> dict[str, tuple[LoweredStep, OperatorTotals]]:
    """Operators of each phase there is, timed."""
    phases: dict[str, list[Op]] = {}
    for op in lowered.ops:
        phases.setdefault(op.phase, []).append(op)
    return {phase: (LoweredStep(tuple(ops)), operator_totals(ops, gpus)) for phase, ops in phases.items()}


def _overlapped_rounds(workload: Workload, phase: str) -> float:
    """ZeRO 2 and 3 speak beside every micro-step; gradients otherwise wait for the last backward pass."""
    every = workload.parallel.zero >= 2 or phase == "forward"
    return 1.0 if every else float(workload.accumulation)


def _ranks_wait(workload: Workload) -> bool:
    """Whether ranks wait for one another at every step: copies that serve do not; those of threads wait for their process."""
    parallel = workload.parallel
    return (workload.training and not parallel.threads) or parallel.tp * parallel.cp > 1


def collective_seconds(workload: Workload, said: Sequence[Collective], devices: Devices) -> dict[str, Array]:
    """Seconds of all messages, by what may hide them."""
    sums: dict[str, Array] = {
        f"{where}_{name}": np.zeros((len(devices.gpus), 1))
        for where in ("open", "backward", "forward", "attention")
        for name in ("latency", "volume")
    }
    tail = np.zeros((1, 1))
    own = engine_record(workload.engine, workload.year).own_all_reduce
    domain = min((fabric.domain for fabric in devices.fabrics), default=8)
    for one in said:
        members = communicator_of(workload.parallel, one.axis, workload.gpus, workload.nodes, domain, one.ranks)
        found = collective_cost(one.kind, one.size, members, devices.fabrics, own)
        where, count = one.hidden or "open", np.asarray(one.count, dtype=float)
        sums[f"{where}_latency"] = sums[f"{where}_latency"] + found.latency * count
        sums[f"{where}_volume"] = sums[f"{where}_volume"] + found.volume * count
        if where == "backward":
            tail = np.maximum(tail, 1.0 / np.maximum(count, 1.0))
    return {**sums, "backward_tail": tail}


def link_corrections(workload: Workload, kind: str, devices: Devices) -> dict[str, Array]:
    """What was measured of groups, as factors of each term."""
    year = workload.year or NEWEST_SOFTWARE_YEAR
    engine, threads = workload.engine or default_engine(), workload.parallel.threads
    found = [group_setting(fabric, engine, year, kind, threads) for fabric in devices.fabrics]
    return devices.groups.factors(found)


def _grid(workload: Workload, one: RankPass, seconds: StepBreakdown) -> GroupGrid:
    return GroupGrid(
        engine=workload.engine or default_engine(),
        kind=one.kind,
        breakdown=seconds,
        floor=one.terms.floors.sum(axis=0),
        flop_seconds=one.terms.flop_seconds,
        byte_seconds=one.terms.byte_seconds,
        notes=one.notes,
    )
