"""Seconds of one workload on many GPUs at many batch sizes, in one call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.messages import Message
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.confidence.axes import NEWEST_SOFTWARE_YEAR
from whichgpu.estimate.time.calibration import Calibration, CorrectionKey, correction_key, load_calibration
from whichgpu.estimate.time.combine import StepSeconds, host_loop_seconds, host_mode, step_seconds
from whichgpu.estimate.time.curves.evaluate import OperatorTotals, operator_totals
from whichgpu.estimate.time.curves.gpus import GpuColumns, cached_gpu_columns
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.operators import LoweredStep, Number
from whichgpu.estimate.time.terms import (
    BACKWARD_CALL_SECONDS,
    FIXED_STEP_SECONDS,
    FORWARD_CALL_SECONDS,
    KERNEL_GAP_SECONDS,
    SEQUENCE_SECONDS,
    TimeTerms,
    dominant_unit_class,
)
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

Array = np.ndarray
# Measured: an H200 runs GEMMs at 749 TFLOP/s in a burst and at 680 to 695 after two seconds; half of the drop comes in 0.5 s.
# fp32 GEMMs of 0.15 s and more against those of 3 to 60 ms (NeuSight; 1024 to 4096 steps of k, since longer ones are two to three
# times slower on Pascal for another reason): 17% slower on the T4 (70 W), 10% on the P4 (75 W), 2% on the L4 (72 W), 0 to 3% on
# P100, V100, A100 and H100.
THROTTLING_SHARE, THROTTLING_SECONDS = 0.15, 0.3
OVERHEAD_SHARE = 0.1  # a step is overhead-bound if less than this share of its time is spent at either roofline limit


class TimeGrid(msgspec.Struct, frozen=True):
    """Seconds of a step by GPU and batch size, [gpus, batches]; `ttft` is that to a sequence's first token, if it generates."""

    engine: str
    kind: str  # the kind of step whose corrections and ranges apply: train, forward, prefill, decode, generate
    seconds: StepSeconds
    floor: Array
    flop_seconds: Array
    byte_seconds: Array
    ttft: Array | None = None
    notes: tuple[Message, ...] = ()

    def bound(self, gpu: int, batch: int) -> str:
        """Return what bounds the step on a GPU at a batch (indices): compute, bandwidth or overhead (launches, small kernels)."""
        place = gpu, batch
        wall, device = self.seconds.wall[place], self.seconds.device[place]
        flops, moved = self.flop_seconds[place], self.byte_seconds[place]
        if self.seconds.host[place] > device or max(flops, moved) < OVERHEAD_SHARE * wall:
            return "overhead"
        return "compute" if flops >= moved else "bandwidth"


def evaluate_grid(
    workload: Workload,
    shape: Shape,
    gpus: Sequence[Gpu],
    batches: Array | None = None,
    calibration: Calibration | None = None,
) -> TimeGrid:
    """Return a workload's time (defaults filled in) on each GPU, at each of `batches` (per GPU) or at the workload's batch."""
    fitted = calibration or load_calibration()
    batch: Number = float(workload.local_batch) if batches is None else batches
    if workload.generating and shape.is_generative:
        return _generation_grid(workload, shape, gpus, batch, fitted)
    lowered = lower(workload, shape, batch)
    kind = workload.traits.step
    sequences = scheduled_sequences(workload, batch) if kind == "decode" else 0.0
    terms = uncorrected_terms(lowered, cached_gpu_columns(gpus), sequences, workload.accumulation)
    return replace(_grid(workload, kind, terms, gpus, fitted), notes=lowered.notes)


def scheduled_sequences(workload: Workload, batch: Number) -> Number:
    """Return the sequences a serving engine schedules at every token, by vLLM's host work of 2024; 0 for other engines."""
    engine = engine_record(workload.engine, workload.year)
    return batch * engine.host.sequence_work if engine.style == "serving" else 0.0


def uncorrected_terms(lowered: LoweredStep, gpus: GpuColumns, sequences: Number = 0.0, repeats: int = 1) -> TimeTerms:
    """Return seconds by class of operator and host work, before fitted multipliers, of `repeats` rounds of `sequences` each."""
    return terms_from_totals(operator_totals(lowered.ops, gpus), lowered, sequences, repeats)


def terms_from_totals(totals: OperatorTotals, lowered: LoweredStep, sequences: Number = 0.0, repeats: int = 1) -> TimeTerms:
    """Return a step's seconds by class of operator and host work, before fitted multipliers, from its operators' totals."""
    shape = totals.seconds.shape[1:]
    gemm = totals.seconds[:1]
    operators = np.concatenate([gemm * throttling_slowdown(gemm[0] / repeats), totals.seconds[1:]])
    counted = (
        lowered.gaps * KERNEL_GAP_SECONDS,
        lowered.calls_forward * FORWARD_CALL_SECONDS,
        lowered.calls_backward * BACKWARD_CALL_SECONDS,
        np.full(1, FIXED_STEP_SECONDS),
        np.asarray(sequences) * SEQUENCE_SECONDS,
    )
    seconds = np.concatenate([operators, [np.broadcast_to(one, shape) for one in counted]])
    floors = np.concatenate([totals.floors, np.zeros((len(counted), *shape))])
    return TimeTerms(seconds, floors, totals.flop_seconds, totals.byte_seconds, dominant_unit_class(lowered.ops))


def throttling_slowdown(gemm_seconds: Array) -> Array:
    """Return the slowdown factor of long GEMM phases: the power limit lowers the clock after a while at full load."""
    slowdown: Array = 1.0 + THROTTLING_SHARE * gemm_seconds / (gemm_seconds + THROTTLING_SECONDS)
    return slowdown


def correction_keys(workload: Workload, kind: str, unit: str, gpus: Sequence[Gpu]) -> list[CorrectionKey]:
    """Return the correction key of a step on each GPU, by the unit class that computes there.

    On a GPU without the units, tf32 counts as fp32, and formats below 16 bits, which are dequantised, count as 16-bit.
    """
    engine, year = workload.engine or default_engine(), workload.year or NEWEST_SOFTWARE_YEAR
    operand = PRECISION_BY_NAME[workload.precision].operand_unit if unit == "narrow" and workload.precision else ""

    def unit_class(gpu: Gpu) -> str:
        if operand and operand not in gpu.peaks:
            return "half"
        return "single" if unit == "tf32" and "tf32" not in gpu.peaks else unit

    return [correction_key(gpu, engine, year, kind, unit_class(gpu)) for gpu in gpus]


def generation_terms(workload: Workload, shape: Shape, gpus: GpuColumns, batch: Number) -> tuple[TimeTerms, TimeTerms]:
    """Return seconds by class of operator, before fitted multipliers, of a prefill (one prompt in a server) and a decode step."""
    prefill = lower(replace(workload, task="prefill"), shape, 1.0 if workload.serving else batch)
    decode = lower(workload, shape, batch)
    return uncorrected_terms(prefill, gpus), uncorrected_terms(decode, gpus, scheduled_sequences(workload, batch))


def _generation_grid(workload: Workload, shape: Shape, gpus: Sequence[Gpu], batch: Number, fitted: Calibration) -> TimeGrid:
    """Return the seconds between one sequence's tokens: a decode step plus its share of other requests' prefills.

    The first token takes a prefill (of the prompt alone, or together with its batch) and one decode step.
    """
    prefill, decode = generation_terms(workload, shape, cached_gpu_columns(gpus), batch)
    share = (np.asarray(batch) if workload.serving else 1.0) / max(1, workload.seq_out or 1)
    grid = _grid(workload, "generate", decode + prefill * share, gpus, fitted)
    token, read = (corrected_seconds(workload, "generate", terms, gpus, fitted) for terms in (decode, prefill))
    seconds = StepSeconds(token.wall + read.wall * share, token.device + read.device * share, token.host + read.host * share)
    return replace(grid, seconds=seconds, ttft=token.wall + read.wall + request_latency(workload))


def _grid(workload: Workload, kind: str, terms: TimeTerms, gpus: Sequence[Gpu], fitted: Calibration) -> TimeGrid:
    seconds = corrected_seconds(workload, kind, terms, gpus, fitted)
    # Terms are summed in the same order for one GPU as for many, so that the results are identical bit by bit.
    floor = np.moveaxis(terms.floors, 0, -1).copy().sum(axis=-1)
    return TimeGrid(workload.engine or default_engine(), kind, seconds, floor, terms.flop_seconds, terms.byte_seconds)


def corrected_seconds(workload: Workload, kind: str, terms: TimeTerms, gpus: Sequence[Gpu], fitted: Calibration) -> StepSeconds:
    """Return a step's seconds: those by class of operator and host work, times the calibration's fitted multipliers."""
    factors = fitted.factors(correction_keys(workload, kind, terms.unit, gpus))
    software = workload.engine, workload.year
    loop = host_loop_seconds(*software, terms)
    seconds = step_seconds(terms, factors, host_mode(*software), workload.host_speed, loop)
    latency = request_latency(workload) if kind == "prefill" else 0.0
    return replace(seconds, wall=seconds.wall + latency, host=seconds.host + latency) if latency else seconds


def request_latency(workload: Workload) -> float:
    """Return the host seconds that an engine adds to a request's prefill, before the first step and after it."""
    return engine_record(workload.engine, workload.year).host.request_latency / workload.host_speed
