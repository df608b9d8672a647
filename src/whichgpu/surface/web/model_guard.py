"""Which models a web client may name: built-in ones, by name. No file is opened, no code run and nothing fetched for a client."""

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
WRITTEN_OUT = ("mlp:", "{")  # a perceptron by its sizes, the content of a config.json: neither names anything on a disk
_PATH = re.compile(r"[/\\~\0]|^\.|^[a-z]:|^file:", re.IGNORECASE)  # separators, home, `.` and `..`, drive letters, file URLs
_allowed: set[str] = set()  # in this process, from its start


def allow(names: Iterable[str]) -> None:
    """Add permissions that the owner of the server gives."""
    _allowed.update(names)


def permitted(name: str, catalog: Catalog) -> str:
    """Return what to look a client's model up by: the id of a built-in one in this catalog, or the text if it needs no lookup.

    Path-like text is refused before any name is looked up: matching ignores punctuation, so `~/gpt2` would match `gpt2`. The id
    is handed on instead of the client's text, so that what was checked is what is used.
    """
    text = name.strip()
    if text.lower().endswith(PLAN_FILE):  # `plan` would open it, whatever it begins with
        raise _refused(text, catalog)
    if text.startswith(WRITTEN_OUT) or (text.startswith(HUB) and "hf" in _allowed):
        return text
    if text.startswith((HUB, *TRACED)) or _PATH.search(text) or text.lower().endswith(SUFFIXES):
        raise _refused(text, catalog)
    found = built_in(text, catalog) if text else None
    if found is None:
        raise unknown_model(text, catalog) if ":" not in text else _refused(text, catalog)
    return found.id


def _refused(text: str, catalog: Catalog) -> UsageError:
    """The refusal; where the text is a repository of a built-in model, with the name that works."""
    ids = tuple(model.id for model in catalog.models if text in model.names)
    hint = msg("hint.nearest", choices=ids) if ids else msg("hint.model-not-allowed")
    return UsageError("model-not-allowed", msg("error.model-not-allowed", name=text[:80]), hint, ids)
