"""Decide which training or inference steps can be measured with random weights, and why others cannot."""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.workload.precisions import TRAINED_PRECISIONS
from whichgpu.workload.shapes import Mlp, Shape, TracedShape, Transformer
from whichgpu.workload.workload import Workload

TASKS = ("train", "finetune", "forward", "prefill", "decode")
OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum")
# Model families whose layers our models compute as the `transformers` library does.
DECODERS = ("llama", "mistral", "qwen2", "qwen3", "gpt2", "opt")
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


def why_not_runnable(workload: Workload, shape: Shape) -> Message | None:
    """Return a message that says why a step cannot be measured; None if it can."""
    if workload.task not in TASKS:
        return msg("verify.task", task=workload.task, tasks=TASKS)
    engines = tuple(id for id in engine_ids() if workload.task in engine_record(id).measured_for)
    if workload.engine not in engines:
        return msg("verify.engine", engine=workload.engine or "?", task=workload.task, engines=engines)
    if workload.gpus > 1:
        return msg("verify.several", gpus=workload.gpus)
    if workload.precision not in TRAINED_PRECISIONS:
        return msg("verify.precision", precision=workload.precision or "?", precisions=TRAINED_PRECISIONS)
    if workload.training and (why := _untrainable(workload)):
        return why
    return _unknown_layers(workload, shape)


def _untrainable(workload: Workload) -> Message | None:
    if workload.lora_rank or workload.qlora:
        return msg("verify.adapters")
    if workload.optimizer not in OPTIMIZERS:
        return msg("verify.optimizer", optimizer=workload.optimizer or "?", optimizers=OPTIMIZERS)
    if workload.accumulation > 1 or workload.checkpointing == "selective":
        return msg("verify.schedule")
    return None


def _unknown_layers(workload: Workload, shape: Shape) -> Message | None:
    if isinstance(shape, Mlp | TracedShape):
        if workload.checkpointing != "none":
            return msg("verify.schedule")
        return None if not workload.traits.caching else msg("verify.model", model=shape.name)
    families = (*DECODERS, *ENCODERS) if not workload.traits.caching else DECODERS
    plain = (
        isinstance(shape, Transformer)
        and shape.model_type in families
        and not (shape.experts or shape.mla or shape.patches or shape.encoder_layers or shape.parallel_block)
        and not (shape.window and shape.window < (workload.seq_in or 0))
        and shape.embedding in (0, shape.hidden)
        and shape.norms == 2
    )
    if not plain or workload.attention not in ("sdpa", "flash"):
        return msg("verify.model", model=shape.name)
    return None
