"""Operators of a training step, each timed once, and counted as often as a phase runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.time.curves.evaluate import CLASSES, STREAM, Evaluated, seconds
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.grid import heat
from whichgpu.estimate.time.lower.eager.training import Section
from whichgpu.estimate.time.operators import KINDS
from whichgpu.estimate.time.terms import BACKWARD_CALL, FORWARD_CALL, KERNEL_GAP, STEP, TERMS, Terms, heaviest_unit

PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """Seconds of one call of each operator; in which phase and how often it is called."""

    told: Evaluated
    phases: Array
    classes: Array
    counts: Array
    calls: Array  # of the framework, for each
    again: Array  # how often checkpointing runs it once more
    grows: Array  # how many times as often it ran besides in a model of twice the layers
    unit: str

    @staticmethod
    def of(sections: Sequence[Section], gpus: GpuColumns) -> OperatorTimes:
        """Of a step in parts."""
        ops = tuple(op for one in sections for op in one.ops)
        again = [np.bincount(np.array(one.again, dtype=np.intp), minlength=len(one.ops)) for one in sections]
        return OperatorTimes(
            told=seconds(ops, gpus),
            phases=np.array([op.phase for op in ops]),
            classes=np.array([KINDS[op.kind] for op in ops]),
            counts=np.array([float(np.max(op.count)) for op in ops]),
            calls=np.array([op.calls for op in ops]),
            again=np.concatenate(again),
            grows=np.concatenate([np.full(len(one.ops), one.grows) for one in sections]),
            unit=heaviest_unit(ops),
        )

    def often(self, checkpointed: bool) -> dict[str, Array]:
        """How often each is called, by phase."""
        found = {phase: np.where(self.phases == phase, self.counts, 0.0) for phase in PHASES}
        if checkpointed:
            found["backward"] += self.again * self.counts
        return found

    def terms(self, weights: Array, phase: str) -> Terms:
        """Terms of a phase in which operators are called so often."""
        told = self.told
        shape = (len(TERMS), told.seconds.shape[0], told.seconds.shape[2])
        worked, floors = np.zeros(shape), np.zeros(shape)
        for place, kind in enumerate(CLASSES):
            own = np.flatnonzero(weights * (self.classes == kind))
            worked[place] = np.einsum("gob,o->gb", told.seconds[:, own], weights[own])
            floors[place] = np.einsum("gob,o->gb", told.floors[:, own], weights[own])
        products = np.flatnonzero(weights * (self.classes == "gemm"))
        for whole, each in ((worked, told.seconds), (floors, told.floors)):
            whole[STREAM] = np.einsum("gob,o->gb", each[:, products] * told.streamed[:, products], weights[products])
            whole[0] -= whole[STREAM]
        worked[0] *= heat(worked[0])
        called = float((weights * self.calls).sum())
        worked[TERMS.index("gap")] = weights.sum() * KERNEL_GAP
        worked[TERMS.index("forward_calls")] = called * FORWARD_CALL if phase == "forward" else 0.0
        worked[TERMS.index("backward_calls")] = called * BACKWARD_CALL if phase != "forward" else 0.0
        worked[TERMS.index("step")] = STEP if phase == "forward" else 0.0
        blank = np.zeros(shape[1:])
        return Terms(worked, floors, blank, blank, self.unit)
