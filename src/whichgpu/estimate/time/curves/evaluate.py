"""Seconds of many operators on many GPUs at many batch sizes, in a few array operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.time.curves import attention, conv, gemm, host, memory, mmq, moe, roofline, scan
from whichgpu.estimate.time.curves.floors import floor_seconds
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.parameters import parameters as fitted_parameters
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters, stack_numbers, stack_operators
from whichgpu.estimate.time.operators import CLASS_BY_KIND, CURVE_BY_KIND, Op

# "stream" is the part of GEMM time spent reading weights
TIME_CLASSES = ("gemm", "stream", "attention", "long_attention", "conv", "moe", "memory")
STREAM_INDEX = TIME_CLASSES.index("stream")
CACHED_NUMBERS = 1 << 17  # largest array that stays in a CPU core's cache; more GPUs are timed in several parts
CURVES: dict[str, Callable[[OperatorStack, GpuColumns, Parameters], Array]] = {
    "gemm": gemm.seconds,
    "moe": moe.seconds,
    "mmq": mmq.seconds,
    "attention": attention.seconds,
    "conv": conv.seconds,
    "memory": memory.seconds,
    "host": host.seconds,
    "scan": scan.seconds,
}
CURVES_WITH_READ_SHARE: dict[str, Callable[[OperatorStack, GpuColumns, Parameters], tuple[Array, Array]]] = {
    "gemm": gemm.seconds_and_read_share,
    "mmq": mmq.seconds_and_read_share,
}


class OperatorSeconds(msgspec.Struct, frozen=True):
    """Seconds of one call of each operator and the physical minimum, [gpus, operators, batches]."""

    seconds: Array
    floors: Array
    streamed: Array  # share of a GEMM's seconds spent reading; 0 for other operators


class OperatorTotals(msgspec.Struct, frozen=True):
    """Seconds of all calls by class of operator (TIME_CLASSES), [classes, gpus, batches]; roofline seconds, [gpus, batches]."""

    seconds: Array
    floors: Array
    flop_seconds: Array
    byte_seconds: Array

    def __add__(self, other: OperatorTotals) -> OperatorTotals:
        return OperatorTotals(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def operator_seconds(ops: Sequence[Op], gpus: GpuColumns, parameters: Parameters | None = None) -> OperatorSeconds:
    """Return the seconds of one call of each operator, [gpus, operators, batches]."""
    p = fitted_parameters() if parameters is None else parameters
    if gpus.distinct:
        distinct, index = gpus.distinct
        timed = operator_seconds(ops, distinct, p)
        return OperatorSeconds(timed.seconds[index], timed.floors[index], timed.streamed[index])
    stacks = stacks_by_curve(ops)
    times = np.empty((len(gpus), len(ops), batch_count([group for _, group in stacks])))
    floors, streamed = np.empty_like(times), np.zeros_like(times)
    for places, group in stacks:
        floor = floor_seconds(group, gpus)
        curve_seconds, read_share = _curve(group, gpus, p)
        floors[:, places] = floor
        times[:, places] = np.maximum(curve_seconds, floor)
        if read_share is not None:
            streamed[:, places] = read_share
    return OperatorSeconds(times, floors, streamed)


def operator_totals(ops: Sequence[Op], gpus: GpuColumns, parameters: Parameters | None = None) -> OperatorTotals:
    """Return the seconds of all calls of these operators, summed by class of operator (GEMM, attention, …), and the roofline."""
    p = fitted_parameters() if parameters is None else parameters
    if gpus.distinct:
        distinct, index = gpus.distinct
        timed = operator_totals(ops, distinct, p)
        by_class = timed.seconds[:, index], timed.floors[:, index]
        return OperatorTotals(*by_class, timed.flop_seconds[index], timed.byte_seconds[index])
    stacks = [group for _, group in stacks_by_curve(merge_equal(ops))]
    batches = batch_count(stacks)
    widest = max((len(group.ops) for group in stacks), default=1) * batches
    parts = [_totals(stacks, part, p, batches) for part in gpus.parts(max(1, CACHED_NUMBERS // widest))]
    if len(parts) == 1:
        return parts[0]
    return OperatorTotals(
        np.concatenate([part.seconds for part in parts], axis=1),
        np.concatenate([part.floors for part in parts], axis=1),
        np.concatenate([part.flop_seconds for part in parts]),
        np.concatenate([part.byte_seconds for part in parts]),
    )


def floor_totals(ops: Sequence[Op], gpus: GpuColumns) -> Array:
    """Return the least seconds physically possible for all calls of these operators, [gpus, batches]."""
    total: Array = floors_by_operator(merge_equal(ops), gpus).sum(axis=1)
    return total


def floors_by_operator(ops: Sequence[Op], gpus: GpuColumns, burst: bool = False) -> Array:
    """Return the least seconds of all calls of each operator, [gpus, operators, batches]; `burst`: each timed alone."""
    stacks = stacks_by_curve(ops)
    floors = np.zeros((len(gpus), len(ops), batch_count([group for _, group in stacks])))
    for places, group in stacks:
        floors[:, places] = floor_seconds(group, gpus, burst) * stack_numbers([op.count for op in group.ops])
    return floors


def _totals(stacks: Sequence[OperatorStack], gpus: GpuColumns, p: Parameters, batches: int) -> OperatorTotals:
    times = np.zeros((len(TIME_CLASSES), len(gpus), batches))
    floors = np.zeros_like(times)
    all_flops, all_bytes = np.zeros_like(times[0]), np.zeros_like(times[0])
    for group in stacks:
        place = TIME_CLASSES.index(CLASS_BY_KIND[group.ops[0].kind])
        count = stack_numbers([op.count for op in group.ops])
        flop_seconds, byte_seconds = roofline_seconds(group, gpus, p)
        floor = floor_seconds(group, gpus)
        curve_seconds, read_share = _curve(group, gpus, p)
        total, lowest = _times(np.maximum(curve_seconds, floor), count), _times(floor, count)
        if read_share is not None:
            times[STREAM_INDEX] += (total * read_share).sum(axis=1)
            floors[STREAM_INDEX] += (lowest * read_share).sum(axis=1)
            compute_share = np.subtract(1.0, read_share, out=read_share)
            total, lowest = total * compute_share, lowest * compute_share
        times[place] += total.sum(axis=1)
        floors[place] += lowest.sum(axis=1)
        all_flops += _times(flop_seconds, count).sum(axis=1)
        all_bytes += _times(byte_seconds, count).sum(axis=1)
    return OperatorTotals(times, floors, all_flops, all_bytes)


def _times(seconds: Array, count: Array) -> Array:
    """Return seconds [gpus, operators, batches] times the operators' counts, in place if that shape holds the product."""
    return np.multiply(seconds, count, out=seconds if count.shape[1] in (1, seconds.shape[2]) else None)


def _curve(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array | None]:
    """Return the seconds of one call of each operator and, for GEMMs, the share spent reading memory.

    That share is 1 on accelerators timed by their roofline: their clock is fixed, so long GEMMs are not throttled as on GPUs.
    """
    if not any(gpus.rooflines):
        return _kernel_curve(group, gpus, p)
    seconds = roofline.seconds(group, gpus, p)
    if all(gpus.rooflines):
        return seconds, np.ones_like(seconds) if CLASS_BY_KIND[group.ops[0].kind] == "gemm" else None
    on_gpus, read_share = _kernel_curve(group, gpus, p)
    accelerators = np.array([bool(family) for family in gpus.rooflines])[:, None, None]
    return np.where(accelerators, seconds, on_gpus), None if read_share is None else np.where(accelerators, 1.0, read_share)


def _kernel_curve(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array | None]:
    """Return the seconds by the operators' timing model and, for GEMMs, the share spent reading; without tf32 units fp32 runs."""
    has_tf32 = gpus.native["tf32"] > 0
    if group.unit != "tf32" or has_tf32.all():
        return _curve_seconds(group, gpus, p)
    fp32 = _curve_seconds(replace(group, unit="fp32"), gpus, p)
    if not has_tf32.any():
        return fp32
    tf32 = _curve_seconds(group, gpus, p)
    read_share = None if tf32[1] is None or fp32[1] is None else np.where(has_tf32, tf32[1], fp32[1])
    return np.where(has_tf32, tf32[0], fp32[0]), read_share


def _curve_seconds(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array | None]:
    curve = CURVE_BY_KIND[group.ops[0].kind]
    with_read_share = CURVES_WITH_READ_SHARE.get(curve)
    return with_read_share(group, gpus, p) if with_read_share else (CURVES[curve](group, gpus, p), None)


def roofline_seconds(group: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array]:
    """Return the roofline seconds: FLOPs divided by peak, and bytes that miss the cache divided by bandwidth.

    llama.cpp's kernels for quantised weights count at the share of the int8 peak that they can reach, so that a prefill they
    limit is compute-bound.
    """
    if group.ops[0].kind == "host_read":  # Weights in host memory are read at its speed.
        read = host.seconds(group, gpus, p)
        return np.zeros_like(read), read
    kind = CLASS_BY_KIND[group.ops[0].kind]
    unit = group.unit if group.unit in gpus.peaks else "fp32"
    moved = conv.moved_bytes(group) if kind == "conv" else group.read + group.write
    byte_seconds: Array = moved / gpus.bandwidth
    if kind == "memory":
        missed = memory.cache_hit_share(group, gpus, p)
        np.subtract(1.0, missed, out=missed)
        byte_seconds = byte_seconds * memory.min_byte_share(group) * missed
    flops = conv.min_flops(group, gpus) if kind == "conv" else group.flops
    if group.ops[0].kind == "mmq_gemm":
        flops = flops * mmq.slowdown(gpus, p)
    return flops / gpus.peaks[unit], byte_seconds


def batch_count(stacks: Sequence[OperatorStack]) -> int:
    """Return the number of batch sizes for which stacked operators have numbers: the second axis of their arrays."""
    return max((side.shape[1] for one in stacks for side in (one.flops, one.read, one.write)), default=1)


def merge_equal(ops: Sequence[Op]) -> list[Op]:
    """Merge equal operators and add up their counts, because a training step repeats the same few operators many times."""
    merged: dict[tuple[Hashable, ...], Op] = {}
    for op in ops:
        numbers = (op.flops, op.read, op.write, *op.sizes.values())
        exact = [number if type(number) is float else np.asarray(number, float).tobytes() for number in numbers]
        key = (op.kind, op.unit, op.role, *op.sizes, *exact)
        same = merged.get(key)
        merged[key] = op if same is None else same.with_count(same.count + op.count)
    return list(merged.values())


def stacks_by_curve(ops: Sequence[Op]) -> list[tuple[list[int], OperatorStack]]:
    """Stack operators of the same class, timing model and arithmetic unit (e.g. fp8), each stack with its operators' indices."""
    places_by_curve: dict[tuple[str, str, str], list[int]] = {}
    for place, op in enumerate(ops):
        places_by_curve.setdefault((CLASS_BY_KIND[op.kind], CURVE_BY_KIND[op.kind], op.unit), []).append(place)
    return [(places, stack_operators(unit, [ops[place] for place in places])) for (_, _, unit), places in places_by_curve.items()]
