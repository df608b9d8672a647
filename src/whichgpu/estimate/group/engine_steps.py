"""Seconds of single steps of a serving engine on a group, as functions of what is in the batch: what a simulator asks for.

    steps = GroupSteps(workload, shape, gpu)             # one GPU or many; the layout is the workload's
    steps.prefill(batch=4, tokens=512)                   # a batch's prompts
    steps.prefill(1, 512, context=2048)                  # a chunk of a prompt whose beginning is in the cache
    steps.decode(batch=64, context=1000)                 # one token of each sequence
    steps.mixed(tokens=512, context=0, batch=64, decode_context=1000)   # a chunk of a prompt beside tokens of others

All arguments may be numbers or arrays that broadcast; seconds come back in the common shape. One copy of the model is meant: its
tensor-, pipeline-, context- and expert-parallel ranks together; copies (dp) run side by side.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.ranks import pipeline_schedule, rank_pass
from whichgpu.estimate.group.step import Devices, RankPass, lowered_pass, pass_breakdown
from whichgpu.estimate.group.traffic import inference_collectives
from whichgpu.estimate.time.grid import scheduled_sequences
from whichgpu.estimate.time.lower.lowered import LoweredStep
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

KIND = "generate"  # whose corrections apply: engines were measured on whole answers


class EngineSteps:
    """One copy of a model on its GPUs. `workload` has its defaults filled in; its engine, precision and layout are used."""

    def __init__(
        self,
        workload: Workload,
        shape: Transformer,
        gpu: Gpu,
        instance: Instance | None = None,
        devices: Devices | None = None,
        kind: str = KIND,
    ) -> None:
        fabric = fabric_of(gpu, instance, workload.interconnect, workload.network_gbps, workload.network)
        self.workload, self.shape, self.kind = workload, shape, kind
        self.devices = devices or Devices.of([gpu], [fabric])

    def prefill(self, batch: ArrayLike, tokens: ArrayLike, context: ArrayLike = 0.0) -> Array:
        """Reading `tokens` new tokens of each of `batch` sequences that have `context` tokens in the cache."""
        shape, (sequences, new, before) = _flat(batch, tokens, context)
        task = replace(self.workload, task="prefill")
        shared, bubble = pipeline_schedule(task, sequences)
        ops = [_with_cached_context(op, new, before) for op in rank_pass(task, self.shape, shared, new, None)]
        seconds: Array = self._seconds(self._pass(task, ops, shared, new, 0.0, bubble), shape)[0]
        return seconds

    def decode(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """One token of each of `batch` sequences at a mean `context`."""
        seconds: Array = self.decode_on_each(batch, context)[0]
        return seconds

    def decode_on_each(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """The same on every one of the devices: [devices, ...]."""
        shape, (sequences, before) = _flat(batch, context)
        task = replace(self.workload, task="decode")
        shared, bubble = pipeline_schedule(task, sequences)
        ops = rank_pass(task, self.shape, shared, 1.0, before)
        return self._seconds(self._pass(task, ops, shared, 1.0, scheduled_sequences(self.workload, sequences), bubble), shape)

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """One pass over a chunk of a prompt and one token of each of `batch` sequences: products see all rows at once."""
        seconds: Array = self.mixed_on_each(tokens, context, batch, decode_context)[0]
        return seconds

    def mixed_on_each(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """The same on every one of the devices: [devices, ...]."""
        shape, (new, before, sequences, seen) = _flat(tokens, context, batch, decode_context)
        task = replace(self.workload, task="prefill")
        shared, bubble = pipeline_schedule(replace(task, task="decode"), sequences)
        own = [op for op in rank_pass(task, self.shape, 1.0, new + shared, None) if op.kind != "attention"]
        chunk = [
            _with_cached_context(op, new, before) for op in rank_pass(task, self.shape, 1.0, new, None) if op.kind == "attention"
        ]
        token = rank_pass(replace(task, task="decode"), self.shape, np.maximum(shared, 1.0), 1.0, seen)
        some = (sequences > 0).astype(float)
        beside = [op.times(some) for op in token if op.kind == "decode_attention"]
        done = self._pass(task, [*own, *chunk, *beside], 1.0, new + shared, scheduled_sequences(self.workload, sequences), bubble)
        return self._seconds(done, shape)

    def _pass(
        self, task: Workload, ops: list[Op], batch: Array | float, tokens: Array | float, sequences: Array | float,
        bubble: Array | float,
    ) -> RankPass:  # fmt: skip
        said = inference_collectives(task, self.shape, batch, tokens)
        return lowered_pass(task, self.shape, self.devices, LoweredStep(tuple(ops)), said, self.kind, sequences, bubble)

    def _seconds(self, done: RankPass, shape: tuple[int, ...]) -> Array:
        wall = pass_breakdown(self.workload, done, self.devices).wall
        return np.broadcast_to(wall, (len(wall), int(np.prod(shape)))).reshape(len(wall), *shape)


def _with_cached_context(op: Op, tokens: Array, context: Array) -> Op:
    """Attention of new tokens that also see those in the cache."""
    if op.kind != "attention" or not np.any(context):
        return op
    more = 1.0 + 2.0 * context / tokens if op.sizes.get("causal") else 1.0 + context / tokens
    grown = 1.0 + context / tokens
    return replace(op, flops=op.flops * more, read=op.read * grown, sizes={**op.sizes, "keys": op.sizes["keys"] * grown})


def _flat(*values: ArrayLike) -> tuple[tuple[int, ...], tuple[Array, ...]]:
    """The common shape, and every value as one row of floats."""
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in values))
    return arrays[0].shape, tuple(np.ascontiguousarray(array.ravel()) for array in arrays)
