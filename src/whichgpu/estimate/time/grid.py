"""One workload on many GPUs at many batch sizes, in one call: the straight way from a request to seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.base.messages import Message
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import Calibration, CorrectionKey, correction_key, load_calibration
from whichgpu.estimate.time.combine import StepSeconds, step_seconds
from whichgpu.estimate.time.curves.evaluate import OperatorTotals, operator_totals
from whichgpu.estimate.time.curves.gpus import GpuColumns, cached_gpu_columns
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.lowered import LoweredStep
from whichgpu.estimate.time.operators import Number
from whichgpu.estimate.time.terms import (
    BACKWARD_CALL_SECONDS,
    FIXED_STEP_SECONDS,
    FORWARD_CALL_SECONDS,
    KERNEL_GAP_SECONDS,
    SEQUENCE_SECONDS,
    TimeTerms,
    dominant_unit_class,
)
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

Array = np.ndarray
NEWEST_SOFTWARE_YEAR = 2026  # the year of the newest software measured with
# An H200 multiplies at 749 TFLOP/s in a burst and at 680 to 695 after two seconds; steps of half a second show half of it.
HEAT_SLOWS, HEAT_AFTER = 0.15, 0.3


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Seconds, [gpus, batches]. `ttft` is the time to a sequence's first token where tokens are generated."""

    engine: str
    kind: str  # train, forward, prefill, decode: whose corrections and ranges apply
    seconds: StepSeconds
    floor: Array
    flop_seconds: Array
    byte_seconds: Array
    ttft: Array | None = None
    notes: tuple[Message, ...] = ()

    def bound(self, gpu: int, batch: int) -> str:
        """What holds it back: compute, bandwidth, or the overhead of many small steps."""
        place = gpu, batch
        wall, device = self.seconds.wall[place], self.seconds.device[place]
        flops, moved = self.flop_seconds[place], self.byte_seconds[place]
        if self.seconds.host[place] > device or max(flops, moved) < OVERHEAD_SHARE * wall:
            return "overhead"
        return "compute" if flops >= moved else "bandwidth"


OVERHEAD_SHARE = 0.1  # below this share of the time spent at the physical limits, neither limit is what bounds


def evaluate_grid(
    workload: Workload,
    shape: Shape,
    gpus: Sequence[Gpu],
    batches: Array | None = None,
    calibration: Calibration | None = None,
) -> TimeGrid:
    """Time of the workload, its defaults filled in, on each GPU; at each of `batches` (of one GPU), or at its own."""
    fitted = calibration or load_calibration()
    batch: Number = float(workload.local_batch) if batches is None else batches
    if workload.generating and shape.is_generative:
        return _generated(workload, shape, gpus, batch, fitted)
    lowered = lower(workload, shape, batch)
    kind = workload.traits.step
    sequences = scheduled_sequences(workload, batch) if kind == "decode" else 0.0
    terms = uncorrected_terms(lowered, cached_gpu_columns(gpus), sequences, workload.accumulation)
    return replace(_grid(workload, kind, terms, gpus, fitted), notes=lowered.notes)


def scheduled_sequences(workload: Workload, batch: Number) -> Number:
    """Sequences a serving engine does something for at every token; plain code has no scheduler."""
    return batch if engine_record(workload.engine).style == "serving" else 0.0


def uncorrected_terms(lowered: LoweredStep, gpus: GpuColumns, sequences: Number = 0.0, repeats: int = 1) -> TimeTerms:
    """Uncorrected terms of a step of `repeats` equal rounds; `sequences` are those a serving engine has in hand."""
    return terms_from_totals(operator_totals(lowered.ops, gpus), lowered, sequences, repeats)


def terms_from_totals(told: OperatorTotals, lowered: LoweredStep, sequences: Number = 0.0, repeats: int = 1) -> TimeTerms:
    """The same of operators already timed."""
    shape = told.seconds.shape[1:]
    worked = np.concatenate([told.seconds[:1] * throttling_slowdown(told.seconds[0] / repeats), told.seconds[1:]])
    kernels: Number = sum(op.count for op in lowered.ops)
    forward, backward = lowered.calls_forward, lowered.calls_backward
    counted = (
        kernels * KERNEL_GAP_SECONDS,
        forward * FORWARD_CALL_SECONDS,
        backward * BACKWARD_CALL_SECONDS,
        np.full(1, FIXED_STEP_SECONDS),
        np.asarray(sequences) * SEQUENCE_SECONDS,
    )
    seconds = np.concatenate([worked, [np.broadcast_to(one, shape) for one in counted]])
    floors = np.concatenate([told.floors, np.zeros((len(counted), *shape))])
    return TimeTerms(seconds, floors, told.flop_seconds, told.byte_seconds, dominant_unit_class(lowered.ops))


def throttling_slowdown(products: Array) -> Array:
    """How much slower products get when they last: the power limit takes clocks down after a while at full load."""
    told: Array = 1.0 + HEAT_SLOWS * products / (products + HEAT_AFTER)
    return told


def correction_keys(workload: Workload, kind: str, unit: str, gpus: Sequence[Gpu]) -> list[CorrectionKey]:
    """What decides the corrections on each GPU; what asks for tf32 is fp32 on one without it."""
    engine, year = workload.engine or default_engine(), workload.year or NEWEST_SOFTWARE_YEAR
    plain = "single" if workload.precision == "tf32" else unit
    return [correction_key(gpu, engine, year, kind, unit if "tf32" in gpu.peaks else plain) for gpu in gpus]


def generation_terms(workload: Workload, shape: Shape, gpus: GpuColumns, batch: Number) -> tuple[TimeTerms, TimeTerms]:
    """Terms of reading prompts, and of one decode step. A batch reads its prompts together, a server each as it comes."""
    read = lower(replace(workload, task="prefill"), shape, 1.0 if workload.serving else batch)
    token = lower(workload, shape, batch)
    return uncorrected_terms(read, gpus), uncorrected_terms(token, gpus, scheduled_sequences(workload, batch))


def _generated(workload: Workload, shape: Shape, gpus: Sequence[Gpu], batch: Number, fitted: Calibration) -> TimeGrid:
    """Seconds between one sequence's tokens: a decode step, and its share of the prompts that come in meanwhile.

    An answer begins when its prompt is read, alone or with those of its batch.
    """
    read, token = generation_terms(workload, shape, cached_gpu_columns(gpus), batch)
    prompts = np.asarray(batch) if workload.serving else 1.0
    told = _grid(workload, "generate", token + read * (prompts / max(1, workload.seq_out or 1)), gpus, fitted)
    first = corrected_seconds(workload, "generate", read + token, gpus, fitted).wall
    return replace(told, ttft=first)


def _grid(workload: Workload, kind: str, terms: TimeTerms, gpus: Sequence[Gpu], fitted: Calibration) -> TimeGrid:
    told = corrected_seconds(workload, kind, terms, gpus, fitted)
    # Terms side by side in memory are added in the same order for one GPU as for many, so that asking together changes no bit.
    floor = np.moveaxis(terms.floors, 0, -1).copy().sum(axis=-1)
    return TimeGrid(workload.engine or default_engine(), kind, told, floor, terms.flop_seconds, terms.byte_seconds)


def corrected_seconds(workload: Workload, kind: str, terms: TimeTerms, gpus: Sequence[Gpu], fitted: Calibration) -> StepSeconds:
    """Terms with what was measured put in."""
    factors = fitted.factors(correction_keys(workload, kind, terms.unit, gpus))
    return step_seconds(terms, factors, not engine_record(workload.engine).captures_graphs, workload.host_speed)
