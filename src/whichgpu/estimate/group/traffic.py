"""Collectives of one step in a layout: bytes, number of calls, and the work that may overlap them.

Tensor parallelism all-reduces activations twice per layer each way (arXiv 1909.08053), or all-gathers and reduce-scatters them
under sequence parallelism (arXiv 2205.05198). Data parallelism all-reduces gradients during the backward pass (arXiv 2006.15704);
ZeRO reduce-scatters them and all-gathers weights (arXiv 1910.02054). Pipelines send activations (arXiv 2104.04473), expert
parallelism over data-parallel ranks dispatches tokens and combines them (arXiv 2006.16668; over tensor-parallel ranks, which hold
the same tokens, the all-reduce after the layer adds up the experts and nothing is sent), context parallelism is a ring of keys
and values (arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.group.collectives import CollectiveKind, Communicator
from whichgpu.estimate.group.expert_exchange import FP8_BYTES, ExpertExchange
from whichgpu.estimate.memory.quantisation import is_moe_layer
from whichgpu.estimate.time.lower.eager.training import trained_parameters
from whichgpu.estimate.time.lower.layer_kinds import slowest_stage
from whichgpu.estimate.time.lower.numerics import numerics, training_numerics
from whichgpu.workload.layouts import expert_ranks, stage_layers, tensor_share
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Mlp, Shape, TracedShape, Transformer
from whichgpu.workload.workload import Parallel, Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.lower.traced_model import TracedModel
    from whichgpu.estimate.time.operators import Number

Axis = Literal["tp", "dp", "cp", "ep", "pp"]
Overlap = Literal["", "backward", "forward", "attention", "layers"]
FP8_DISPATCH = ("fp8", "nvfp4", "mxfp4")  # precisions whose tokens are quantised to FP8 before they are sent to experts
BUCKET_BYTES = 25e6  # bytes of gradients per all-reduce in DistributedDataParallel (PyTorch's default)
BUCKET_PARAMETERS = 40e6  # parameters per bucket of Megatron Core's distributed optimizer (its default; more beyond 40 ranks)


class Collective(msgspec.Struct, frozen=True):
    """A collective that a step calls `count` times with `size` bytes along one parallel axis, exposed or overlapped."""

    kind: CollectiveKind
    axis: Axis
    size: Number
    count: Number
    overlap: Overlap = ""  # work that it overlaps; empty if the step waits for it
    ranks: int = 0  # number of ranks that take part; 0 means all ranks of the axis
    exchange: ExpertExchange | None = None  # tokens that an all-to-all dispatches to experts or combines


def communicator_of(parallel: Parallel, axis: Axis, gpus: int, nodes: int, domain_gpus: int = 16, ranks: int = 0) -> Communicator:
    """Return the ranks of an axis and how many of them share a node: tensor ranks are neighbours, then context, data, stages.

    >>> communicator_of(Parallel(dp=4, tp=4), "dp", 16, 2)
    Communicator(size=4, per_node=2)
    """
    per_node = max(1, min(gpus // nodes, domain_gpus))
    strides = {"tp": 1, "cp": parallel.tp, "ep": parallel.tp * parallel.cp, "dp": parallel.tp * parallel.cp}
    size: int = ranks or getattr(parallel, axis)
    if axis == "pp":  # A pipeline stage communicates only with the next one.
        return Communicator(2 if size > 1 else 1, 2 if strides["dp"] * parallel.dp < per_node else 1)
    return Communicator(size, max(1, min(size, per_node // strides[axis])))


def step_collectives(workload: Workload, shape: Shape, batch: Number) -> list[Collective]:
    """Return the collectives of a step on a rank with `batch` sequences or samples at a time; in generation, of a decode step."""
    layers = _layers(workload, shape, batch) if isinstance(shape, Transformer) and not workload.parallel.threads else ()
    return [*layers, *data_parallel_collectives(workload, shape)]


def data_parallel_collectives(workload: Workload, shape: Shape) -> list[Collective]:
    """Return the collectives of a step between replicas: of gradients and weights in training, of weights between threads."""
    if workload.parallel.threads:
        return list(_thread_copies(workload, shape))
    return list(_gradients(workload, shape)) if workload.training else []


def inference_collectives(workload: Workload, shape: Transformer, batch: Number, tokens: Number) -> list[Collective]:
    """Return the collectives of one inference pass with `tokens` new tokens for each of `batch` sequences."""
    return list(_speculated(workload, _pass(workload, shape, batch, batch * tokens * _drafted(workload), 1.0, 0.0)))


def _drafted(workload: Workload) -> float:
    """Return the tokens of each sequence in a decode step: one, or all that speculative decoding drafted and one more."""
    return workload.speculative.tokens + 1.0 if workload.speculative and workload.traits.decoding else 1.0


def _speculated(workload: Workload, collectives: Iterable[Collective]) -> Iterator[Collective]:
    """Yield the collectives per output token: in speculative decoding a step gives several."""
    steps = 1.0 / workload.speculative.accepted if workload.speculative and workload.traits.decoding else 1.0
    for one in collectives:
        yield one if steps == 1.0 else replace(one, count=one.count * steps)


def _layers(workload: Workload, shape: Transformer, batch: Number) -> Iterator[Collective]:
    length = float(workload.seq_in or shape.max_context) / workload.parallel.cp
    tokens = batch * 1.0 if workload.traits.decoding and shape.causal else batch * length
    if not workload.training:
        return _speculated(workload, _pass(workload, shape, batch, tokens * _drafted(workload), 1.0, 0.0))
    recompute = 1.0 if workload.checkpointing == "full" else 0.0
    return _pass(workload, shape, batch, tokens, float(workload.accumulation), 1.0 + recompute)


def _pass(
    workload: Workload, shape: Transformer, batch: Number, tokens: Number, rounds: float, backward: float
) -> Iterator[Collective]:
    """Yield the collectives of `rounds` passes over `tokens` tokens; `backward` is the number of extra layer passes per round."""
    parallel, engine = workload.parallel, engine_record(workload.engine, workload.year)
    width = 4.0 if workload.precision in ("fp32", "fp32-default", "tf32") else 2.0  # bytes of an activation element sent
    layers = stage_layers(shape.layers, parallel.pp, slowest_stage(shape, parallel.pp) if workload.training else 0)
    passes = rounds * (1.0 + backward)
    activations = tokens * shape.hidden * width
    moe_layers = sum(is_moe_layer(shape, index) for index in layers)
    if parallel.tp > 1:
        per_layer = (1 if shape.parallel_block else 2) + (1 if shape.encoder_layers else 0)
        sums = len(layers) * per_layer * passes + 2 * -(-shape.encoder_layers // parallel.pp) * passes
        if parallel.sp and workload.training:
            overlap: Overlap = "layers" if engine.overlaps_tensor_parallel else ""
            operand = training_numerics(workload.precision or "bf16").widths.operand if engine.megatron else 0.0
            yield Collective("all_gather", "tp", activations * ((operand or width) / width), sums, overlap)
            yield Collective("reduce_scatter", "tp", activations, sums, overlap)
        else:
            yield Collective("all_reduce", "tp", activations, sums)
        yield Collective("all_reduce", "tp", activations, passes)  # Each embedding row is on one rank only: ranks sum results.
        if shape.head and not workload.training:
            yield Collective("all_gather", "tp", batch * shape.vocab * width, rounds)
    sequence_ranks = parallel.tp if parallel.sp else 1
    tensor_ranks, groups = (sequence_ranks, parallel.ep) if workload.training else expert_ranks(parallel)
    if groups > 1 and moe_layers and shape.experts:  # Tokens are dispatched to their experts and combined again.
        narrow = workload.precision in FP8_DISPATCH and not workload.training
        sizes = float(shape.hidden), float(shape.experts.active), float(shape.experts.count)
        exchanges = (
            ExpertExchange("dispatch", tokens / tensor_ranks, *sizes, FP8_BYTES if narrow else width),
            ExpertExchange("combine", tokens / tensor_ranks, *sizes, width),
        )  # Each tensor-parallel rank sends its share of the tokens.
        beside: Overlap = "layers" if workload.training and engine.overlaps_expert_exchange else ""
        for exchange in exchanges:
            yield Collective("all_to_all", "ep", exchange.size, moe_layers * passes, beside, ranks=groups, exchange=exchange)
    if parallel.cp > 1:
        keys = 2.0 * tokens * max(1, shape.kv_heads // parallel.tp) * shape.head_dim * width
        yield Collective("send", "cp", keys, len(layers) * (parallel.cp - 1) * rounds * (1.0 + 2.0 * backward), "attention")
    if parallel.pp > 1:
        yield Collective("send", "pp", activations / (parallel.tp if parallel.sp else 1), rounds * (2.0 if backward else 1.0))


def _gradients(workload: Workload, shape: Shape) -> Iterator[Collective]:
    """Yield data-parallel collectives of training: all-reduces of gradient buckets, or ZeRO's reduce-scatters and all-gathers."""
    parallel = workload.parallel
    if parallel.dp < 2:
        return
    size, experts = gradient_bytes(workload, shape)
    rounds = float(workload.accumulation)
    shared = experts if parallel.dp > parallel.ep else 0.0  # An expert held by a single rank has no replica to reduce with.
    megatron = engine_record(workload.engine, workload.year).megatron and parallel.zero in (1, 2)
    bucket = BUCKET_PARAMETERS * gradient_width(workload) if megatron else BUCKET_BYTES
    for gradient in filter(None, (size - experts, shared)):
        buckets = max(1.0, gradient / bucket)
        if parallel.zero == 0:
            yield Collective("all_reduce", "dp", gradient / buckets, buckets, "backward")
            continue
        yield Collective(
            "reduce_scatter", "dp", gradient / buckets, buckets * (rounds if parallel.zero >= 2 else 1.0), "backward"
        )
        if parallel.zero < 3:
            yield Collective("all_gather", "dp", gradient / buckets, buckets, "forward" if megatron else "")
    if parallel.zero == 3:
        weights = weight_bytes(workload, shape)
        units = float(len(stage_layers(shape.layers, parallel.pp, 0)) + 1) if isinstance(shape, Transformer) else 1.0
        yield Collective("all_gather", "dp", weights / units, units * rounds, "forward")
        yield Collective("all_gather", "dp", weights / units, units * rounds, "backward")


def _thread_copies(workload: Workload, shape: Shape) -> Iterator[Collective]:
    """Yield the copies of `DataParallel` threads: weights to every replica before each pass, gradients back after it."""
    if workload.parallel.dp > 1:
        one = Collective("broadcast", "dp", weight_bytes(workload, shape), float(workload.accumulation))
        yield from (one, one) if workload.training else (one,)


def gradient_bytes(workload: Workload, shape: Shape) -> tuple[float, float]:
    """Return the bytes of one rank's gradients before ZeRO shards them, and how many of these belong to experts."""
    if not isinstance(shape, Transformer):
        return _parameters(workload, shape) * gradient_width(workload), 0.0
    own = tensor_share(shape, workload.parallel)
    parameters, _ = trained_parameters(workload, own)
    counts = count_parameters(own)
    size = parameters * gradient_width(workload)
    expert_share = 0.0 if workload.lora_rank else counts.experts / counts.total
    return size, size * expert_share if workload.parallel.ep > 1 else 0.0


def weight_bytes(workload: Workload, shape: Shape) -> float:
    """Return the bytes of one rank's weights as ZeRO 3 gathers them; under autocast these are fp32."""
    width = numerics(workload.precision or "bf16", workload.year).widths.parameter
    if isinstance(shape, Transformer):
        return count_parameters(tensor_share(shape, workload.parallel)).total / workload.parallel.pp * width
    return _parameters(workload, shape) * width


def gradient_width(workload: Workload) -> float:
    """Return the bytes of one gradient element as sent."""
    if (workload.precision or "").startswith("amp") and engine_record(workload.engine).half_gradients:
        return 2.0
    return float(numerics(workload.precision or "bf16", workload.year).widths.parameter)


def _parameters(workload: Workload, shape: Shape) -> float:
    if isinstance(shape, TracedShape):
        return _training_model(workload, shape).parameters
    return float(count_parameters(shape).total) if isinstance(shape, Mlp) else 0.0


def parameter_tensors(workload: Workload, shape: Shape) -> float:
    """Return the number of parameter tensors of one replica, which `DataParallel` threads copy one by one."""
    if isinstance(shape, TracedShape):
        return _training_model(workload, shape).tensors
    if isinstance(shape, Transformer):
        return trained_parameters(workload, shape)[1]
    return 2.0 * (len(shape.units) - 1) if isinstance(shape, Mlp) else 1.0


def _training_model(workload: Workload, shape: TracedShape) -> TracedModel:
    """Return the traced model of the training step, which lists its parameters."""
    from whichgpu.estimate.time.lower.traced_model import traced_model  # Deferred because it reads the operator tables.

    return traced_model(replace(workload, task="train"), shape)
