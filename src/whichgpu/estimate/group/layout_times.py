"""Seconds of a step in many layouts from few evaluations: each operator is timed once per tensor degree and reused."""

from __future__ import annotations

from functools import reduce
from operator import add

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.group.breakdown import StepParts, combine_parts
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.layout_memory import apply_layout
from whichgpu.estimate.group.operator_times import PHASES, OperatorTimes
from whichgpu.estimate.group.ranks import pipeline_schedule, rank_step
from whichgpu.estimate.group.step import Devices, collective_seconds, evaluate_group, link_corrections
from whichgpu.estimate.group.traffic import step_collectives
from whichgpu.estimate.time.combine import device_host_and_fixed_seconds
from whichgpu.estimate.time.curves.gpus import cached_gpu_columns
from whichgpu.estimate.time.grid import correction_keys
from whichgpu.estimate.time.lower.eager.training import StepSection, accumulates_in_gemms
from whichgpu.estimate.time.lower.layer_kinds import slowest_stage
from whichgpu.estimate.time.terms import TERMS, TimeTerms
from whichgpu.workload.layouts import stage_layers
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.training_defaults import micro_batches
from whichgpu.workload.workload import Parallel, Workload

MAX_MICRO_BATCH = 256  # largest number of samples per rank tried (assumed)
POWERS_OF_TWO: Array = 2.0 ** np.arange(MAX_MICRO_BATCH.bit_length(), dtype=np.float64)  # micro-batch sizes in samples
ATTENTION_SHARE = 0.2  # share of forward and backward spent in attention, which may overlap context-parallel sends (assumed)
CommunicationSeconds = dict[str, Array]  # seconds by field name of `StepParts`


def micro_batch_sizes(share: int) -> Array:
    """Return divisors of a rank's share of the batch as micro-batch sizes: powers of two, and the largest between two powers.

    >>> micro_batch_sizes(12).astype(int).tolist(), micro_batch_sizes(1023).astype(int).tolist()
    ([1, 2, 3, 4, 6, 12], [1, 3, 11, 31, 33, 93])
    """
    return np.array(micro_batches(share, MAX_MICRO_BATCH), dtype=np.float64)


class TimedStep(msgspec.Struct, frozen=True):
    """Seconds by phase and class of operator (`TimeTerms`) at given parallel degrees: whole model, its layers, its two ends."""

    whole: dict[str, TimeTerms]
    layers: dict[str, TimeTerms]
    embedding: dict[str, TimeTerms]
    head: dict[str, TimeTerms]
    accumulate: TimeTerms  # seconds of adding one micro-batch's gradients to those of earlier ones
    unit: str  # class of the arithmetic unit that does most FLOPs, such as half


class LayoutTimes:
    """Computes the seconds of a step by layout, checkpointing and micro-batch size, [gpus, micro-batches]."""

    def __init__(
        self, workload: Workload, shape: Shape, devices: Devices, gpus: int, nodes: int, like: LayoutTimes | None = None,
        sizes: Array = POWERS_OF_TWO,
    ) -> None:  # fmt: skip
        """Prepare the times of steps on `gpus` GPUs with micro-batches of `sizes` samples, in ascending order.

        `like` timed the same workload on the same devices for another number of GPUs: its operator times are used again.
        """
        self.workload, self.shape, self.devices = replace(workload, gpus=gpus, nodes=nodes), shape, devices
        columns = cached_gpu_columns(devices.gpus)
        self._columns, self._column_of = columns.distinct or (columns, np.arange(len(columns)))
        self._operators: dict[tuple[int, int, int, bool], tuple[OperatorTimes, TimeTerms]] = like._operators if like else {}
        self._timed: dict[tuple[int, int, int, bool, str], TimedStep] = like._timed if like else {}
        self._factors: dict[str, Array] = like._factors if like else {}
        self._gradients: dict[Parallel, tuple[CommunicationSeconds, CommunicationSeconds]] = {}
        self._corrections = link_corrections(self.workload, "train", devices) if workload.training else {}
        self.micro = sizes

    def seconds(self, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        """Return the seconds of a step in one layout at each micro-batch, [gpus, micro-batches]."""
        if isinstance(self.shape, Transformer) and self.workload.training:
            return self._training_seconds(self.shape, parallel, checkpointing, micro, accumulation)
        gpus, nodes = self.workload.gpus, self.workload.nodes
        walls = []
        for size, rounds in zip(micro, accumulation, strict=True):
            one = apply_layout(self.workload, parallel, int(size), int(rounds), checkpointing)
            walls.append(evaluate_group(replace(one, gpus=gpus, nodes=nodes), self.shape, self.devices).breakdown.wall)
        return np.concatenate(walls, axis=1)

    def _training_seconds(
        self, shape: Transformer, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array
    ) -> Array:
        workload = replace(self.workload, parallel=parallel, checkpointing=checkpointing, accumulation=1)
        timed = self._timed_step(shape, parallel, checkpointing)
        stage = slowest_stage(shape, parallel.pp)
        other_stages = 1.0 - len(stage_layers(shape.layers, parallel.pp, stage)) / shape.layers
        elsewhere = [timed.embedding] if stage > 0 else []  # An encoder-decoder model keeps both ends on one stage.
        elsewhere += [timed.head] if stage < parallel.pp - 1 and not shape.encoder_layers else []
        chosen = np.searchsorted(self.micro, micro).astype(np.int64)
        if timed.unit not in self._factors:
            unit_settings = correction_keys(workload, "train", timed.unit, self.devices.gpus)
            self._factors[timed.unit] = self.devices.calibration.factors(unit_settings)
        factors, rounds = self._factors[timed.unit], accumulation[None, :]
        forward, backward, step = (
            device_host_and_fixed_seconds(
                _at_micro_batches(
                    reduce(
                        add, (end[phase] * -1.0 for end in elsewhere), timed.whole[phase] + timed.layers[phase] * -other_stages
                    ),
                    chosen,
                ),
                factors,
            )
            for phase in PHASES
        )
        adding = device_host_and_fixed_seconds(timed.accumulate * (0.0 if accumulates_in_gemms(workload) else 1.0), factors)
        gradient_share = (1.0 / parallel.dp if parallel.zero >= 2 else 1.0) / parallel.pp
        optimizer_share = (1.0 / parallel.dp if parallel.zero else 1.0) / parallel.pp
        backward_seconds = backward[0] * rounds + adding[0] * gradient_share * (rounds - 1.0)
        calls = (forward[1] + backward[1]) * rounds + adding[1] / parallel.pp * (rounds - 1.0) + step[1]
        if engine_record(workload.engine).captures_graphs:
            calls = 0.0 * rounds
        ones = np.ones_like(forward[0])
        pipeline = ones
        if parallel.pp > 1:
            stretches = [pipeline_schedule(replace(workload, accumulation=int(one)), 1.0)[1] for one in accumulation]
            pipeline = np.array(stretches) * ones
        parts = StepParts(
            device=forward[0] * rounds + backward_seconds + step[0] * optimizer_share,
            calls=calls * ones,
            forward_calls=0.0 * ones,
            once=forward[2],
            forward=forward[0] * rounds,
            backward=backward_seconds / (1.0 if parallel.zero >= 2 else rounds),
            attention=ATTENTION_SHARE * (forward[0] + backward[0]) * rounds,
            **{name: value * ones for name, value in self._communication(workload, shape, micro, accumulation).items()},
            launches=0.0 * ones,
            ranks=float(max(1, parallel.dp * parallel.tp * parallel.cp)) * ones,
            synchronised=float(max(1, parallel.dp * parallel.tp * parallel.cp)) * ones,
            pipeline=pipeline,
            copied_tensors=0.0 * ones,
            threads=ones,
        )
        return combine_parts(parts, self._corrections).wall

    def _communication(self, workload: Workload, shape: Transformer, micro: Array, accumulation: Array) -> CommunicationSeconds:
        """Return a step's collective seconds by field of `StepParts`; gradients' are extrapolated from one and two rounds."""
        collectives = [one for one in step_collectives(workload, shape, micro) if one.axis != "dp"]
        layers = collective_seconds(workload, collectives, self.devices)
        rounds = accumulation[None, :]
        once, twice = self._gradient_communication(workload, shape)
        total = {name: layers[name] * rounds + once[name] + (twice[name] - once[name]) * (rounds - 1.0) for name in layers}
        return {**total, "backward_tail": once["backward_tail"]}

    def _gradient_communication(
        self, workload: Workload, shape: Transformer
    ) -> tuple[CommunicationSeconds, CommunicationSeconds]:
        """Return the seconds of data-parallel collectives in a step of one and of two accumulation rounds; cached by layout."""
        if workload.parallel not in self._gradients:
            both = ([one for one in step_collectives(replace(workload, accumulation=rounds), shape, 1.0) if one.axis == "dp"]
                    for rounds in (1, 2))  # fmt: skip
            once, twice = (collective_seconds(workload, collectives, self.devices) for collectives in both)
            self._gradients[workload.parallel] = once, twice
        return self._gradients[workload.parallel]

    def _timed_step(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> TimedStep:
        key = (parallel.tp, parallel.cp, parallel.ep, parallel.sp, checkpointing)
        if key not in self._timed:
            times, accumulate = self._operator_times(shape, parallel)
            counts = times.phase_counts(checkpointing != "none")
            self._timed[key] = TimedStep(
                whole={phase: self._per_device(times.terms(weights, phase)) for phase, weights in counts.items()},
                layers={phase: self._per_device(times.terms(weights * times.grows, phase)) for phase, weights in counts.items()},
                embedding=self._end(times, counts, "embedding"),
                head=self._end(times, counts, "head"),
                accumulate=self._per_device(accumulate),
                unit=times.unit,
            )
        return self._timed[key]

    def _end(self, times: OperatorTimes, counts: dict[str, Array], end: str) -> dict[str, TimeTerms]:
        """Return the seconds by phase of the operators at one end of the model; a step's fixed time is not among them."""
        fixed = np.zeros(len(TERMS))
        fixed[TERMS.index("step")] = 1.0
        by_phase = {}
        for phase, weights in counts.items():
            terms = self._per_device(times.terms(weights * (times.ends == end), phase))
            by_phase[phase] = replace(terms, seconds=terms.seconds * (1.0 - fixed)[:, None, None])
        return by_phase

    def _operator_times(self, shape: Transformer, parallel: Parallel) -> tuple[OperatorTimes, TimeTerms]:
        """Return the times of a step's operators, and of adding one more micro-batch's gradients, at these parallel degrees."""
        key = (parallel.tp, parallel.cp, parallel.ep, parallel.sp)
        if key not in self._operators:
            degrees = Parallel(tp=parallel.tp, cp=parallel.cp, ep=parallel.ep, sp=parallel.sp)
            checkpointing = "full" if self.workload.checkpointing == "none" else self.workload.checkpointing
            one = replace(self.workload, parallel=degrees, checkpointing=checkpointing, accumulation=1, micro_batch=None)
            step = rank_step(one, shape, self.micro)
            accumulate = OperatorTimes.of([StepSection([step.accumulation_op])], self._columns)
            times = OperatorTimes.of([*step.sections, StepSection(step.optimizer_ops)], self._columns)
            self._operators[key] = times, accumulate.terms(accumulate.counts, "backward")
        return self._operators[key]

    def _per_device(self, terms: TimeTerms) -> TimeTerms:
        """Expand time terms (seconds by class of operator) from the distinct GPUs to all devices, some of which are equal."""
        zeros = np.zeros((len(self._column_of), terms.seconds.shape[2]))
        return TimeTerms(terms.seconds[:, self._column_of], terms.floors[:, self._column_of], zeros, zeros, terms.unit)


def _at_micro_batches(terms: TimeTerms, chosen: NDArray[np.int64]) -> TimeTerms:
    return replace(terms, seconds=terms.seconds[:, :, chosen], floors=terms.floors[:, :, chosen])
