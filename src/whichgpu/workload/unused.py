"""Warnings about a request: fields without effect on its task or kind of model, and sequences beyond the model's context."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from whichgpu.base.messages import Message, msg
from whichgpu.base.records import field_defaults
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.workload.denoisers import makes_videos
from whichgpu.workload.shapes import Shape, TracedShape, Transformer
from whichgpu.workload.workload import Workload

ADAPTERS = ("lora_rank", "lora_targets", "lora_dropout", "qlora")
TRAINING = ("optimizer", "optimizer_fused", "include_optimizer_step", "checkpointing", "accumulation", *ADAPTERS)
PICTURES = ("denoising_steps", "guidance")
DECODING = ("speculative", "prefix_hit", "offload")  # fields of text generation
SERVING = ("rate", "ttft_max", "tpot_max", "percentile")
DEFAULTS = {"task": None, "model": None, **field_defaults(Workload)}


def unused(workload: Workload, shape: Shape, user_fields: Collection[str]) -> tuple[Message, ...]:
    """Return warnings about fields the user gave that do not affect the answer; a field given its default value is ignored."""
    changed = {name for name in DEFAULTS if name in user_fields and getattr(workload, name) not in (None, DEFAULTS[name])}
    by_task = changed & set(_foreign_to_task(workload))
    by_model = changed & set(_foreign_to_model(shape)) - by_task
    warnings = []
    if by_task:
        warnings.append(msg("warning.unused-task", options=_flags(by_task), task=workload.task))
    if by_model:
        warnings.append(msg("warning.unused-model", options=_flags(by_model), model=shape.name))
    return tuple(warnings)


def _foreign_to_task(workload: Workload) -> Iterator[str]:
    # Eager engines run inference with unmerged adapters, so the adapter fields have an effect.
    adapted = workload.lora_rank is not None and engine_record(workload.engine).eager
    if not workload.training:
        yield from (name for name in TRAINING if not (adapted and name in ADAPTERS))
    else:
        yield from ("kv_precision", *DECODING)
    if not workload.serving:
        yield from SERVING
    if not workload.generating:
        yield from ("seq_out", *PICTURES)


def _foreign_to_model(shape: Shape) -> Iterator[str]:
    text = shape.is_transformer
    pictured = isinstance(shape, TracedShape) and shape.reads_images
    if not text:
        yield from ("seq_in", "seq_out", "attention", "kv_precision", "lora_targets", "lora_dropout", "qlora", "tpot_max")
    if not text and not isinstance(shape, TracedShape):  # For models with an operator table, the estimate itself reports this.
        yield from ("checkpointing", "lora_rank")
    if not shape.is_generative:
        has_parts = isinstance(shape, TracedShape) and shape.pipeline is not None
        yield from (name for name in DECODING if not (has_parts and name == "offload"))
    if not shape.reads_images:
        yield "image"
    if not (isinstance(shape, TracedShape) and shape.pipeline):
        yield from PICTURES
    if not makes_videos(shape):
        yield "frames"
    if not pictured:
        yield "memory_format"


def _flags(names: Collection[str]) -> tuple[str, ...]:
    return tuple("--" + name.replace("_", "-") for name in DEFAULTS if name in names)


def beyond_context(tokens: int, shape: Shape) -> tuple[Message, ...]:
    """Return a warning if a sequence of that many tokens is longer than the model was trained for; else ()."""
    limit = shape.max_context if isinstance(shape, Transformer) and shape.is_language_model else 0
    return (msg("warning.beyond-context", context=tokens, limit=limit, model=shape.name),) if limit and tokens > limit else ()
