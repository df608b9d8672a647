"""Speculative decoding as the options of a serve line set it: the inverse of the templates in an engine's record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from whichgpu.catalog.engines.record import ServeCommand
from whichgpu.workload.config_files.model_names import gguf_parts
from whichgpu.workload.decoding.speculative import MAX_TOKENS

METHOD_OPTIONS = (".method", "-algorithm", "--spec-type")  # How the option that names the method ends.
# Methods that engines have under several names: EAGLE heads of any kind, and n-grams found on the GPU.
SYNONYMS = {"eagle": "eagle3", "EAGLE": "EAGLE3", "ngram_gpu": "ngram"}
MODEL_MTP = re.compile(r"\w+_mtp")  # vLLM has a name for the MTP layers of each family of models.


def flattened(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with each JSON object as dotted options, as vLLM reads both.

    >>> flattened({"-x": '{"method": "mtp", "n": 2}'})
    {'-x.method': 'mtp', '-x.n': '2'}
    """
    flat: dict[str, str] = {}
    for name, value in options.items():
        fields = _object(value)
        flat |= {name: value} if fields is None else {f"{name}.{key}": str(item) for key, item in fields.items()}
    return flat


def _object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def speculative_of(serve: ServeCommand, text: Callable[[str], str | None], leave: Callable[[str], None]) -> dict[str, Any]:
    """Return the request field of speculative decoding.

    `text` returns the value of an option and counts it as read; `leave` counts an option as not read.
    """
    templates = {method: _pairs(template) for method, template in serve.speculative.items()}
    choice = next((option for option in templates.get("draft", {}) if option.endswith(METHOD_OPTIONS)), None)
    if choice is None:
        return {}
    draft = next((value for option, name in templates["draft"].items() if name == "{draft}" and (value := text(option))), None)
    method = _method({name: pairs[choice] for name, pairs in templates.items()}, text(choice), draft)
    if method is None:
        leave(choice)
        return {}
    values = {name: value for option, name in templates[method].items() if (value := text(option))}
    tokens = _whole(values.get("{tokens}")) or _whole(values.get("{verified}")) - 1
    fields: dict[str, Any] = {"method": method}
    if method == "draft":
        fields["draft"] = gguf_parts(str(draft))[0] if str(draft).endswith(".gguf") else draft
    return {"speculative": fields | ({"tokens": tokens} if 1 <= tokens <= MAX_TOKENS else {})}


def _method(names: Mapping[str, str], value: str | None, draft: str | None) -> str | None:
    """Return the method that an engine's name for it (`names`, by method) and a draft model mean; None if none does."""
    if value is None or value == names["draft"]:
        return "draft" if draft else None
    value = "mtp" if MODEL_MTP.fullmatch(value) else SYNONYMS.get(value, value)
    method = next((method for method, name in names.items() if name == value), None)
    return "mtp" if method == "eagle" and draft is None else method  # Heads without a checkpoint are the model's own.


def _pairs(template: str) -> dict[str, str]:
    """Return a template's options with their values or placeholders.

    >>> _pairs("--spec-type draft-mtp --n={tokens}")
    {'--spec-type': 'draft-mtp', '--n': '{tokens}'}
    """
    words = re.sub(r"(--?[\w.-]+) (?!-)", r"\1=", template).split()
    return dict(word.partition("=")[::2] for word in words)


def _whole(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,4}", text) else 0
