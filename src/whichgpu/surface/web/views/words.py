"""Words and lists of names that several pages show."""

from __future__ import annotations

from typing import Any, get_args

from whichgpu.base.figure import Basis
from whichgpu.base.messages import Language
from whichgpu.catalog.offer import TERMS
from whichgpu.surface.web.views.shared_catalog import gpu_names, model_names, provider_names

VERDICTS = ("fits", "tight", "no")


def words(language: Language) -> dict[str, Any]:
    """How a figure is known, terms and verdicts in the reader's language; names to complete from."""
    text = language.text
    return {
        "bases": {word: text(f"web.basis-{word}") for word in get_args(Basis)},
        "terms": {word: text(f"term.{word}") for word in (*TERMS, "owned")},
        "verdicts": {word: text(f"verdict.{word}") for word in VERDICTS},
        "models": model_names(),
        "gpus": gpu_names(),
        "providers": provider_names(),
    }
