"""Text about workloads: the model, parts of memory, and assumed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.messages import Language, Message, msg

# Default values that are too common to be listed as assumptions.
TRAINING_TASKS = ("train", "finetune")
UNSTATED = "gpus nodes optimizer_fused include_optimizer_step lora_targets qlora percentile task".split()


def model_label(request: Mapping[str, Any]) -> str:
    """Return the name of a request's model; the model type if it was given by its config."""
    model = request["model"]
    return model if isinstance(model, str) else str(model.get("model_type", "config.json"))


def workload_words(request: Mapping[str, Any], reads_tokens: bool = True) -> tuple[str | Message, ...]:
    """Return task, precision, batch and, of a model that reads tokens, sequence lengths of a request."""
    lengths = [str(request[name]) for name in ("seq_in", "seq_out") if request[name] and reads_tokens]
    tokens = (msg("fit.what-tokens", lengths="+".join(lengths)),) if lengths else ()
    return request["task"], *trained_weights(request), request["precision"], _batch_words(request), *tokens


def trained_weights(request: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return which weights a fine-tuning trains: all, or adapters of a rank; nothing for other tasks."""
    if request["task"] != "finetune":
        return ()
    method = "qlora" if request["qlora"] else "lora" if request["lora_rank"] else "full"
    return (msg(f"fit.what-{method}", rank=request["lora_rank"]),)


def _batch_words(request: Mapping[str, Any]) -> Message:
    """Return the batch of a request, with its micro-batches if gradients are accumulated over several."""
    batch, passes = request["batch"], request["accumulation"]
    if passes > 1 and request["task"] in TRAINING_TASKS:
        micro = request["micro_batch"] or max(1, batch // (passes * request["parallel"]["dp"]))
        return msg("fit.what-micro-batch", batch=batch, micro=micro)
    return msg("fit.what-batch", batch=batch)


def part_name(name: str, language: Language) -> str:
    """Return the name of a part of memory in the reader's language."""
    return language.text(f"part.{name}") if f"part.{name}" in language else name.replace("_", " ")


def assumptions(request: Mapping[str, Any]) -> Message:
    """Return a message that lists the defaults for fields the user left out."""
    names = [name for name in request["defaults"] if name not in UNSTATED and isinstance(request[name], str | int)]
    stated = [
        f"{name} {request[name]}" for name in names if (name, request[name]) != ("accumulation", 1) and request[name] != "none"
    ]
    return msg("fit.assumed", values=tuple(stated) or ("–",))
