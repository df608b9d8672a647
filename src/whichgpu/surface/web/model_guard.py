"""Models that a web client may name: built-in ones only. No file is opened, no code run and nothing fetched for a client."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.workload.decoding.speculative import Speculative, SpeculativeValue
from whichgpu.workload.field_errors import invalid_field
from whichgpu.workload.kinds import ModelValue
from whichgpu.workload.models import SUFFIXES, TRACED, built_in, family_member, parse_mlp, unknown_model

if TYPE_CHECKING:
    from whichgpu.catalog.store import Catalog

HUB = "hf:"
PLAN_FILE = ".toml"
MLP = "mlp:"
# Text that may be a path: separators (also as `%2f` and as Unicode characters that look like them), home, `.` and `..`, drive
# letters, file URLs.
_PATH = re.compile(r"[/\\~\0%⁄∕∖⟋⟍⧵⧸⧹⫻⫽╱╲]|^\.|^[a-z]:|file:", re.IGNORECASE)
_allowed: set[str] = set()  # Kinds of models (`hf`) that the owner of the server permits in addition.


def allow_models(names: Iterable[str]) -> None:
    """Let web clients name other models than built-in ones: `hf` permits those of Hugging Face."""
    _allowed.update(names)


def permitted_model(name: str, catalog: Catalog) -> str:
    """Return the id of the built-in model a client names, by family or size too, or the text of a model that needs no lookup.

    Path-like text is refused before any lookup: matching ignores punctuation, so `~/gpt2` would match `gpt2`. The id is returned
    instead of the client's text, so that what was checked is what is used.
    """
    text = name.strip()
    if text.lower().endswith(PLAN_FILE):  # `plan` would open the file.
        raise _refused(text, catalog)
    if text.startswith(MLP):
        return parse_mlp(text).name
    if text.startswith("{"):
        return _config_text(text)
    if text.startswith(HUB) and "hf" in _allowed:
        return text
    if text.lower().startswith((HUB, *TRACED)) or is_path_like(text) or text.lower().endswith(SUFFIXES):
        raise _refused(text, catalog)
    model = built_in(text, catalog) or family_member(text, catalog) if text.isascii() and text else None
    if model is None:
        raise unknown_model(text, catalog) if ":" not in text else _refused(text, catalog)
    return model.id


def permitted_draft(value: Any, catalog: Catalog) -> Any:
    """Return a value of the field `speculative` with the id of its permitted draft model; an unreadable one is unchanged."""
    try:
        stated = value if isinstance(value, Speculative) else SpeculativeValue().read(value)
    except InvalidValue:
        return value
    if not stated.draft:
        return value
    permitted = replace(stated, draft=permitted_model(stated.draft, catalog))
    return permitted if isinstance(value, Speculative) else SpeculativeValue().write(permitted)


def _config_text(text: str) -> str:
    """Return the content of a config.json as it is; raise if it is not JSON."""
    try:
        ModelValue().read(text)
    except InvalidValue as invalid:
        raise invalid_field("model", text, invalid) from invalid
    return text


def is_path_like(text: str) -> bool:
    """Whether text may be a path, also one in full-width or look-alike characters.

    >>> [is_path_like(text) for text in ("~/gpt2", "gpt2／", "%2fgpt2", "C:gpt2", "gpt2", "llama3.1:8b")]
    [True, True, True, True, False, False]
    """
    return _PATH.search(unicodedata.normalize("NFKC", text)) is not None


def _refused(text: str, catalog: Catalog) -> UsageError:
    """Return the error for a model that is not allowed, with its built-in name if there is one."""
    ids = tuple(model.id for model in catalog.models if text in model.names)
    hint = msg("hint.nearest", choices=ids) if ids else msg("hint.model-not-allowed")
    return UsageError("model-not-allowed", msg("error.model-not-allowed", name=text[:80]), hint, ids)
