"""Seconds of many layouts from few evaluations: each operator is timed once for a tensor degree, and counted for every layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
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
from whichgpu.estimate.time.lower.eager.training import Section
from whichgpu.estimate.time.terms import TimeTerms
from whichgpu.workload.layouts import stage_layers
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.training_defaults import micro_batches
from whichgpu.workload.workload import Parallel, Workload

MOST_MICRO = 256
SIZES: Array = 2.0 ** np.arange(MOST_MICRO.bit_length(), dtype=np.float64)


def micro_batch_sizes(share: int) -> Array:
    """Sequences at a time that make up a share: powers of two that divide it, and of every octave the largest divisor.

    >>> micro_batch_sizes(12).astype(int).tolist(), micro_batch_sizes(1023).astype(int).tolist()
    ([1, 2, 3, 4, 6, 12], [1, 3, 11, 31, 33, 93])
    """
    return np.array(micro_batches(share, MOST_MICRO), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step of one tensor degree with all layers on a stage, and what each layer adds to it: terms by phase.

    `adding` is what adding the gradients of one micro-step to those of the earlier ones takes.
    """

    whole: dict[str, TimeTerms]
    layers: dict[str, TimeTerms]
    adding: TimeTerms
    unit: str


class LayoutTimes:
    """Seconds by layout, checkpointing and micro-batch, [gpus, micro-batches]."""

    def __init__(
        self, workload: Workload, shape: Shape, devices: Devices, gpus: int, nodes: int, like: LayoutTimes | None = None,
        sizes: Array = SIZES,
    ) -> None:  # fmt: skip
        """`sizes` are all micro-batches that will be asked for, in order.

        `like` is a screen of the same work on the same devices for another number of GPUs: what it timed is used again.
        """
        self.workload, self.shape, self.devices = replace(workload, gpus=gpus, nodes=nodes), shape, devices
        columns = cached_gpu_columns(devices.gpus)
        self._columns, self._places = columns.distinct or (columns, np.arange(len(columns)))
        self._worked: dict[tuple[int, int, int], tuple[OperatorTimes, TimeTerms]] = like._worked if like else {}
        self._timed: dict[tuple[int, int, int, str], TimedStep] = like._timed if like else {}
        self._factors: dict[str, Array] = like._factors if like else {}
        self._copied: dict[Parallel, tuple[dict[str, Array], dict[str, Array]]] = {}
        self._linked = link_corrections(self.workload, "train", devices) if workload.training else {}
        self.micro = sizes

    def seconds(self, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        """Of one layout."""
        if isinstance(self.shape, Transformer) and self.workload.training:
            return self._trained(self.shape, parallel, checkpointing, micro, accumulation)
        told = [
            evaluate_group(self._asked(parallel, checkpointing, size, rounds), self.shape, self.devices).breakdown.wall
            for size, rounds in zip(micro, accumulation, strict=True)
        ]
        return np.concatenate(told, axis=1)

    def _asked(self, parallel: Parallel, checkpointing: str, size: float, rounds: float) -> Workload:
        asked = apply_layout(self.workload, parallel, int(size), int(rounds), checkpointing)
        return replace(asked, gpus=self.workload.gpus, nodes=self.workload.nodes)

    def _trained(self, shape: Transformer, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        asked = replace(self.workload, parallel=parallel, checkpointing=checkpointing, accumulation=1)
        timed = self._times(shape, parallel, checkpointing)
        missing = 1.0 - len(stage_layers(shape.layers, parallel.pp, 0)) / shape.layers
        places = np.searchsorted(self.micro, micro).astype(np.int64)
        if timed.unit not in self._factors:
            self._factors[timed.unit] = self.devices.calibration.factors(
                correction_keys(asked, "train", timed.unit, self.devices.gpus)
            )
        works = {}
        for phase in PHASES:
            terms = _chosen(timed.whole[phase] + timed.layers[phase] * -missing, places)
            works[phase] = device_host_and_fixed_seconds(terms, self._factors[timed.unit])
        forward, backward, step = (works[phase] for phase in PHASES)
        adding = device_host_and_fixed_seconds(timed.adding, self._factors[timed.unit])
        kept = (1.0 / parallel.dp if parallel.zero >= 2 else 1.0) / parallel.pp
        share = (1.0 / parallel.dp if parallel.zero else 1.0) / parallel.pp
        step = (step[0] * share, step[1], step[2])
        rounds = accumulation[None, :]
        eager = not engine_record(asked.engine).captures_graphs
        backwards = backward[0] * rounds + adding[0] * kept * (rounds - 1.0)
        calls = (
            (forward[1] + backward[1]) * rounds + adding[1] / parallel.pp * (rounds - 1.0) + step[1] if eager else 0.0 * rounds
        )
        ones = np.ones_like(forward[0])
        bubble = ones
        if parallel.pp > 1:
            bubble = (
                np.array([pipeline_schedule(replace(asked, accumulation=int(times)), 1.0)[1] for times in accumulation]) * ones
            )
        parts = StepParts(
            device=forward[0] * rounds + backwards + step[0],
            calls=calls * ones,
            forward_calls=0.0 * ones,
            once=forward[2],
            forward=forward[0] * rounds,
            backward=backwards / (1.0 if parallel.zero >= 2 else rounds),
            attention=0.2 * (forward[0] + backward[0]) * rounds,
            **{name: value * ones for name, value in self._messages(asked, shape, micro, accumulation).items()},
            launches=0.0 * ones,
            members=float(max(1, parallel.dp * parallel.tp * parallel.cp)) * ones,
            bubble=bubble,
            copied=0.0 * ones,
            threads=ones,
        )
        return combine_parts(parts, self._linked).wall

    def _messages(self, asked: Workload, shape: Transformer, micro: Array, accumulation: Array) -> dict[str, Array]:
        """Those of the layers, as often as a step is run; and those of data parallelism, whose number depends on it otherwise."""
        own = [one for one in step_collectives(asked, shape, micro) if one.axis != "dp"]
        found = {name: value * accumulation[None, :] for name, value in collective_seconds(asked, own, self.devices).items()}
        once, twice = self._of_copies(asked, shape)
        told = {name: found[name] + once[name] + (twice[name] - once[name]) * (accumulation[None, :] - 1.0) for name in found}
        return {**told, "backward_tail": once["backward_tail"]}

    def _of_copies(self, asked: Workload, shape: Transformer) -> tuple[dict[str, Array], dict[str, Array]]:
        """Messages of data parallelism in steps of one and of two rounds: whether layers are checkpointed is nothing to them."""
        if asked.parallel not in self._copied:
            once, twice = (
                collective_seconds(
                    asked,
                    [one for one in step_collectives(replace(asked, accumulation=rounds), shape, 1.0) if one.axis == "dp"],
                    self.devices,
                )
                for rounds in (1, 2)
            )
            self._copied[asked.parallel] = once, twice
        return self._copied[asked.parallel]

    def _times(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> TimedStep:
        key = (parallel.tp, parallel.cp, parallel.ep, checkpointing)
        if key not in self._timed:
            one, adding = self._work(shape, parallel)
            often = one.often(checkpointing != "none")
            self._timed[key] = TimedStep(
                whole={phase: self._on_each(one.terms(weights, phase)) for phase, weights in often.items()},
                layers={phase: self._on_each(one.terms(weights * one.grows, phase)) for phase, weights in often.items()},
                adding=self._on_each(adding),
                unit=one.unit,
            )
        return self._timed[key]

    def _work(self, shape: Transformer, parallel: Parallel) -> tuple[OperatorTimes, TimeTerms]:
        """All operators of a tensor degree, and what a further round adds."""
        key = (parallel.tp, parallel.cp, parallel.ep)
        if key not in self._worked:
            plain = Parallel(tp=parallel.tp, cp=parallel.cp, ep=parallel.ep)
            again = "full" if self.workload.checkpointing == "none" else self.workload.checkpointing
            asked = replace(self.workload, parallel=plain, checkpointing=again, accumulation=1, micro_batch=None)
            step = rank_step(asked, shape, self.micro)
            adding = OperatorTimes.of([Section([step.accumulation_op])], self._columns)
            one = OperatorTimes.of([*step.sections, Section(step.optimizer_ops)], self._columns)
            self._worked[key] = one, adding.terms(adding.counts, "backward")
        return self._worked[key]

    def _on_each(self, terms: TimeTerms) -> TimeTerms:
        """Of every device, from those of each kind of GPU."""
        blank = np.zeros((len(self._places), terms.seconds.shape[2]))
        return TimeTerms(terms.seconds[:, self._places], terms.floors[:, self._places], blank, blank, terms.unit)


def _chosen(terms: TimeTerms, places: NDArray[np.int64]) -> TimeTerms:
    """At some of the micro-batches."""
    return replace(terms, seconds=terms.seconds[:, :, places], floors=terms.floors[:, :, places])
