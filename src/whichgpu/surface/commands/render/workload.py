"""Workloads in words: parts of memory, and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.messages import Language, Message, msg

# Defaults that need no saying.
QUIET = "gpus nodes optimizer_fused include_optimizer_step lora_targets qlora percentile task".split()


def part_name(name: str, language: Language) -> str:
    """A part of memory in words."""
    id = f"part.{name}"
    return language.text(f"part.{name}") if id in language else name.replace("_", " ")


def assumed(request: Mapping[str, Any]) -> Message:
    """What was taken where the user said nothing."""
    told = [name for name in request["defaults"] if name not in QUIET and isinstance(request[name], str | int)]
    shown = [
        f"{name} {request[name]}" for name in told if request[name] != "none" and (name, request[name]) != ("accumulation", 1)
    ]
    return msg("fit.assumed", values=tuple(shown) or ("–",))
