"""One workload on many GPUs at many batch sizes, in one call: the straight way from a request to seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.base.messages import Message
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.calibration import Calibration, Setting, load_calibration, setting_of
from whichgpu.estimate.time.combine import Seconds, combine
from whichgpu.estimate.time.curves.evaluate import Totals, totals
from whichgpu.estimate.time.curves.gpus import GpuColumns, columns_of
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.lowered import Lowered
from whichgpu.estimate.time.terms import BACKWARD_CALL, FORWARD_CALL, KERNEL_GAP, SEQUENCE, STEP, Terms, heaviest_unit
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

Array = np.ndarray
NEWEST = 2026  # the year of the newest software measured with
# An H200 multiplies at 749 TFLOP/s in a burst and at 680 to 695 after two seconds; steps of half a second show half of it.
HEAT_SLOWS, HEAT_AFTER = 0.15, 0.3


@dataclass(frozen=True, slots=True)
class Grid:
    """Seconds, [gpus, batches]. `first` is the time to a sequence's first token where tokens are generated."""

    engine: str
    kind: str  # train, forward, prefill, decode: whose corrections and ranges apply
    seconds: Seconds
    floor: Array
    flop_seconds: Array
    byte_seconds: Array
    first: Array | None = None
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


def evaluate(
    workload: Workload,
    shape: Shape,
    gpus: Sequence[Gpu],
    batches: Array | None = None,
    calibration: Calibration | None = None,
) -> Grid:
    """Time of the workload, its defaults filled in, on each GPU; at each of `batches` (of one GPU), or at its own."""
    fitted = calibration or load_calibration()
    batch: Number = float(workload.local_batch) if batches is None else batches
    if workload.generating and shape.is_generative:
        return _generated(workload, shape, gpus, batch, fitted)
    lowered = lower(workload, shape, batch)
    kind = workload.traits.step
    sequences = in_hand(workload, batch) if kind == "decode" else 0.0
    return replace(
        _grid(workload, kind, terms_of(lowered, columns_of(gpus), sequences, workload.accumulation), gpus, fitted),
        notes=lowered.notes,
    )


def in_hand(workload: Workload, batch: Number) -> Number:
    """Sequences a serving engine does something for at every token; plain code has no scheduler."""
    return batch if engine_record(workload.engine).style == "serving" else 0.0


def terms_of(lowered: Lowered, gpus: GpuColumns, sequences: Number = 0.0, repeats: int = 1) -> Terms:
    """Uncorrected terms of a step of `repeats` equal rounds; `sequences` are those a serving engine has in hand."""
    return terms_from(totals(lowered.ops, gpus), lowered, sequences, repeats)


def terms_from(told: Totals, lowered: Lowered, sequences: Number = 0.0, repeats: int = 1) -> Terms:
    """The same of operators already timed."""
    shape = told.seconds.shape[1:]
    worked = np.concatenate([told.seconds[:1] * heat(told.seconds[0] / repeats), told.seconds[1:]])
    kernels: Number = sum(op.count for op in lowered.ops)
    forward, backward = lowered.calls_forward, lowered.calls_backward
    counted = (
        kernels * KERNEL_GAP,
        forward * FORWARD_CALL,
        backward * BACKWARD_CALL,
        np.full(1, STEP),
        np.asarray(sequences) * SEQUENCE,
    )
    seconds = np.concatenate([worked, [np.broadcast_to(one, shape) for one in counted]])
    floors = np.concatenate([told.floors, np.zeros((len(counted), *shape))])
    return Terms(seconds, floors, told.flop_seconds, told.byte_seconds, heaviest_unit(lowered.ops))


def heat(products: Array) -> Array:
    """How much slower products get when they last: the power limit takes clocks down after a while at full load."""
    told: Array = 1.0 + HEAT_SLOWS * products / (products + HEAT_AFTER)
    return told


def settings(workload: Workload, kind: str, unit: str, gpus: Sequence[Gpu]) -> list[Setting]:
    """What decides the corrections on each GPU; what asks for tf32 is fp32 on one without it."""
    engine, year = workload.engine or default_engine(), workload.year or NEWEST
    plain = "single" if workload.precision == "tf32" else unit
    return [setting_of(gpu, engine, year, kind, unit if "tf32" in gpu.peaks else plain) for gpu in gpus]


def generation_terms(workload: Workload, shape: Shape, gpus: GpuColumns, batch: Number) -> tuple[Terms, Terms]:
    """Terms of reading prompts, and of one decode step. A batch reads its prompts together, a server each as it comes."""
    read = lower(replace(workload, task="prefill"), shape, 1.0 if workload.serving else batch)
    return terms_of(read, gpus), terms_of(lower(workload, shape, batch), gpus, in_hand(workload, batch))


def _generated(workload: Workload, shape: Shape, gpus: Sequence[Gpu], batch: Number, fitted: Calibration) -> Grid:
    """Seconds between one sequence's tokens: a decode step, and its share of the prompts that come in meanwhile.

    An answer begins when its prompt is read, alone or with those of its batch.
    """
    read, token = generation_terms(workload, shape, columns_of(gpus), batch)
    prompts = np.asarray(batch) if workload.serving else 1.0
    told = _grid(workload, "generate", token + read * (prompts / max(1, workload.seq_out or 1)), gpus, fitted)
    first = corrected(workload, "generate", read + token, gpus, fitted).wall
    return replace(told, first=first)


def _grid(workload: Workload, kind: str, terms: Terms, gpus: Sequence[Gpu], fitted: Calibration) -> Grid:
    told = corrected(workload, kind, terms, gpus, fitted)
    # Terms side by side in memory are added in the same order for one GPU as for many, so that asking together changes no bit.
    floor = np.moveaxis(terms.floors, 0, -1).copy().sum(axis=-1)
    return Grid(workload.engine or default_engine(), kind, told, floor, terms.flop_seconds, terms.byte_seconds)


def corrected(workload: Workload, kind: str, terms: Terms, gpus: Sequence[Gpu], fitted: Calibration) -> Seconds:
    """Terms with what was measured put in."""
    factors = fitted.factors(settings(workload, kind, terms.unit, gpus))
    return combine(terms, factors, not engine_record(workload.engine).captures_graphs, workload.host_speed)
