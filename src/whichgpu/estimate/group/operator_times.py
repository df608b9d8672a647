"""Operators of a training step, each timed once, and counted as often as a phase runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.time.curves.evaluate import STREAM_INDEX, TIME_CLASSES, OperatorSeconds, operator_seconds
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.grid import throttling_slowdown
from whichgpu.estimate.time.lower.eager.training import Section
from whichgpu.estimate.time.operators import CLASS_BY_KIND
from whichgpu.estimate.time.terms import (
    BACKWARD_CALL_SECONDS,
    FIXED_STEP_SECONDS,
    FORWARD_CALL_SECONDS,
    KERNEL_GAP_SECONDS,
    TERMS,
    TimeTerms,
    dominant_unit_class,
)

PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """Seconds of one call of each operator; in which phase and how often it is called."""

    told: OperatorSeconds
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
        again = [np.bincount(np.array(one.recomputed, dtype=np.intp), minlength=len(one.ops)) for one in sections]
        return OperatorTimes(
            told=operator_seconds(ops, gpus),
            phases=np.array([op.phase for op in ops]),
            classes=np.array([CLASS_BY_KIND[op.kind] for op in ops]),
            counts=np.array([float(np.max(op.count)) for op in ops]),
            calls=np.array([op.calls for op in ops]),
            again=np.concatenate(again),
            grows=np.concatenate([np.full(len(one.ops), one.growth) for one in sections]),
            unit=dominant_unit_class(ops),
        )

    def often(self, checkpointed: bool) -> dict[str, Array]:
        """How often each is called, by phase."""
        found = {phase: np.where(self.phases == phase, self.counts, 0.0) for phase in PHASES}
        if checkpointed:
            found["backward"] += self.again * self.counts
        return found

    def terms(self, weights: Array, phase: str) -> TimeTerms:
        """Terms of a phase in which operators are called so often."""
        told = self.told
        shape = (len(TERMS), told.seconds.shape[0], told.seconds.shape[2])
        worked, floors = np.zeros(shape), np.zeros(shape)
        for place, kind in enumerate(TIME_CLASSES):
            own = np.flatnonzero(weights * (self.classes == kind))
            worked[place] = np.einsum("gob,o->gb", told.seconds[:, own], weights[own])
            floors[place] = np.einsum("gob,o->gb", told.floors[:, own], weights[own])
        products = np.flatnonzero(weights * (self.classes == "gemm"))
        for whole, each in ((worked, told.seconds), (floors, told.floors)):
            whole[STREAM_INDEX] = np.einsum("gob,o->gb", each[:, products] * told.streamed[:, products], weights[products])
            whole[0] -= whole[STREAM_INDEX]
        worked[0] *= throttling_slowdown(worked[0])
        called = float((weights * self.calls).sum())
        worked[TERMS.index("gap")] = weights.sum() * KERNEL_GAP_SECONDS
        worked[TERMS.index("forward_calls")] = called * FORWARD_CALL_SECONDS if phase == "forward" else 0.0
        worked[TERMS.index("backward_calls")] = called * BACKWARD_CALL_SECONDS if phase != "forward" else 0.0
        worked[TERMS.index("step")] = FIXED_STEP_SECONDS if phase == "forward" else 0.0
        blank = np.zeros(shape[1:])
        return TimeTerms(worked, floors, blank, blank, self.unit)
