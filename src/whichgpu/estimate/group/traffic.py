"""What the ranks of a layout say to one another in a step: each collective with its bytes, how often, and what may hide it.

Tensor parallelism adds up activations twice a layer each way (arXiv 1909.08053); with sequence parallelism the same bytes go as a
gather and a scatter (arXiv 2205.05198). Data parallelism adds up gradients beside the backward pass (arXiv 2006.15704); ZeRO
scatters them and gathers weights (arXiv 1910.02054). Pipelines hand on activations (arXiv 2104.04473), experts exchange tokens
(arXiv 2006.16668), context parallelism passes keys and values round (arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.group.collectives import CollectiveKind, Communicator
from whichgpu.estimate.memory.quantisation import is_moe_layer
from whichgpu.estimate.time.lower.eager.training import trained_parameters
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.workload.layouts import expert_ranks, stage_layers, tensor_share
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Mlp, Shape, TracedShape, Transformer
from whichgpu.workload.workload import Parallel, Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.lower.traced_model import TracedModel
    from whichgpu.estimate.time.operators import Number

Axis = Literal["tp", "dp", "cp", "ep", "pp"]
Hidden = Literal["", "backward", "forward", "attention"]
BUCKET = 25e6  # bytes of gradients DistributedDataParallel sends at a time


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of message of a step: `count` calls of `size` bytes along an axis, hidden behind some work or in its way."""

    kind: CollectiveKind
    axis: Axis
    size: Number
    count: Number
    hidden: Hidden = ""
    ranks: int = 0  # that take part; 0: all of the axis


def communicator_of(parallel: Parallel, axis: Axis, gpus: int, nodes: int, domain: int = 16, ranks: int = 0) -> Communicator:
    """The ranks of an axis and how many of them share a node: tensor ranks are neighbours, then context, data, stages.

    >>> communicator_of(Parallel(dp=4, tp=4), "dp", 16, 2)
    Communicator(size=4, inside=2)
    """
    per_node = max(1, min(gpus // nodes, domain))
    strides = {"tp": 1, "cp": parallel.tp, "ep": parallel.tp * parallel.cp, "dp": parallel.tp * parallel.cp}
    strides["pp"] = strides["dp"] * parallel.dp
    size: int = ranks or getattr(parallel, axis)
    if axis == "pp":  # a stage talks to the next one alone
        return Communicator(2 if size > 1 else 1, 2 if strides["pp"] < per_node else 1)
    return Communicator(size, max(1, min(size, per_node // strides[axis])))


def step_collectives(workload: Workload, shape: Shape, batch: Number) -> list[Collective]:
    """All messages of one step of a rank with `batch` sequences or samples at a time; generating, of one token each."""
    if workload.parallel.threads:
        return list(_copied(workload, shape))
    if not isinstance(shape, Transformer):
        return list(_gradients(workload, shape)) if workload.training else []
    if workload.training:
        return [*_layers(workload, shape, batch), *_gradients(workload, shape)]
    return list(_layers(workload, shape, batch))


def inference_collectives(workload: Workload, shape: Transformer, batch: Number, tokens: Number) -> list[Collective]:
    """Messages of one inference pass over `batch` sequences of `tokens` new tokens each."""
    return list(_pass(workload, shape, batch, batch * tokens, 1.0, 0.0))


def _layers(workload: Workload, shape: Transformer, batch: Number) -> Iterator[Collective]:
    length = float(workload.seq_in or shape.max_context) / workload.parallel.cp
    whole = not workload.traits.decoding or not shape.causal
    tokens = batch * length if whole else batch * 1.0
    if not workload.training:
        return _pass(workload, shape, batch, tokens, 1.0, 0.0)
    again = 1.0 if workload.checkpointing == "full" else 0.0
    return _pass(workload, shape, batch, tokens, float(workload.accumulation), 1.0 + again)


def _pass(
    workload: Workload, shape: Transformer, batch: Number, tokens: Number, times: float, back: float
) -> Iterator[Collective]:
    """Messages of a pass over so many tokens, `times` of them, with `back` further passes' worth for gradients."""
    parallel, width = workload.parallel, _width(workload)
    layers = stage_layers(shape.layers, parallel.pp, 0)
    both = times * (1.0 + back)
    stream = tokens * shape.hidden * width
    mixtures = sum(is_moe_layer(shape, index) for index in layers)
    if parallel.tp > 1:
        halves = (1 if shape.parallel_block else 2) + (1 if shape.encoder_layers else 0)
        sums = len(layers) * halves * both + 2 * -(-shape.encoder_layers // parallel.pp) * both
        if parallel.sp and workload.training:
            yield Collective("all_gather", "tp", stream, sums)
            yield Collective("reduce_scatter", "tp", stream, sums)
        else:
            yield Collective("all_reduce", "tp", stream, sums)
        yield Collective("all_reduce", "tp", stream, both)  # the embedding's rows, each on one rank
        if shape.head and not workload.training:
            yield Collective("all_gather", "tp", batch * shape.vocab * width, times)
    tensor_ranks, groups = (1, parallel.ep) if workload.training else expert_ranks(parallel)
    if groups > 1 and mixtures and shape.experts:  # dispatch and combine
        sent = tokens * shape.experts.active * shape.hidden * width / tensor_ranks  # which share a token's sending between them
        yield Collective("all_to_all", "ep", sent, 2.0 * mixtures * both, ranks=groups)
    if parallel.cp > 1:
        keys = 2.0 * tokens * max(1, shape.kv_heads // parallel.tp) * shape.head_dim * width
        yield Collective("send", "cp", keys, len(layers) * (parallel.cp - 1) * times * (1.0 + 2.0 * back), "attention")
    if parallel.pp > 1:
        yield Collective("send", "pp", stream / (parallel.tp if parallel.sp else 1), times * (2.0 if back else 1.0))


def _gradients(workload: Workload, shape: Shape) -> Iterator[Collective]:
    """Gradients of data-parallel copies, in buckets; weights as ZeRO gathers them."""
    parallel = workload.parallel
    if parallel.dp < 2:
        return
    size, experts = gradient_bytes(workload, shape)
    times = float(workload.accumulation)
    kept = weight_bytes(workload, shape)
    shared = experts if parallel.dp > parallel.ep else 0.0  # an expert that lives on one rank of each group is nobody else's
    for gradient in filter(None, (size - experts, shared)):
        buckets = max(1.0, gradient / BUCKET)
        if parallel.zero == 0:
            yield Collective("all_reduce", "dp", gradient / buckets, buckets, "backward")
            continue
        rounds = times if parallel.zero >= 2 else 1.0
        yield Collective("reduce_scatter", "dp", gradient / buckets, buckets * rounds, "backward")
        if parallel.zero < 3:
            yield Collective("all_gather", "dp", gradient / buckets, buckets)
    if parallel.zero == 3:
        units = float(len(stage_layers(shape.layers, parallel.pp, 0)) + 1) if isinstance(shape, Transformer) else 1.0
        yield Collective("all_gather", "dp", kept / units, units * times, "forward")
        yield Collective("all_gather", "dp", kept / units, units * times, "backward")


def _copied(workload: Workload, shape: Shape) -> Iterator[Collective]:
    """One process of threads sends its weights to every copy before each pass and takes their gradients back after it."""
    size = weight_bytes(workload, shape)
    if workload.parallel.dp > 1:
        yield Collective("broadcast", "dp", size, float(workload.accumulation))
        if workload.training:
            yield Collective("broadcast", "dp", size, float(workload.accumulation))


def gradient_bytes(workload: Workload, shape: Shape) -> tuple[float, float]:
    """Bytes of gradients of one rank before any ZeRO, and how many of them are experts'."""
    if isinstance(shape, Transformer):
        own = tensor_share(shape, workload.parallel)
        parameters, _ = trained_parameters(workload, own)
        counted = count_parameters(own)
        share = 0.0 if workload.lora_rank else counted.experts / counted.total
        size = parameters * gradient_width(workload)
        return size, size * share if workload.parallel.ep > 1 else 0.0
    return _parameters(workload, shape) * gradient_width(workload), 0.0


def weight_bytes(workload: Workload, shape: Shape) -> float:
    """Bytes of the weights of one rank as ZeRO 3 gathers them: autocast gathers what it keeps, in fp32."""
    width = numerics(workload.precision or "bf16", workload.year).widths.parameter
    if isinstance(shape, Transformer):
        return count_parameters(tensor_share(shape, workload.parallel)).total / workload.parallel.pp * width
    return _parameters(workload, shape) * width


def gradient_width(workload: Workload) -> float:
    """Bytes of a gradient on the wire."""
    if (workload.precision or "").startswith("amp") and engine_record(workload.engine).half_gradients:
        return 2.0
    return float(numerics(workload.precision or "bf16", workload.year).widths.parameter)


def _parameters(workload: Workload, shape: Shape) -> float:
    if isinstance(shape, TracedShape):
        return _trained_model(workload, shape).parameters
    return float(count_parameters(shape).total) if isinstance(shape, Mlp) else 0.0


def parameter_tensors(workload: Workload, shape: Shape) -> float:
    """Parameter tensors of one copy, which a process of threads copies one by one."""
    if isinstance(shape, TracedShape):
        return _trained_model(workload, shape).tensors
    if isinstance(shape, Transformer):
        return trained_parameters(workload, shape)[1]
    return 2.0 * (len(shape.units) - 1) if isinstance(shape, Mlp) else 1.0


def _trained_model(workload: Workload, shape: TracedShape) -> TracedModel:
    """The pass that has gradients: their number and size are the parameters'."""
    from whichgpu.estimate.time.lower.traced_model import traced_model  # reads the operator tables

    return traced_model(replace(workload, task="train"), shape)


def _width(workload: Workload) -> float:
    """Bytes of an activation on the wire."""
    return 4.0 if workload.precision in ("fp32", "fp32-default", "tf32") else 2.0
