"""Prefill, decode and whole forward passes under engines with fused kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.engines.record import EngineRecord, KernelTraits
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.memory.kv import kv_type
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.lower.fused.layers import InferencePass, fused_layer
from whichgpu.estimate.time.lower.fused.llama_cpp import LlamaCppKernels
from whichgpu.estimate.time.lower.fused.offload import HostWeights
from whichgpu.estimate.time.lower.fused.weight_storage import WeightStorage, weight_storage
from whichgpu.estimate.time.lower.layer_kinds import encoder_layers_per_stage, layer_kinds
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.decoding.speculative import Speculative
from whichgpu.workload.layouts import tensor_share
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable


def chunked_pass(
    workload: Workload, shape: Transformer, batch: Number, length: Number, context: Number | None, cached: float = 0.0
) -> list[Op]:
    """Return the operators of a prefill in the steps that its engine makes of it, or of one decode step if `context` is given.

    An engine processes at most a chunk of tokens in a step: each step reads the weights, and the experts that its tokens touch.
    A prefill finds `cached` further tokens of each sequence in the prefix cache.
    """
    chunk = _chunk_tokens(engine_record(workload.engine, workload.year))
    tokens = batch * length
    if context is not None or not np.any(tokens > chunk):
        return fused_pass(workload, shape, batch, length, context, cached=cached)
    steps = np.maximum(tokens / chunk, 1.0)
    launches = np.ceil(steps) / steps  # The last step is launched as a whole even if it is short.
    ops = fused_pass(workload, shape, batch / steps, length, None, cached=cached)
    return [op.with_calls(op.calls * launches).times(steps) for op in ops]


def _chunk_tokens(engine: EngineRecord) -> float:
    """Return the most tokens of a step; llama.cpp's micro-batches are split in its own kernels."""
    if engine.kernels.weight_only_gemm == "gguf":
        return np.inf
    return engine.memory.chunk_large or engine.memory.chunk or np.inf


def fused_pass(
    workload: Workload,
    shape: Transformer,
    batch: Number,
    length: Number,
    context: Number | None,
    *,
    cached: float = 0.0,
    micro_batch: float = 0.0,
    mixed: bool | np.ndarray = False,
) -> list[Op]:
    """Return the operators of one pass over `batch` sequences: `length` new tokens each, or one token at a `context` if given.

    Each sequence has `cached` tokens in the KV cache before a prefill, which llama.cpp runs in micro-batches of `micro_batch`
    tokens, or of its default. `mixed` states whether decode tokens share the step.
    """
    if context is not None and workload.speculative is not None:
        return _speculative_step(workload, shape, batch, context, workload.speculative)
    return _plain_pass(workload, shape, batch, length, context, cached, micro_batch, mixed)


def _speculative_step(
    workload: Workload, shape: Transformer, batch: Number, context: Number, speculative: Speculative
) -> list[Op]:
    """Return the operators per output token of speculative decoding: drafting and one pass over all drafted tokens.

    Counts are divided by the mean number of tokens that a step accepts.
    """
    plain = replace(workload, speculative=None)
    tokens = float(speculative.tokens)
    ops = _plain_pass(plain, shape, batch, tokens + 1.0, context, verifies=True)
    if shape.draft:
        draft = _plain_pass(replace(plain, offload=None), shape.draft, batch, 1.0, context)
        ops += [op.times(tokens) for op in draft]
    return [op.times(1.0 / speculative.accepted) for op in ops]


def _plain_pass(
    workload: Workload,
    shape: Transformer,
    batch: Number,
    length: Number,
    context: Number | None,
    cached: float = 0.0,
    micro_batch: float = 0.0,
    mixed: bool | np.ndarray = False,
    verifies: bool = False,
) -> list[Op]:
    """Return the operators of a pass; one that `verifies` decodes `length` tokens of each sequence at once."""
    engine = engine_record(workload.engine, workload.year)
    precision = workload.precision or "bf16"
    stored = weight_storage(shape, precision, numerics(precision).half)  # A shard takes its part of the scales and no more.
    whole, shape = shape, tensor_share(shape, workload.parallel)
    if engine.pads_heads and workload.parallel.tp > 1:
        shape = replace(shape, kv_heads=shape.heads)
    if shape.recurrent and shape.recurrent.state_bytes is None:
        shape = replace(shape, recurrent=replace(shape.recurrent, state_bytes=engine.memory.state_bytes))
    cache = kv_type(workload.kv_precision or PRECISION_BY_NAME[precision].kv_default)
    step = InferencePass(
        batch=batch,
        queries=length if context is None or verifies else 1.0,
        keys=length + cached if context is None else context,
        decoding=context is not None,
        causal=shape.causal,
        cached=shape.has_kv_cache and workload.traits.caching,
        cache_width=cache.bytes / cache.weights,
    )
    calls = _calls_per_kernel(engine, shape, step.rows, mixed)
    new_kernels: Callable[[], FusedKernels] = partial(FusedKernels, stored, engine.kernels, calls)
    if engine.kernels.weight_only_gemm == "gguf":
        tokens = micro_batch or float(engine.memory.chunk or np.inf)
        new_kernels = partial(LlamaCppKernels, stored, engine.kernels, calls, micro_batch=tokens)
    host = None
    if workload.offload and not workload.offload.automatic:
        host = HostWeights(workload, whole, workload.offload, step.rows, engine.kernels.weight_only_gemm == "gguf")
    return _ModelKernels(workload, shape, stored, engine.kernels, new_kernels, host).run(step)


def _calls_per_kernel(engine: EngineRecord, shape: Transformer, tokens: Number, mixed: bool | np.ndarray) -> Number:
    """Return the framework calls per kernel of a pass over `tokens` tokens: none in steps that a CUDA graph replays."""
    calls = engine.kernels.calls_per_kernel
    if not engine.captures_graphs or engine.host.launches_each_kernel:
        return calls
    largest = engine.kernels.graph_tokens
    gpt_oss = shape.experts is not None and shape.experts.bias  # It alone has experts with biases.
    if gpt_oss:
        largest = engine.kernels.graph_tokens_gpt_oss or largest
    if not largest:
        return 0.0
    mixed = mixed if shape.experts and not gpt_oss and engine.kernels.launches_mixed_moe else False
    launched: Number = calls * np.where((tokens > largest) | mixed, 1.0, 0.0)
    return launched


class _ModelKernels:
    """Collects the kernels of an inference pass: embedding, encoder and decoder layers, head."""

    def __init__(
        self,
        workload: Workload,
        shape: Transformer,
        stored: WeightStorage,
        traits: KernelTraits,
        new_kernels: Callable[[], FusedKernels],
        host: HostWeights | None = None,
    ) -> None:
        self._workload, self._shape, self._stored, self._traits = workload, shape, stored, traits
        self._new_kernels, self._host = new_kernels, host
        self._ops: list[Op] = []

    def run(self, step: InferencePass) -> list[Op]:
        shape, parallel = self._shape, self._workload.parallel
        if shape.encoder_layers:
            source = float(shape.encoder_context) if shape.encoder_context else step.keys
            if not step.decoding:
                whole = replace(step, queries=source, keys=source, causal=False, cached=False)
                self._embedding(whole)
                self._add(encoder_layers_per_stage(shape, parallel), partial(fused_layer, shape=shape, step=whole))
                if self._workload.traits.caching:  # The decoder's prompt is one start token.
                    step = replace(step, queries=1.0, keys=1.0)
            step = replace(step, source=source)
        self._embedding(step)
        for kind, count in layer_kinds(shape, parallel):
            own = kind.shape(shape)
            layer = partial(fused_layer, shape=own, step=step, window=kind.window, mixture=kind.mixture, parts=kind.parts)
            self._add(count * (self._host.layer_share if self._host else 1), layer)
        if self._host:
            self._ops = [*self._host.on_gpu(self._ops), self._host.read()]
        self._add(1, lambda kernels: self._head(kernels, step))
        return self._ops

    def _add(self, count: float, write: Callable[[FusedKernels], None]) -> None:
        kernels = self._new_kernels()
        write(kernels)
        self._ops += [op.times(float(count)) for op in kernels.ops] if count != 1 else kernels.ops

    def _embedding(self, step: InferencePass) -> None:
        shape = self._shape

        def write(kernels: FusedKernels) -> None:
            size = step.rows * shape.hidden * kernels.width
            if patches := shape.patches:
                kernels.put(kernels.plain_gemm(step.rows, float(patches.channels * patches.size**2), float(shape.hidden)))
            else:
                kernels.move("embedding", size, size, {"rows": step.rows, "width": float(shape.hidden)})
            if shape.embedding_norm or shape.positions:
                kernels.norm(step.rows, float(shape.hidden), 3.0)

        self._add(1, write)

    def _head(self, kernels: FusedKernels, step: InferencePass) -> None:
        """Append the final norm and the logits, of each sequence's last token or, if the task needs them, of all tokens."""
        shape, width = self._shape, kernels.width
        if shape.final_norm and shape.causal:
            kernels.norm(step.rows, float(shape.hidden), 3.0)
        if not shape.head or not (shape.has_kv_cache or shape.causal):
            return
        rows = step.rows if self._workload.traits.logits == "all" or step.decoding else step.batch
        weight = shape.vocab * shape.hidden * self._stored.head
        if self._stored.weight_only and self._stored.head < width:
            kernels.put(*kernels.linear_ops(rows, shape.hidden, shape.vocab, weight))
        else:
            kernels.put(kernels.plain_gemm(rows, shape.hidden, shape.vocab, weight))
        if self._workload.traits.caching:
            size = rows * shape.vocab * width
            kernels.elementwise(
                size * self._traits.sampling_kernels, rows * 8.0, count=float(self._traits.sampling_kernels), role="sample"
            )
