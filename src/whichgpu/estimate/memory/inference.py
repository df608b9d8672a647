"""Memory of inference: serve, batch, prefill, decode and forward, by engine.

Weights and KV cache are exact; activations follow the operators; the overheads of engines and drivers are constants of the
engine's record with a wide range. The ranges of the totals are combined from those of the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.record import EngineMemory, EngineRecord
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.activations import ForwardPass, activation_peak_bytes, dlrm_peak_bytes, mlp_peak_bytes
from whichgpu.estimate.memory.engine_memory import (
    budget_bytes,
    chunk_tokens,
    context_bytes,
    engine_of,
    graph_bytes,
    static_share,
    workspace_bytes,
)
from whichgpu.estimate.memory.kv import kv_bytes
from whichgpu.estimate.memory.parts import OUTSIDE_ALLOCATOR, PARTS, MemoryEstimate
from whichgpu.estimate.memory.quantisation import (
    DEFAULT_PRECISION,
    activation_bytes,
    canonical_precision,
    is_gguf,
    split_weights,
    weight_bytes,
    weight_range,
)
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.layouts import expert_shards
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Dlrm, Mlp, Shape, TracedShape, Transformer
from whichgpu.workload.workload import Workload

SEQ_IN, SEQ_OUT = 2048, 256  # default tokens of input and output

# 90% ranges of the parts as factors (assumed); weights have their own range (`weight_range`).
PART_RANGES: Mapping[str, tuple[float, float]] = {
    "kv_cache": (1.0, 1.0),
    "activations": (0.8, 1.3),
    "temporary": (0.8, 1.3),
    "workspace": (0.5, 2.0),
    "cuda_graphs": (0.3, 2.5),
    "context": (0.7, 1.3),
    "slack": (0.0, 2.5),
}
SERVING_ACTIVATION_RANGE = (0.6, 1.6)  # The range is wider because serving engines profile a step of their own choice.
CONTEXT_RANGE_MULTI_GPU = (0.7, 2.0)  # The context of several GPUs includes communication buffers.


class InferenceCase(msgspec.Struct, frozen=True):
    """An inference request with its defaults filled in, its model, GPU and engine settings."""

    workload: Workload
    shape: Transformer
    gpu: Gpu | None
    engine: EngineRecord
    memory: EngineMemory  # settings of the engine, or of the default engine for a model without a KV cache
    precision: str

    @property
    def sequences(self) -> int:
        """Concurrent sequences on one replica."""
        return self.workload.local_batch

    @property
    def prompt(self) -> int:
        """Tokens of one prompt or of one image."""
        if patches := self.shape.patches:
            image = self.workload.image or patches.image
            return (image // patches.size) ** 2 + patches.extra
        return self.workload.seq_in or min(SEQ_IN, self.shape.max_context or SEQ_IN)

    @property
    def source(self) -> int:
        """Input tokens of the encoder of an encoder-decoder model."""
        return (self.shape.encoder_context or self.prompt) if self.shape.encoder_layers else 0

    @property
    def context(self) -> int:
        """Tokens in the KV cache of one sequence when it finishes."""
        output = (self.workload.seq_out or SEQ_OUT) if self.workload.generating else 0
        return max(1, output) if self.shape.encoder_layers else self.prompt + output

    @property
    def cached(self) -> bool:
        """Whether the pass uses a KV cache."""
        return self.workload.traits.caching and self.shape.has_kv_cache

    @property
    def width(self) -> int:
        """Bytes of an activation element."""
        return self.memory.activation_bytes or activation_bytes(self.precision)


def inference_memory(workload: Workload, shape: Shape, gpu: Gpu | None) -> MemoryEstimate:
    """Return the peak memory on the fullest GPU; for engines that preallocate, `device` includes what they reserve."""
    if isinstance(shape, TracedShape):
        from whichgpu.estimate.memory.traced import traced_memory

        return traced_memory(workload, shape, gpu)
    precision = canonical_precision(workload.precision) if workload.precision else None
    spread = weight_range(precision)
    if isinstance(shape, Transformer):
        case = _case(workload, shape, gpu, precision or DEFAULT_PRECISION)
        basis: Basis = "modelled" if case.memory.managed else "calibrated"
        return _estimate(_transformer_parts(case), _part_ranges(case, spread), basis, _warnings(case), case)
    parts = {"weights": weight_bytes(shape, precision, workload.parallel)}
    width = activation_bytes(precision or DEFAULT_PRECISION)
    warnings: tuple[Message, ...] = ()
    if isinstance(shape, Mlp):
        parts["activations"] = mlp_peak_bytes(shape, workload.local_batch, width)
    elif isinstance(shape, Dlrm):
        parts["activations"] = dlrm_peak_bytes(shape, workload.local_batch, width)
    else:
        warnings = (msg("warning.weights-only", model=shape.name),)
    parts |= _overheads(engine_record(None, workload.year).memory, gpu, parts, 1)
    return _estimate(parts, {**PART_RANGES, "weights": spread}, "calibrated", warnings)


def _case(workload: Workload, shape: Transformer, gpu: Gpu | None, precision: str) -> InferenceCase:
    engine = engine_of(workload)
    if workload.engine is None and is_gguf(precision):
        engine = engine_record(default_engine("gguf"), workload.year)
    memory = engine.memory if shape.has_kv_cache else engine_record(None, workload.year).memory
    return InferenceCase(workload, shape, gpu, engine, memory, precision)


def _transformer_parts(case: InferenceCase) -> dict[str, int]:
    workload, shape, layout = case.workload, case.shape, case.workload.parallel
    gpus = layout.pp * (expert_shards(layout) if shape.experts else layout.tp)
    parts = {"weights": _weights(case, gpus) - _weights_on_host(case, gpus), "kv_cache": _cache(case)}
    if shape.draft and workload.speculative:
        parts["weights"] += _draft_weights(case, shape.draft, workload.speculative.method) // gpus
        parts["kv_cache"] += _cache(replace(case, shape=shape.draft))
    parts["activations"] = max(activation_peak_bytes(shape, step) for step in _steps(case))
    parts["temporary"] = _temporary(case, parts["kv_cache"])
    layers = -(-shape.layers // layout.pp)
    if case.cached and workload.traits.decoding:
        parts["cuda_graphs"] = graph_bytes(case.memory, case.gpu, layers, layout.tp)
    return parts | _overheads(case.memory, case.gpu, parts, gpus, growing=_reallocates_cache(case))


def _weights(case: InferenceCase, gpus: int) -> int:
    """Return the bytes of weights on the fullest GPU, without an untied embedding that the engine keeps on the host."""
    size = weight_bytes(case.shape, case.workload.precision, case.workload.parallel if gpus > 1 else None)
    if case.memory.embedding_on_host and not case.shape.tied:
        size -= split_weights(case.shape, case.precision).embedding // gpus
    return max(0, size)


def _weights_on_host(case: InferenceCase, gpus: int) -> int:
    """Return the bytes of weights that lie in host memory instead of this GPU's."""
    offload = case.workload.offload
    return 0 if offload is None else host_weight_bytes(offload, case.shape, case.precision) // gpus


def host_weight_bytes(offload: Offload, shape: Transformer, precision: str) -> int:
    """Return the bytes of a model's weights that lie in host memory."""
    weights = split_weights(shape, precision)
    if offload.experts:
        return int(weights.experts * offload.expert_share(shape))
    layers = weights.total - weights.embedding - weights.head
    return layers * min(offload.layers, shape.layers) // shape.layers


def _draft_weights(case: InferenceCase, draft: Transformer, method: str) -> int:
    """Return the bytes of the network that drafts tokens; a prediction layer shares the model's embedding and head."""
    weights = split_weights(draft, case.precision)
    if method == "draft":
        return weights.total
    joined = 2 * draft.hidden * draft.hidden * case.width  # The layer's input is joined from a hidden state and an embedding.
    return weights.total - weights.embedding - weights.head + joined


def _cache(case: InferenceCase) -> int:
    if not case.cached:
        return 0
    whole = _whole_cache(case)
    offload = case.workload.offload
    if offload and offload.whole_layers and case.memory.embedding_on_host:  # llama.cpp keeps the cache where the layer is.
        return whole * max(0, case.shape.layers - offload.layers) // case.shape.layers
    return whole


def _whole_cache(case: InferenceCase) -> int:
    return kv_bytes(
        case.shape,
        case.sequences,
        case.context,
        case.workload.kv_precision or PRECISION_BY_NAME[case.precision].kv_default,
        case.memory.block_tokens,
        source=case.source,
        parallel=case.workload.parallel,
        memory=case.memory,
    )


def _steps(case: InferenceCase) -> list[ForwardPass]:
    """Return the forward passes of a request: prefill (or its largest chunk), and decode of one token per sequence."""
    task = case.workload.traits
    steps = []
    if task.step != "decode" or case.memory.managed or not case.cached:
        steps.append(_prompt_step(case))
    if case.cached and task.decoding:
        steps.append(_step(case, case.sequences, case.context, case.sequences))
    return steps


def profile_step_bytes(workload: Workload, shape: Transformer, gpu: Gpu | None, tokens: int, sequences: int) -> int:
    """Return the activation bytes of an engine's profiling step over `tokens` tokens that samples for `sequences` sequences."""
    case = _case(workload, shape, gpu, canonical_precision(workload.precision or DEFAULT_PRECISION))
    rows = min(sequences, tokens) if not case.memory.logits_of_all_tokens else tokens
    return activation_peak_bytes(shape, _step(case, tokens, max(case.prompt, case.source), rows))


def _prompt_step(case: InferenceCase) -> ForwardPass:
    length = max(case.prompt, case.source)
    chunk = chunk_tokens(case.memory, case.gpu, case.workload.task, case.context)
    tokens = case.sequences * length if chunk is None else chunk
    return _step(case, tokens, length, _logit_rows(case, tokens))


def _logit_rows(case: InferenceCase, tokens: int) -> int:
    """Return the number of positions whose logits are computed."""
    if not case.shape.head or not case.shape.has_kv_cache:
        return 0  # An encoder's forward pass ends with its last hidden state.
    if case.memory.managed:
        return tokens if case.memory.logits_of_all_tokens else max(case.sequences, case.memory.sampled_rows)
    return case.sequences if case.memory.last_logits_only and case.workload.traits.logits == "last" else tokens


def _step(case: InferenceCase, tokens: int, context: int, logits: int) -> ForwardPass:
    width = case.width
    sampling = case.cached and case.workload.generating
    extra = case.memory.logit_bytes if sampling or case.memory.managed else 0
    # Eager attention stores scores as computed, in fp32 for the softmax, and cast back, unless the engine uses a single buffer.
    scores = case.memory.score_bytes or 2 * width + 4
    return ForwardPass(
        tokens=tokens,
        context=context,
        width=width,
        logits=logits,
        logit_bytes=width + extra,
        score_bytes=scores if case.workload.attention == "eager" else 0,
        written_out=case.engine.eager,
        persistent_bytes=case.sequences * case.source * case.shape.hidden * width,
        tp=case.workload.parallel.tp,
    )


def _reallocates_cache(case: InferenceCase) -> bool:
    """Whether every step reallocates the KV cache one token longer, as the `transformers` library does."""
    return case.engine.eager and case.cached and case.workload.traits.decoding


def _temporary(case: InferenceCase, cache: int) -> int:
    """Return the bytes of a layer's keys while its cache is reallocated, plus autocast's 16-bit copies of fp32 weights."""
    reallocated = cache // (2 * case.shape.layers) if _reallocates_cache(case) else 0
    casts = 0
    if case.precision.startswith("amp-"):
        parameters = count_parameters(case.shape)
        head = parameters.embedding if case.shape.tied and case.shape.head else parameters.head
        casts = 2 * (parameters.linear + (head if case.shape.has_kv_cache else 0))
    return reallocated + casts // max(1, case.workload.parallel.tp * case.workload.parallel.pp)


def _overheads(
    memory: EngineMemory, gpu: Gpu | None, parts: Mapping[str, int], gpus: int, growing: bool = False
) -> dict[str, int]:
    """Return the bytes of workspaces, CUDA context and allocator slack, more of it if the KV cache is reallocated (`growing`)."""
    dynamic = parts.get("activations", 0) + parts.get("temporary", 0)
    slack = memory.slack + memory.slack_of_activations * dynamic
    if growing:
        slack += memory.slack_of_growing_cache * parts.get("kv_cache", 0)
    return {"workspace": workspace_bytes(memory, gpu), "context": context_bytes(gpu, gpus, memory), "slack": int(slack)}


def _part_ranges(case: InferenceCase, weights: tuple[float, float]) -> dict[str, tuple[float, float]]:
    layout = case.workload.parallel
    ranges = {**PART_RANGES, "weights": weights}
    if case.memory.managed:
        ranges["activations"] = SERVING_ACTIVATION_RANGE
    if layout.tp * layout.pp * layout.ep > 1:
        ranges["context"] = CONTEXT_RANGE_MULTI_GPU
    return ranges


def _estimate(
    parts: Mapping[str, int],
    ranges: Mapping[str, tuple[float, float]],
    basis: Basis,
    warnings: tuple[Message, ...] = (),
    case: InferenceCase | None = None,
) -> MemoryEstimate:
    sources = ("truth-h200",) if basis == "calibrated" else ("engine-defaults",)
    sizes = {name: parts[name] for name in PARTS if parts.get(name)}
    figures = {name: _figure({name: size}, ranges, basis, sources) for name, size in sizes.items()}
    allocated = _figure({name: size for name, size in sizes.items() if name not in OUTSIDE_ALLOCATOR}, ranges, basis, sources)
    required = _figure(sizes, ranges, basis, sources)
    if case is None or case.gpu is None:
        return MemoryEstimate(allocated, required, figures, warnings)
    reserved = _reserved(case, case.gpu, sizes)
    value, low, high = (max(reserved, bound) for bound in (required.value, required.low, required.high))
    device = Figure(value, low, high, "byte", basis, sources)
    return MemoryEstimate(allocated, device, figures, (*warnings, *_share_warning(case, case.gpu, required)))


def _figure(
    parts: Mapping[str, int], ranges: Mapping[str, tuple[float, float]], basis: Basis, sources: tuple[str, ...]
) -> Figure:
    """Return the sum of the parts with its range; the parts' deviations are independent, so they add as squares."""
    total = sum(parts.values())
    below = sqrt(sum((size * (1 - ranges[name][0])) ** 2 for name, size in parts.items()))
    above = sqrt(sum((size * (ranges[name][1] - 1)) ** 2 for name, size in parts.items()))
    exact = not below and not above
    low, high = min(total, total - below), max(total, total + above)  # Floats may round beyond a large integer.
    return Figure(total, low, high, "byte", "modelled" if exact else basis, () if exact else sources)


def _reserved(case: InferenceCase, gpu: Gpu, parts: Mapping[str, int]) -> int:
    """Return the bytes that an engine reserves at start; 0 for an engine that allocates on demand."""
    workload, memory, total = case.workload, case.memory, gpu.memory_bytes
    if not case.cached:
        return 0
    graphs, context = parts.get("cuda_graphs", 0), parts.get("context", 0)
    if memory.reservation == "device-share":
        return min(total, budget_bytes(workload, gpu) + (0 if memory.graphs_inside_share else graphs))
    if memory.reservation == "static-share":
        share = static_share(memory, gpu, workload.parallel.tp, workload.parallel.pp)
        static = total - int((total - context) * (1 - share))
        return min(total, static + graphs + parts.get("activations", 0))
    if memory.reservation == "free-share":
        used = sum(size for name, size in parts.items() if name != "kv_cache")
        return used + int(max(0, total - used) * memory.share)
    return 0


def _warnings(case: InferenceCase) -> tuple[Message, ...]:
    limit = case.shape.max_context
    if case.cached and limit and case.context > limit:
        return (msg("warning.beyond-context", context=case.context, limit=limit, model=case.shape.name),)
    return ()


def _share_warning(case: InferenceCase, gpu: Gpu, required: Figure) -> tuple[Message, ...]:
    """Return a warning if a model fits on the GPU but not in the engine's default share of it."""
    budget = budget_bytes(case.workload, gpu)
    if not case.memory.capped or not budget < required.value <= gpu.memory_bytes:
        return ()
    return (msg("warning.engine-share", engine=case.engine.id, share=round(100 * budget / gpu.memory_bytes), gpu=gpu.name),)
