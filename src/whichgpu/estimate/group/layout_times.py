"""Seconds of a step in many layouts from few evaluations: each operator is timed once per tensor degree and reused."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.group.breakdown import StepParts, combine_parts
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.layout_memory import apply_layout
from whichgpu.estimate.group.operator_times import PHASES, OperatorTimes
from whichgpu.estimate.group.ranks import rank_step, training_stretch
from whichgpu.estimate.group.step import Devices, collective_seconds, evaluate_group, link_corrections, smallest_domain
from whichgpu.estimate.group.traffic import communicator_of, data_parallel_collectives, step_collectives
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


class StageWork(NamedTuple):
    """Seconds of the slowest pipeline stage, [gpus, micro-batches]: on the device, of framework calls, once per step."""

    phases: tuple[tuple[Array, Array, Array], ...]  # of the forward pass, the backward pass and the optimizer step
    adding: tuple[Array, Array, Array]  # of adding one micro-batch's gradients to those of earlier ones


class LayoutStep(NamedTuple):
    """A training step in one layout at several micro-batches: samples of each, and its accumulation rounds."""

    parallel: Parallel
    checkpointing: str
    micro: Array
    accumulation: Array


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
        self._work: dict[tuple[int, int, int, bool, int, str], StageWork] = like._work if like else {}
        self._layer_seconds: dict[Hashable, CommunicationSeconds] = like._layer_seconds if like else {}
        self._gradients: dict[Parallel, tuple[CommunicationSeconds, CommunicationSeconds]] = {}
        self._corrections = link_corrections(self.workload, "train", devices) if workload.training else {}
        self._domain_gpus = smallest_domain(devices)
        self.micro = sizes

    def seconds(self, steps: Sequence[LayoutStep]) -> list[Array]:
        """Return the seconds of each step at each of its micro-batches, [gpus, micro-batches]; all steps are combined at once."""
        shape = self.shape
        if isinstance(shape, Transformer) and self.workload.training:
            joined = _join_parts([self._training_parts(shape, one) for one in steps])
            ends = np.cumsum([len(one.micro) for one in steps])[:-1]
            return np.split(combine_parts(joined, self._corrections).wall, ends, axis=1)
        return [np.concatenate([self._evaluated(one, at) for at in range(len(one.micro))], axis=1) for one in steps]

    def _evaluated(self, step: LayoutStep, at: int) -> Array:
        """Return the seconds of a step at one of its micro-batches by a complete evaluation, [gpus, 1]."""
        one = apply_layout(self.workload, step.parallel, int(step.micro[at]), int(step.accumulation[at]), step.checkpointing)
        one = replace(one, gpus=self.workload.gpus, nodes=self.workload.nodes)
        return evaluate_group(one, self.shape, self.devices).breakdown.wall

    def _training_parts(self, shape: Transformer, one: LayoutStep) -> dict[str, Array]:
        """Return the parts of a training step that are not zero, by field of `StepParts`."""
        parallel, rounds = one.parallel, one.accumulation[None, :]
        workload = replace(self.workload, parallel=parallel, checkpointing=one.checkpointing, accumulation=1)
        chosen = np.searchsorted(self.micro, one.micro).astype(np.int64)
        work = self._stage_work(workload, shape)
        forward, backward, step = ([seconds[:, chosen] for seconds in phase] for phase in work.phases)
        gradient_share = (1.0 / parallel.dp if parallel.zero >= 2 else 1.0) / parallel.pp
        optimizer_share = (1.0 / parallel.dp if parallel.zero else 1.0) / parallel.pp
        backward_seconds, calls = backward[0] * rounds, (forward[1] + backward[1]) * rounds
        if not accumulates_in_gemms(workload):
            backward_seconds = backward_seconds + work.adding[0] * gradient_share * (rounds - 1.0)
            calls = calls + work.adding[1] / parallel.pp * (rounds - 1.0)
        ranks = np.full_like(rounds, max(1, parallel.dp * parallel.tp * parallel.cp))
        parts = {
            "device": forward[0] * rounds + backward_seconds + step[0] * optimizer_share,
            "once": forward[2],
            "forward": forward[0] * rounds,
            "backward": backward_seconds / (1.0 if parallel.zero >= 2 else rounds),
            "attention": ATTENTION_SHARE * (forward[0] + backward[0]) * rounds,
            "ranks": ranks,
            "synchronised": ranks,
            "pipeline": np.asarray(training_stretch(parallel, rounds), dtype=np.float64),
            "threads": np.ones_like(rounds),
        }
        if not engine_record(workload.engine).captures_graphs:
            parts["calls"] = calls + step[1]
        return parts | self._communication(workload, shape, chosen, rounds)

    def _stage_work(self, workload: Workload, shape: Transformer) -> StageWork:
        """Return the slowest pipeline stage's seconds by phase at every micro-batch; cached by parallel degrees."""
        parallel = workload.parallel
        key = (parallel.tp, parallel.cp, parallel.ep, parallel.sp, parallel.pp, workload.checkpointing)
        if key not in self._work:
            timed = self._timed_step(shape, parallel, workload.checkpointing)
            stage = slowest_stage(shape, parallel.pp)
            other_stages = 1.0 - len(stage_layers(shape.layers, parallel.pp, stage)) / shape.layers
            elsewhere = [timed.embedding] if stage > 0 else []  # An encoder-decoder model keeps both ends on one stage.
            elsewhere += [timed.head] if stage < parallel.pp - 1 and not shape.encoder_layers else []
            factors = self.devices.calibration.factors(correction_keys(workload, "train", timed.unit, self.devices.gpus))
            phases = []
            for phase in PHASES:
                own = timed.whole[phase] + timed.layers[phase] * -other_stages
                terms = reduce(add, (end[phase] * -1.0 for end in elsewhere), own)
                phases.append(device_host_and_fixed_seconds(terms, factors))
            self._work[key] = StageWork(tuple(phases), device_host_and_fixed_seconds(timed.accumulate, factors))
        return self._work[key]

    def _communication(
        self, workload: Workload, shape: Transformer, chosen: NDArray[np.int64], rounds: Array
    ) -> CommunicationSeconds:
        """Return a step's collective seconds by field of `StepParts`; gradients' are extrapolated from one and two rounds."""
        layers = self._layer_communication(workload, shape)
        once, twice = self._gradient_communication(workload, shape)
        total = {name: seconds[:, chosen] * rounds for name, seconds in layers.items()}
        for name, seconds in once.items():
            total[name] = total[name] + seconds if name in total else seconds
            if name in twice:
                total[name] = total[name] + (twice[name] - seconds) * (rounds - 1.0)
        return {**total, "backward_tail": once["backward_tail"]}

    def _layer_communication(self, workload: Workload, shape: Transformer) -> CommunicationSeconds:
        """Return the seconds of one round's collectives within a replica at every micro-batch, cached by layout."""
        parallel, gpus, nodes = workload.parallel, workload.gpus, workload.nodes
        placed = tuple(communicator_of(parallel, axis, gpus, nodes, self._domain_gpus) for axis in ("tp", "cp", "ep", "pp"))
        key = (*placed, parallel.sp, parallel.pp, workload.checkpointing)
        if key not in self._layer_seconds:
            collectives = [one for one in step_collectives(workload, shape, self.micro) if one.axis != "dp"]
            seconds = _occurring(collective_seconds(workload, collectives, self.devices))
            full = len(self.devices.gpus), len(self.micro)
            self._layer_seconds[key] = {name: np.broadcast_to(value, full) for name, value in seconds.items()}
        return self._layer_seconds[key]

    def _gradient_communication(
        self, workload: Workload, shape: Transformer
    ) -> tuple[CommunicationSeconds, CommunicationSeconds]:
        """Return the seconds of data-parallel collectives in a step of one and of two accumulation rounds; cached by layout.

        The second is empty if further rounds send nothing more: ZeRO from stage 2 on, and threads, communicate in each.
        """
        if workload.parallel not in self._gradients:
            each_round = workload.parallel.zero >= 2 or workload.parallel.threads
            workloads = [replace(workload, accumulation=rounds) for rounds in ((1, 2) if each_round else (1,))]
            once, *twice = (collective_seconds(one, data_parallel_collectives(one, shape), self.devices) for one in workloads)
            tail = {"backward_tail": once["backward_tail"]}
            self._gradients[workload.parallel] = _occurring(once) | tail, _occurring(twice[0]) if twice else {}
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


def _occurring(seconds: CommunicationSeconds) -> CommunicationSeconds:
    """Return the communication that takes time, without the share of it in the tail of the backward pass."""
    return {name: value for name, value in seconds.items() if name != "backward_tail" and value.any()}


def _join_parts(steps: Sequence[dict[str, Array]]) -> StepParts:
    """Return the parts of several steps side by side, [gpus, steps and micro-batches]; a part that no step has is 0."""
    ends = np.cumsum([one["pipeline"].shape[1] for one in steps]).tolist()

    def joined(name: str) -> Array:
        values = [(start, end, one[name]) for start, end, one in zip([0, *ends], ends, steps, strict=False) if name in one]
        result = np.zeros((max((len(value) for _, _, value in values), default=1), ends[-1]))
        for start, end, value in values:
            result[:, start:end] = value
        return result

    return StepParts(**{name: joined(name) for name in StepParts.__struct_fields__})
