"""Text about workloads: the model, parts of memory, and assumed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.messages import Language, Message, msg

# Default values that are too common to be listed as assumptions.
UNSTATED = "gpus nodes optimizer_fused include_optimizer_step lora_targets qlora percentile task".split()


def model_label(request: Mapping[str, Any]) -> str:
    """Return the name of a request's model; the model type if it was given by its config."""
    model = request["model"]
    return model if isinstance(model, str) else str(model.get("model_type", "config.json"))


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
