"""Workload of `ollama run`: the model that a name of Ollama's library means, and the server's variables before the command."""

from __future__ import annotations

import re
from collections.abc import Sequence

from whichgpu.workload.config_files.config import ConfigWorkload
from whichgpu.workload.config_files.model_names import gguf_parts, hub_parts, usual_type

ENGINE, TOOL, HUB = "llama.cpp", "ollama", "hf.co/"
CONTEXT, PARALLEL = "OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL"
LATEST = "latest"
# Sizes that the tag `latest` means, of models with several (https://ollama.com/library, 2026-11-18).
LATEST_SIZES = {
    "llama3": "8b", "llama3.1": "8b", "llama3.2": "3b", "llama3.3": "70b", "qwen2.5": "7b", "qwen3": "8b", "gemma3": "4b",
    "mistral": "7b", "mixtral": "8x7b", "gpt-oss": "20b", "phi4": "14b", "codellama": "7b", "deepseek-r1": "8b",
}  # fmt: skip


def ollama_workload_of(words: Sequence[str]) -> ConfigWorkload | None:
    """Return the workload of a command that runs a model with Ollama; None for any other."""
    names = [word.rpartition("/")[2] for word in words]
    starts = [place for place in range(len(words) - 2) if names[place : place + 2] == [TOOL, "run"]]
    if not starts:
        return None
    before, arguments = words[: starts[0]], words[starts[0] + 2 :]
    model = next((word for word in arguments if not word.startswith("-")), None)
    if model is None:
        return None
    name, precision = library_parts(model)
    fields = {"task": "serve", "engine": ENGINE, "model": name, "gpus": 1} | ({"precision": precision} if precision else {})
    unread = [word for word in arguments if word.startswith("-")]
    return ConfigWorkload(TOOL, fields, _number(before, CONTEXT), _number(before, PARALLEL), unread=tuple(unread))


def library_parts(name: str) -> tuple[str, str | None]:
    """Return the model and the GGUF type that a name of Ollama means.

    >>> library_parts("llama3.1:8b-instruct-q8_0"), library_parts("qwen3"), library_parts("hf.co/a/B-GGUF:Q4_K_M")
    (('llama3.1-8b-instruct', 'q8_0'), ('qwen3-8b', 'q4_k_m'), ('B', 'q4_k_m'))
    """
    if name.startswith(HUB):
        return hub_parts(name.removeprefix(HUB))
    base, _, tag = name.partition(":")
    base = base.rpartition("/")[2]
    tag = LATEST_SIZES.get(base, "") if tag in ("", LATEST) else tag
    model, precision = gguf_parts(f"{base}-{tag}.gguf" if tag else f"{base}.gguf")
    return model, precision or usual_type(model)


def _number(words: Sequence[str], variable: str) -> int | None:
    """Return the value of a variable set before the command; None if it is not set, or no number."""
    matches = (re.fullmatch(rf"(?:--env=)?{variable}=(\d{{1,9}})", word) for word in words)
    match = next(filter(None, matches), None)
    return int(match[1]) or None if match else None
