"""Which models may be named from outside: those that open no file, run no code and reach no network."""

from __future__ import annotations

from collections.abc import Iterable

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.models import TRACED, built_in, unknown_model

HUB = "hf:"
PLAN_FILE = ".toml"
_allowed: set[str] = set()  # in this process, from its start


def allow(names: Iterable[str]) -> None:
    """What the owner of the server allows."""
    _allowed.update(names)


def permitted(name: str) -> None:
    """Pass built-in models, perceptrons and configs written out; refuse paths, code and repositories."""
    text = name.strip()
    if text.startswith(("mlp:", "{")):
        return
    if text.startswith(HUB) and "hf" in _allowed:
        return
    if text.startswith((HUB, *TRACED)):
        raise _refused(text)
    from whichgpu.surface.web.asking import catalog as kept

    catalog = kept()
    if text and built_in(text, catalog) is not None:
        return
    if _looks_like_a_file(text):
        raise _refused(text)
    raise unknown_model(text, catalog)


def permitted_plan(name: str) -> None:
    """Models alone: a plan file is never opened for somebody else, whatever its name begins with."""
    if name.strip().lower().endswith(PLAN_FILE):
        raise _refused(name.strip())
    permitted(name)


def _looks_like_a_file(text: str) -> bool:
    return any(mark in text for mark in ("/", "\\", "~", ":", "\0")) or text.lower().endswith((".json", ".gguf", ".safetensors"))


def _refused(text: str) -> UsageError:
    return UsageError("model-not-allowed", msg("error.model-not-allowed", name=text[:80]), msg("hint.model-not-allowed"))
