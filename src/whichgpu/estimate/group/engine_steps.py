"""Seconds of single steps of a serving engine on one or more GPUs, by the contents of the batch: input of the serving simulator.

    steps = EngineSteps(workload, shape, gpu)            # one GPU or many; the layout is the workload's
    steps.prefill(batch=4, tokens=512)                   # prompts of a batch
    steps.prefill(1, 512, context=2048)                  # a later chunk of a prompt
    steps.decode(batch=64, context=1000)                 # one token of each sequence
    steps.mixed(tokens=512, context=0, batch=64, decode_context=1000)   # a prefill chunk and decode tokens in one step

Arguments are numbers or arrays that broadcast; seconds have the common shape. Steps are those of one replica: its tensor-,
pipeline-, context- and expert-parallel ranks together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.breakdown import StepBreakdown, StepParts
from whichgpu.estimate.group.collectives import Array
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.ranks import pipeline_schedule, rank_pass
from whichgpu.estimate.group.step import Devices, RankPass, lowered_pass, pass_breakdown
from whichgpu.estimate.group.traffic import inference_collectives
from whichgpu.estimate.time.grid import scheduled_sequences
from whichgpu.estimate.time.operators import LoweredStep, Op
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number


COMMUNICATION = tuple(name for name in StepParts.__struct_fields__ if name.endswith(("_latency", "_volume")))


class EngineSteps:
    """Step times in seconds of one replica; `workload`, with its defaults filled in, gives engine, precision and layout.

    With `separate`, every method returns three rows of seconds: of the device, of host work that overlaps it, and of work
    that overlaps neither. A step takes the `soft_maximum` of the first two plus the third.
    """

    def __init__(
        self,
        workload: Workload,
        shape: Transformer,
        gpu: Gpu,
        instance: Instance | None = None,
        devices: Devices | None = None,
        separate: bool = False,
    ) -> None:
        fabric = fabric_of(gpu, instance, workload.interconnect, workload.network_gbps, workload.network)
        self.workload, self.shape = workload, shape
        self.devices = devices or Devices.of([gpu], [fabric])
        self._separate = separate

    def prefill(self, batch: ArrayLike, tokens: ArrayLike, context: ArrayLike = 0.0) -> Array:
        """Seconds to prefill `tokens` new tokens of each of `batch` sequences with `context` tokens in the KV cache."""
        shape, (sequences, new, cached) = _flat(batch, tokens, context)
        task = replace(self.workload, task="prefill")
        micro_batch, pipeline = pipeline_schedule(task, sequences)
        ops = [_with_cached_context(op, new, cached) for op in rank_pass(task, self.shape, micro_batch, new, None)]
        seconds: Array = self._seconds(task, ops, micro_batch, new, 0.0, pipeline, shape)[0]
        return seconds

    def decode(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """Seconds to decode one token of each of `batch` sequences at a mean `context` in tokens, on the first device."""
        seconds: Array = self.decode_on_each(batch, context)[0]
        return seconds

    def decode_on_each(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """Return the seconds to decode one token of each of `batch` sequences on each kind of GPU, [devices, ...]."""
        shape, (sequences, cached) = _flat(batch, context)
        task = replace(self.workload, task="decode")
        micro_batch, pipeline = pipeline_schedule(task, sequences)
        ops = rank_pass(task, self.shape, micro_batch, 1.0, cached)
        return self._seconds(task, ops, micro_batch, 1.0, scheduled_sequences(self.workload, sequences), pipeline, shape)

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """Seconds on the first device to prefill `tokens` after `context` cached ones and decode a token of `batch` sequences."""
        seconds: Array = self.mixed_on_each(tokens, context, batch, decode_context)[0]
        return seconds

    def mixed_on_each(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """Seconds of a step in which a prefill chunk and decode tokens share GEMMs, on each GPU kind: [devices, ...]."""
        shape, (new, cached, sequences, decode_length) = _flat(tokens, context, batch, decode_context)
        task, token = replace(self.workload, task="prefill"), replace(self.workload, task="decode")
        micro_batch, pipeline = pipeline_schedule(token, sequences)
        rows = new + micro_batch
        whole = rank_pass(task, self.shape, 1.0, rows, None, mixed=sequences > 0)
        # Whether a CUDA graph replays the step depends on all its rows, so attention has the host calls of the whole step.
        calls = [op.calls for op in whole if op.kind == "attention"]
        chunk = [op for op in rank_pass(task, self.shape, 1.0, new, None) if op.kind == "attention"]
        ops = [op for op in whole if op.kind != "attention"]
        ops += [_with_cached_context(op.with_calls(one), new, cached) for op, one in zip(chunk, calls, strict=True)]
        decoding = (sequences > 0).astype(float)
        tokens_ops = rank_pass(token, self.shape, np.maximum(micro_batch, 1.0), 1.0, decode_length)
        ops += [op.times(decoding).with_calls(whole[0].calls) for op in tokens_ops if op.kind == "decode_attention"]
        return self._seconds(task, ops, 1.0, rows, scheduled_sequences(self.workload, sequences), pipeline, shape)

    def _seconds(
        self, task: Workload, ops: list[Op], batch: Number, tokens: Number, running: Number, pipeline: Number,
        shape: tuple[int, ...],
    ) -> Array:  # fmt: skip
        collectives = inference_collectives(task, self.shape, batch, tokens)
        lowered = LoweredStep(tuple(ops))
        # The corrections of generation apply, since engines were measured on complete requests: prefill and decode together.
        one = lowered_pass(task, self.shape, self.devices, lowered, collectives, "generate", running, pipeline)
        total = pass_breakdown(self.workload, one, self.devices)
        rows = self._separated(one, total) if self._separate else (total.wall,)
        count, size = len(total.wall), int(np.prod(shape))
        stacked = [np.broadcast_to(row, (count, size)).reshape(count, *shape) for row in rows]
        return np.stack(stacked, axis=1) if self._separate else stacked[0]

    def _separated(self, one: RankPass, total: StepBreakdown) -> tuple[Array, Array, Array]:
        """Return the seconds of a pass on the device, of host work that overlaps it, and of work that overlaps neither."""
        none = 0.0 * total.wall
        host_idle = replace(one.parts, calls=none, forward_calls=none, launches=none)
        both_idle = replace(host_idle, device=none, **dict.fromkeys(COMMUNICATION, none))
        device, serial = (
            pass_breakdown(self.workload, replace(one, parts=parts), self.devices).wall for parts in (host_idle, both_idle)
        )
        return device - serial, total.host * np.ones_like(none), serial


def _with_cached_context(op: Op, tokens: Array, context: Array) -> Op:
    """Return an attention operator of `tokens` new tokens with `context` cached tokens added to its keys; others as they are."""
    if op.kind != "attention" or not np.any(context):
        return op
    window = op.sizes.get("window", np.inf)
    reached = np.minimum(context, window)  # A query sees no further back than the window.
    grown = 1.0 + reached / tokens
    pairs = _visible_pairs(tokens, context, window) / _visible_pairs(tokens, 0.0 * context, window)
    flops = pairs if op.sizes.get("causal") else grown
    return replace(op, flops=op.flops * flops, read=op.read * grown, sizes={**op.sizes, "keys": op.sizes["keys"] + reached})


def _visible_pairs(tokens: Array, context: Array, window: Number) -> Array:
    """Return the query-key pairs that a causal mask and a sliding window leave of `tokens` new tokens after `context` others."""
    visible = np.minimum(tokens + context, window)
    missing = np.maximum(visible - context, 0.0)  # keys that the first query does not see yet
    pairs: Array = tokens * visible - missing * missing / 2.0
    return pairs


def _flat(*values: ArrayLike) -> tuple[tuple[int, ...], tuple[Array, ...]]:
    """Return the common broadcast shape of the values, and every value flattened to one row of floats."""
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in values))
    return arrays[0].shape, tuple(np.ascontiguousarray(array.ravel()) for array in arrays)
