"""Operators of a training step, each timed once and weighted by how often a phase runs it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.time.curves.evaluate import STREAM_INDEX, TIME_CLASSES, OperatorSeconds, operator_seconds
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.grid import throttling_slowdown
from whichgpu.estimate.time.lower.eager.training import StepSection
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


class OperatorTimes(msgspec.Struct, frozen=True):
    """Operators of a training step as arrays: the seconds of one run of each, its phase, class and number of runs."""

    evaluated: OperatorSeconds
    phases: Array
    classes: Array
    counts: Array  # runs of each operator per step
    calls: Array  # framework calls of one run of the operator
    recomputes: Array  # how often the backward pass runs it again under checkpointing
    grows: Array  # additional runs in a model of twice the layers, as a multiple of `counts`
    ends: Array  # "embedding" or "head" if the operator is at that end of the model
    unit: str

    @staticmethod
    def of(sections: Sequence[StepSection], gpus: GpuColumns) -> OperatorTimes:
        """Time the operators of a step's sections (such as embedding, layers, optimizer) on each GPU."""
        ops = tuple(op for one in sections for op in one.ops)
        recomputes = [np.bincount(np.array(one.recomputed, dtype=np.intp), minlength=len(one.ops)) for one in sections]
        return OperatorTimes(
            evaluated=operator_seconds(ops, gpus),
            phases=np.array([op.phase for op in ops]),
            classes=np.array([CLASS_BY_KIND[op.kind] for op in ops]),
            counts=np.array([float(np.max(op.count)) for op in ops]),
            calls=np.array([op.calls for op in ops]),
            recomputes=np.concatenate(recomputes),
            grows=np.concatenate([np.full(len(one.ops), one.growth) for one in sections]),
            ends=np.array([one.end for one in sections for _ in one.ops]),
            unit=dominant_unit_class(ops),
        )

    def phase_counts(self, checkpointed: bool) -> dict[str, Array]:
        """Return by phase how often each operator runs in a step; the backward pass also recomputes if `checkpointed`."""
        counts = {phase: np.where(self.phases == phase, self.counts, 0.0) for phase in PHASES}
        if checkpointed:
            counts["backward"] += self.recomputes * self.counts
        return counts

    def terms(self, weights: Array, phase: str) -> TimeTerms:
        """Return the seconds by class of operator (`TimeTerms`) of a phase in which operator i runs `weights[i]` times."""
        one = self.evaluated
        shape = (len(TERMS), one.seconds.shape[0], one.seconds.shape[2])
        totals, floors = np.zeros(shape), np.zeros(shape)
        for index, kind in enumerate(TIME_CLASSES):
            own = np.flatnonzero(weights * (self.classes == kind))
            totals[index] = np.einsum("gob,o->gb", one.seconds[:, own], weights[own])
            floors[index] = np.einsum("gob,o->gb", one.floors[:, own], weights[own])
        gemms = np.flatnonzero(weights * (self.classes == "gemm"))
        for total, each in ((totals, one.seconds), (floors, one.floors)):
            total[STREAM_INDEX] = np.einsum("gob,o->gb", each[:, gemms] * one.streamed[:, gemms], weights[gemms])
            total[0] -= total[STREAM_INDEX]
        totals[0] *= throttling_slowdown(totals[0])
        calls = float((weights * self.calls).sum())
        totals[TERMS.index("gap")] = weights.sum() * KERNEL_GAP_SECONDS
        totals[TERMS.index("forward_calls")] = calls * FORWARD_CALL_SECONDS if phase == "forward" else 0.0
        totals[TERMS.index("backward_calls")] = calls * BACKWARD_CALL_SECONDS if phase != "forward" else 0.0
        totals[TERMS.index("step")] = FIXED_STEP_SECONDS if phase == "forward" else 0.0
        zeros = np.zeros(shape[1:])
        return TimeTerms(totals, floors, zeros, zeros, self.unit)
