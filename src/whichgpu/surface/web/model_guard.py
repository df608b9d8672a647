"""Models that a web client may name: built-in ones only. No file is opened, no code run and nothing fetched for a client."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.models import SUFFIXES, TRACED, built_in, unknown_model

if TYPE_CHECKING:
    from whichgpu.catalog.store import Catalog

HUB = "hf:"
PLAN_FILE = ".toml"
INLINE_MODELS = ("mlp:", "{")  # Beginnings of models without a lookup: an MLP by its sizes, and the content of a config.json.
# Text that may be a path: separators, home, `.` and `..`, drive letters, file URLs.
_PATH = re.compile(r"[/\\~\0]|^\.|^[a-z]:|^file:", re.IGNORECASE)
_allowed: set[str] = set()  # Kinds of models (`hf`) that the owner of the server permits in addition.


def allow_models(names: Iterable[str]) -> None:
    """Let web clients name other models than built-in ones: `hf` permits those of Hugging Face."""
    _allowed.update(names)


def permitted_model(name: str, catalog: Catalog) -> str:
    """Return the id of the built-in model a client names, or the text of a model that needs no lookup.

    Path-like text is refused before any lookup: matching ignores punctuation, so `~/gpt2` would match `gpt2`. The id is returned
    instead of the client's text, so that what was checked is what is used.
    """
    text = name.strip()
    if text.lower().endswith(PLAN_FILE):  # `plan` would open the file.
        raise _refused(text, catalog)
    if text.startswith(INLINE_MODELS) or (text.startswith(HUB) and "hf" in _allowed):
        return text
    if text.startswith((HUB, *TRACED)) or _PATH.search(text) or text.lower().endswith(SUFFIXES):
        raise _refused(text, catalog)
    model = built_in(text, catalog) if text else None
    if model is None:
        raise unknown_model(text, catalog) if ":" not in text else _refused(text, catalog)
    return model.id


def _refused(text: str, catalog: Catalog) -> UsageError:
    """Return the error for a model that is not allowed, with its built-in name if there is one."""
    ids = tuple(model.id for model in catalog.models if text in model.names)
    hint = msg("hint.nearest", choices=ids) if ids else msg("hint.model-not-allowed")
    return UsageError("model-not-allowed", msg("error.model-not-allowed", name=text[:80]), hint, ids)
