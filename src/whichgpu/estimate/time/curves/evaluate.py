"""Seconds of many operators on many GPUs at many batch sizes, in a few array operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.estimate.time.curves import attention, conv, gemm, memory
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.parameters import parameters as fitted
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters, stack_operators, stacked
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op

TIME_CLASSES = ("gemm", "stream", "attention", "conv", "memory")  # of products, what is reading weights is a class of its own
STREAM_INDEX = TIME_CLASSES.index("stream")
CACHED_NUMBERS = 1 << 17  # numbers of an array that stays in a core's cache: many GPUs are timed so many at a time
CURVES: dict[str, Callable[[OperatorStack, GpuColumns, Parameters], Array]] = {
    "gemm": gemm.seconds,
    "attention": attention.seconds,
    "conv": conv.seconds,
    "memory": memory.seconds,
}


@dataclass(frozen=True, slots=True)
class OperatorSeconds:
    """Seconds of one call of each operator and what physics allows at best, [gpus, operators, batches]."""

    seconds: Array
    floors: Array
    streamed: Array  # the share of a product's seconds that is reading; 0 of all else


@dataclass(frozen=True, slots=True)
class OperatorTotals:
    """Seconds of all calls, [classes, gpus, batches] in the order of CLASSES; what bounds them, [gpus, batches]."""

    seconds: Array
    floors: Array
    flop_seconds: Array
    byte_seconds: Array

    def __add__(self, other: OperatorTotals) -> OperatorTotals:
        return OperatorTotals(
            self.seconds + other.seconds,
            self.floors + other.floors,
            self.flop_seconds + other.flop_seconds,
            self.byte_seconds + other.byte_seconds,
        )


def operator_seconds(ops: Sequence[Op], gpus: GpuColumns, parameters: Parameters | None = None) -> OperatorSeconds:
    """Seconds of one call of each operator."""
    p = fitted() if parameters is None else parameters
    if gpus.among:
        each, which = gpus.among
        told = operator_seconds(ops, each, p)
        return OperatorSeconds(told.seconds[which], told.floors[which], told.streamed[which])
    grouped = stacks_by_curve(ops)
    times = np.empty((len(gpus), len(ops), batch_count([group for _, group in grouped])))
    floors, streamed = np.empty_like(times), np.zeros_like(times)
    for places, group in grouped:
        flop_seconds, byte_seconds = roofline_seconds(group, gpus, p)
        floor = np.maximum(flop_seconds, byte_seconds)
        took, read = _curve(group, gpus, p)
        floors[:, places] = floor
        times[:, places] = np.maximum(took, floor)
        if read is not None:
            streamed[:, places] = read
    return OperatorSeconds(times, floors, streamed)


def operator_totals(ops: Sequence[Op], gpus: GpuColumns, parameters: Parameters | None = None) -> OperatorTotals:
    """Seconds of all calls, by class."""
    p = fitted() if parameters is None else parameters
    if gpus.among:
        each, which = gpus.among
        told = operator_totals(ops, each, p)
        return OperatorTotals(told.seconds[:, which], told.floors[:, which], told.flop_seconds[which], told.byte_seconds[which])
    grouped = [group for _, group in stacks_by_curve(merge_equal(ops))]
    batches = batch_count(grouped)
    widest = max((len(group.ops) for group in grouped), default=1) * batches
    parts = [_totals(grouped, part, p, batches) for part in gpus.parts(max(1, CACHED_NUMBERS // widest))]
    if len(parts) == 1:
        return parts[0]
    return OperatorTotals(
        np.concatenate([part.seconds for part in parts], axis=1),
        np.concatenate([part.floors for part in parts], axis=1),
        np.concatenate([part.flop_seconds for part in parts]),
        np.concatenate([part.byte_seconds for part in parts]),
    )


def _totals(grouped: Sequence[OperatorStack], gpus: GpuColumns, p: Parameters, batches: int) -> OperatorTotals:
    times = np.zeros((len(TIME_CLASSES), len(gpus), batches))
    floors = np.zeros_like(times)
    all_flops, all_bytes = np.zeros_like(times[0]), np.zeros_like(times[0])
    for group in grouped:
        place = TIME_CLASSES.index(CLASS_BY_KIND[group.ops[0].kind])
        count = stacked([op.count for op in group.ops])
        flop_seconds, byte_seconds = roofline_seconds(group, gpus, p)
        floor = np.maximum(flop_seconds, byte_seconds)
        took, read = _curve(group, gpus, p)
        took, least = np.maximum(took, floor) * count, floor * count
        if read is not None:
            times[STREAM_INDEX] += (took * read).sum(axis=1)
            floors[STREAM_INDEX] += (least * read).sum(axis=1)
            read = np.subtract(1.0, read, out=read)
            took, least = took * read, least * read
        times[place] += took.sum(axis=1)
        floors[place] += least.sum(axis=1)
        all_flops += (flop_seconds * count).sum(axis=1)
        all_bytes += (byte_seconds * count).sum(axis=1)
    return OperatorTotals(times, floors, all_flops, all_bytes)


def _curve(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array | None]:
    """Seconds by the curve of the operators' class; of products, the share that is reading.

    What asks for tf32 runs as fp32 on chips without it.
    """
    if group.unit != "tf32" or gpus.native["tf32"].all():
        return _timed(group, gpus, p)
    plain = _timed(replace(group, unit="fp32"), gpus, p)
    if not gpus.native["tf32"].any():
        return plain
    own, has = _timed(group, gpus, p), gpus.native["tf32"] > 0
    read = None if own[1] is None or plain[1] is None else np.where(has, own[1], plain[1])
    return np.where(has, own[0], plain[0]), read


def _timed(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array | None]:
    kind = CLASS_BY_KIND[group.ops[0].kind]
    return gemm.parted(group, gpus, p) if kind == "gemm" else (CURVES[kind](group, gpus, p), None)


def roofline_seconds(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array]:
    """FLOPs over peak and bytes over bandwidth: of what the cache does not hold."""
    kind = CLASS_BY_KIND[group.ops[0].kind]
    unit = group.unit if group.unit in gpus.peaks else "fp32"
    moved = conv.moved(group) if kind == "conv" else group.read + group.write
    byte_seconds = moved / gpus.bandwidth
    if kind == "memory":
        byte_seconds = byte_seconds * memory.once(group) * (1.0 - memory.hits(group, gpus, p))
    flops = conv.least_flops(group, gpus) if kind == "conv" else group.flops
    return flops / gpus.peaks[unit], byte_seconds


def batch_count(stacks: Sequence[OperatorStack]) -> int:
    """How many batches these are of."""
    return max((side.shape[1] for one in stacks for side in (one.flops, one.read, one.write)), default=1)


def merge_equal(ops: Sequence[Op]) -> list[Op]:
    """Operators that are alike once, with their calls added up: a training step is made of the same few over and over."""
    found: dict[tuple[Hashable, ...], Op] = {}
    for op in ops:
        numbers = (op.flops, op.read, op.write, *op.sizes.values())
        exact = [number if type(number) is float else np.asarray(number, float).tobytes() for number in numbers]
        key = (op.kind, op.unit, op.role, *op.sizes, *exact)
        known = found.get(key)
        found[key] = op if known is None else known.with_count(known.count + op.count)
    return list(found.values())


def stacks_by_curve(ops: Sequence[Op]) -> list[tuple[list[int], OperatorStack]]:
    """Operators of one curve and unit, with their places."""
    found: dict[tuple[str, str], list[int]] = {}
    for place, op in enumerate(ops):
        found.setdefault((CLASS_BY_KIND[op.kind], op.unit), []).append(place)
    return [(places, stack_operators(unit, [ops[place] for place in places])) for (_, unit), places in found.items()]
