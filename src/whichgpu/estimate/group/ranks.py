"""Operators that one rank runs: its share of heads, widths, experts, layers and tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.eager.training import TrainingStep, eager_pass, training_parts
from whichgpu.estimate.time.lower.fused.inference import chunked_pass, fused_pass
from whichgpu.estimate.time.operators import LoweredStep, Op
from whichgpu.workload.layouts import expert_ranks
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number


def rank_ops(workload: Workload, shape: Shape, batch: Number) -> LoweredStep:
    """Return the operators of a step on one rank that processes `batch` sequences or samples at a time."""
    if not isinstance(shape, Transformer):
        return lower(workload, shape, batch)
    lowered = lower(_without_experts(workload), spread_experts(workload, shape), batch)
    return replace(lowered, ops=tuple(_ring_attention(op, workload) for op in lowered.ops))


def rank_step(workload: Workload, shape: Transformer, batch: Number) -> TrainingStep:
    """Return the operators of one rank's training step by section, such as embedding, layers and output head."""
    step = training_parts(workload, shape, batch)
    return replace(step, sections=[replace(one, ops=[_ring_attention(op, workload) for op in one.ops]) for one in step.sections])


def rank_pass(
    workload: Workload,
    shape: Transformer,
    batch: Number,
    tokens: Number,
    context: Number | None,
    *,
    chunked: bool = False,
    mixed: bool | np.ndarray = False,
    cached: float = 0.0,
) -> list[Op]:
    """Return the operators of an inference pass on one rank: prefill of `tokens` per sequence, or decode at a `context`.

    A prefill is one step, or with `chunked` as many steps as the engine makes of it. `mixed` states whether decode tokens share
    the step of a prefill, and `cached` further tokens of each sequence are in the prefix cache.
    """
    fused = partial(chunked_pass, cached=cached) if chunked else partial(fused_pass, mixed=mixed)
    run = eager_pass if engine_record(workload.engine).eager else fused
    cp = workload.parallel.cp
    length, context = (tokens / cp, None) if context is None else (tokens, context / cp)
    ops = run(_without_experts(workload), spread_experts(workload, shape), batch, length, context)
    return [_ring_attention(op, workload) for op in ops]


def spread_experts(workload: Workload, shape: Transformer) -> Transformer:
    """Return the model with its experts sharded over expert-parallel ranks as inference engines do: each rank computes the tokens
    routed to its experts. Training shards experts over tensor-parallel ranks as well, which `tensor_share` does.
    """
    parallel, experts = workload.parallel, shape.experts
    if not experts or parallel.ep == 1 or workload.training:
        return shape
    return replace(shape, experts=replace(experts, ranks=parallel.ep, token_groups=expert_ranks(parallel)[1]))


def _without_experts(workload: Workload) -> Workload:
    """Return the workload without its expert-parallel degree, which `spread_experts` has already applied."""
    if workload.training or workload.parallel.ep == 1:
        return workload
    return replace(workload, parallel=replace(workload.parallel, ep=1))


def _ring_attention(op: Op, workload: Workload) -> Op:
    """Return the attention of one context-parallel rank: its part of the queries attends to all keys, which arrive in a ring."""
    cp = workload.parallel.cp
    if cp == 1 or op.kind not in ("attention", "attention_backward"):
        return op
    sizes = {**op.sizes, "keys": op.sizes["keys"] * cp}
    return replace(op, flops=op.flops * cp, read=op.read * (1 + cp) / 2, sizes=sizes)


def pipeline_schedule(workload: Workload, batch: Number) -> tuple[Number, Number]:
    """Return the sequences per micro-batch of a pipeline stage, and the ratio of the pipeline's wall time to one stage's work.

    Training runs one-forward-one-backward (arXiv 2104.04473), interleaved in `chunks`; inference splits the batch into as many
    micro-batches as there are stages, if it can.
    """
    parallel = workload.parallel
    if parallel.pp == 1:
        return batch, 1.0
    if workload.training:
        return batch, training_stretch(parallel, float(workload.accumulation))
    parts = np.clip(np.floor(batch), 1.0, float(parallel.pp))
    slots = float(parallel.pp) * np.ones_like(parts) if workload.traits.step == "decode" else parts + parallel.pp - 1.0
    return batch / parts, slots


def training_stretch(parallel: Parallel, rounds: Number) -> Number:
    """Return the ratio of a training pipeline's wall time to the work of one stage; 1 without a pipeline.

    >>> training_stretch(Parallel(pp=4), 12.0), training_stretch(Parallel(), 12.0)
    (1.25, 1.0)
    """
    return (rounds + (parallel.pp - 1) / parallel.chunks) / rounds
