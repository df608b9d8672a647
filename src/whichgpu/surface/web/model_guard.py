"""Models that a web client may name: built-in ones. No file is opened, no code run and nothing fetched for a client."""

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
INLINE_MODELS = ("mlp:", "{")  # a perceptron by its sizes, the content of a config.json
_PATH = re.compile(r"[/\\~\0]|^\.|^[a-z]:|^file:", re.IGNORECASE)  # separators, home, `.` and `..`, drive letters, file URLs
_allowed: set[str] = set()  # permissions of this process


def allow_models(names: Iterable[str]) -> None:
    """Add permissions given by the owner of the server."""
    _allowed.update(names)


def permitted_model(name: str, catalog: Catalog) -> str:
    """Return the id of the built-in model a client names, or the text of a model that needs no lookup.

    Path-like text is refused before any lookup: matching ignores punctuation, so `~/gpt2` would match `gpt2`. The id is returned
    instead of the client's text, so that what was checked is what is used.
    """
    text = name.strip()
    if text.lower().endswith(PLAN_FILE):  # `plan` would open it.
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
    """Error for a model that is not allowed, with the built-in name where there is one."""
    ids = tuple(model.id for model in catalog.models if text in model.names)
    hint = msg("hint.nearest", choices=ids) if ids else msg("hint.model-not-allowed")
    return UsageError("model-not-allowed", msg("error.model-not-allowed", name=text[:80]), hint, ids)
