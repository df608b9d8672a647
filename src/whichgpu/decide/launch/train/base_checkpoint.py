"""The checkpoint that training starts from: base weights rather than instruction-tuned ones, unless the user names these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.models import repository_of

TUNED_WORDS = frozenset(("instruct", "chat", "it", "think", "thinking", "reasoning"))
BASE_WORDS = ("base", "pretrain", "pt")  # Words of base checkpoints in the order of preference.


class TrainingCheckpoint(msgspec.Struct, frozen=True):
    """The repository that a run starts from, and that of the base weights if it is another one the catalog lists."""

    repository: str
    base: str = ""


def training_checkpoint(model: str | Mapping[str, Any], catalog: Catalog, is_finetuning: bool) -> TrainingCheckpoint:
    """Return the checkpoint of a model for training.

    A repository or an instruction-tuned name of the request is kept; else training from scratch takes the base checkpoint, and
    fine-tuning does so in place of an instruction-tuned one.
    """
    repository = repository_of(model, catalog)
    base = _base_of(repository, catalog)
    is_named = not isinstance(model, str) or "/" in model or is_tuned(model)
    if base and not is_named and (not is_finetuning or is_tuned(repository)):
        return TrainingCheckpoint(base)
    return TrainingCheckpoint(repository, base)


def is_tuned(repository: str) -> bool:
    """Whether a repository's name says that its weights were tuned to follow instructions.

    >>> is_tuned("google/gemma-3-1b-it"), is_tuned("google/gemma-3-1b-pt")
    (True, False)
    """
    return not TUNED_WORDS.isdisjoint(_words(repository))


def _base_of(repository: str, catalog: Catalog) -> str:
    """Return the base checkpoint among the same maker's repositories of the same name; empty if it is this one, or none is."""
    maker, _, _ = repository.partition("/")
    row = next((row for row in catalog.models if repository in row.aliases), None)
    aliases = [one for one in row.aliases if one.startswith(f"{maker}/")] if row else []
    siblings = [one for one in aliases if _stem(one) == _stem(repository) and not is_tuned(one)]
    best = min(siblings, key=_preference, default=repository)
    return best if best != repository else ""


def _preference(repository: str) -> int:
    words = _words(repository)
    return next((place for place, word in enumerate(BASE_WORDS) if word in words), len(BASE_WORDS))


def _words(repository: str) -> list[str]:
    return re.split(r"[-_]", repository.rpartition("/")[2].lower())


def _stem(repository: str) -> list[str]:
    return [word for word in _words(repository) if word not in TUNED_WORDS and word not in BASE_WORDS]
