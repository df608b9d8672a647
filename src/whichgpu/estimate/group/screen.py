"""Seconds of many layouts from few evaluations: each operator is timed once for a tensor degree, and counted for every layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.need import laid_out
from whichgpu.estimate.group.parts import Parts, together
from whichgpu.estimate.group.ranks import in_stages, rank_ops
from whichgpu.estimate.group.step import Devices, evaluate_group, factors_of, heard_messages
from whichgpu.estimate.group.traffic import traffic
from whichgpu.estimate.time.combine import EAGER, corrected_parts
from whichgpu.estimate.time.curves.evaluate import CLASSES, Evaluated, seconds
from whichgpu.estimate.time.curves.gpus import columns_of
from whichgpu.estimate.time.grid import heat, settings
from whichgpu.estimate.time.operators import KINDS, Op
from whichgpu.estimate.time.terms import BACKWARD_CALL, FORWARD_CALL, KERNEL_GAP, STEP, TERMS, Terms, heaviest_unit
from whichgpu.workload.layouts import stage_layers
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

MOST_MICRO = 256
SIZES = 2.0 ** np.arange(MOST_MICRO.bit_length())
PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Timed:
    """A step of one tensor degree with all layers on a stage, and what each layer adds to it: terms by phase.

    `adding` is what adding the gradients of one micro-step to those of the earlier ones takes.
    """

    whole: dict[str, Terms]
    layers: dict[str, Terms]
    adding: Terms
    unit: str


class Screen:
    """Seconds by layout, checkpointing and micro-batch, [gpus, micro-batches]."""

    def __init__(
        self, workload: Workload, shape: Shape, devices: Devices, gpus: int, nodes: int, like: Screen | None = None,
        sizes: Array = SIZES,
    ) -> None:  # fmt: skip
        """`sizes` are all micro-batches that will be asked for, in order.

        `like` is a screen of the same work on the same devices for another number of GPUs: what it timed is used again.
        """
        self.workload, self.shape, self.devices = replace(workload, gpus=gpus, nodes=nodes), shape, devices
        columns = columns_of(devices.gpus)
        self._columns, self._places = columns.among or (columns, np.arange(len(columns)))
        self._timed: dict[tuple[int, int, int, str], Timed] = like._timed if like else {}
        self._factors: dict[str, Array] = like._factors if like else {}
        self._linked = factors_of(self.workload, "train", devices) if workload.training else {}
        self.micro = sizes

    def seconds(self, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        """Of one layout."""
        if isinstance(self.shape, Transformer) and self.workload.training:
            return self._trained(self.shape, parallel, checkpointing, micro, accumulation)
        told = [
            evaluate_group(self._asked(parallel, checkpointing, size, rounds), self.shape, self.devices).told.wall
            for size, rounds in zip(micro, accumulation, strict=True)
        ]
        return np.concatenate(told, axis=1)

    def _asked(self, parallel: Parallel, checkpointing: str, size: float, rounds: float) -> Workload:
        asked = laid_out(self.workload, parallel, int(size), int(rounds), checkpointing)
        return replace(asked, gpus=self.workload.gpus, nodes=self.workload.nodes)

    def _trained(self, shape: Transformer, parallel: Parallel, checkpointing: str, micro: Array, accumulation: Array) -> Array:
        asked = replace(self.workload, parallel=parallel, checkpointing=checkpointing, accumulation=1)
        timed = self._times(shape, parallel, checkpointing)
        missing = 1.0 - len(stage_layers(shape.layers, parallel.pp, 0)) / shape.layers
        places = np.searchsorted(self.micro, micro).astype(np.int64)
        if timed.unit not in self._factors:
            self._factors[timed.unit] = self.devices.calibration.factors(settings(asked, "train", timed.unit, self.devices.gpus))
        works = {}
        for phase in PHASES:
            terms = _chosen(timed.whole[phase] + timed.layers[phase] * -missing, places)
            works[phase] = corrected_parts(terms, self._factors[timed.unit])
        forward, backward, step = (works[phase] for phase in PHASES)
        adding = corrected_parts(timed.adding, self._factors[timed.unit])
        kept = (1.0 / parallel.dp if parallel.zero >= 2 else 1.0) / parallel.pp
        share = (1.0 / parallel.dp if parallel.zero else 1.0) / parallel.pp
        step = (step[0] * share, step[1], step[2])
        rounds = accumulation[None, :]
        eager = (asked.engine or "pytorch") in EAGER
        backwards = backward[0] * rounds + adding[0] * kept * (rounds - 1.0)
        calls = (
            (forward[1] + backward[1]) * rounds + adding[1] / parallel.pp * (rounds - 1.0) + step[1] if eager else 0.0 * rounds
        )
        ones = np.ones_like(forward[0])
        bubble = np.array([in_stages(replace(asked, accumulation=int(times)), 1.0)[1] for times in accumulation])[None, :]
        parts = Parts(
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
            bubble=bubble * ones,
            copied=0.0 * ones,
            threads=ones,
        )
        return together(parts, self._linked).wall

    def _messages(self, asked: Workload, shape: Transformer, micro: Array, accumulation: Array) -> dict[str, Array]:
        """Those of the layers, as often as a step is run; and those of data parallelism, whose number depends on it otherwise."""
        own = [one for one in traffic(asked, shape, micro) if one.axis != "dp"]
        found = {name: value * accumulation[None, :] for name, value in heard_messages(asked, own, self.devices).items()}
        once, twice = (
            heard_messages(asked, [one for one in traffic(replace(asked, accumulation=rounds), shape, 1.0) if one.axis == "dp"],
                           self.devices)
            for rounds in (1, 2)
        )  # fmt: skip
        told = {name: found[name] + once[name] + (twice[name] - once[name]) * (accumulation[None, :] - 1.0) for name in found}
        return {**told, "backward_tail": once["backward_tail"]}

    def _times(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> Timed:
        key = (parallel.tp, parallel.cp, parallel.ep, checkpointing)
        if key not in self._timed:
            self._timed[key] = self._all_layers(shape, parallel, checkpointing)
        return self._timed[key]

    def _all_layers(self, shape: Transformer, parallel: Parallel, checkpointing: str) -> Timed:
        plain = Parallel(tp=parallel.tp, cp=parallel.cp, ep=parallel.ep)
        asked = replace(self.workload, parallel=plain, checkpointing=checkpointing, accumulation=1, micro_batch=None)
        ops = rank_ops(asked, shape, self.micro).ops
        told, kept, counts = seconds(ops, self._columns), _Columns.of(ops), _counts(ops)
        # How often operators run does not depend on the batch, and one is lowered faster than many.
        few = float(self.micro[0])
        more = rank_ops(asked, replace(shape, layers=2 * shape.layers), few).ops
        added = _counts(more) - counts if len(more) == len(ops) else counts  # of all layers: the ends come but once
        twice = rank_ops(replace(asked, accumulation=2), shape, few).ops
        adding = twice[sum(op.phase != "optimizer" for op in ops) : len(twice) - sum(op.phase == "optimizer" for op in ops)]
        return Timed(
            whole={phase: self._on_each(_terms(kept, told, counts, phase)) for phase in PHASES},
            layers={phase: self._on_each(_terms(kept, told, added, phase)) for phase in PHASES},
            adding=self._on_each(
                _terms(_Columns.of(adding), seconds(adding, self._columns), _counts(adding), "backward")
            ),
            unit=kept.unit,
        )

    def _on_each(self, terms: Terms) -> Terms:
        """Of every device, from those of each kind of GPU."""
        blank = np.zeros((len(self._places), terms.seconds.shape[2]))
        return Terms(terms.seconds[:, self._places], terms.floors[:, self._places], blank, blank, terms.unit)


def _counts(ops: tuple[Op, ...]) -> Array:
    return np.array([float(np.asarray(op.count).max()) for op in ops])


def _chosen(terms: Terms, places: NDArray[np.int64]) -> Terms:
    """At some of the micro-batches."""
    return replace(terms, seconds=terms.seconds[:, :, places], floors=terms.floors[:, :, places])


@dataclass(frozen=True, slots=True)
class _Columns:
    """What is asked of operators again and again, side by side."""

    phases: Array
    classes: Array
    calls: Array
    unit: str

    @staticmethod
    def of(ops: tuple[Op, ...]) -> _Columns:
        phases, classes = ([op.phase for op in ops], [KINDS[op.kind] for op in ops])
        return _Columns(np.array(phases), np.array(classes), np.array([op.calls for op in ops]), heaviest_unit(ops))


def _terms(ops: _Columns, told: Evaluated, counts: Array, phase: str) -> Terms:
    """Terms of the operators of a phase, so often."""
    weights = np.where(ops.phases == phase, counts, 0.0)
    shape = (len(TERMS), told.seconds.shape[0], told.seconds.shape[2])
    worked, floors = np.zeros(shape), np.zeros(shape)
    for place, kind in enumerate(CLASSES):
        own = np.flatnonzero(weights * (ops.classes == kind))
        worked[place] = np.einsum("gob,o->gb", told.seconds[:, own], weights[own])
        floors[place] = np.einsum("gob,o->gb", told.floors[:, own], weights[own])
    worked[0] *= heat(worked[0])
    called = float((weights * ops.calls).sum())
    worked[TERMS.index("gap")] = weights.sum() * KERNEL_GAP
    worked[TERMS.index("forward_calls")] = called * FORWARD_CALL if phase == "forward" else 0.0
    worked[TERMS.index("backward_calls")] = called * BACKWARD_CALL if phase != "forward" else 0.0
    worked[TERMS.index("step")] = STEP if phase == "forward" else 0.0
    blank = np.zeros(shape[1:])
    return Terms(worked, floors, blank, blank, ops.unit)
