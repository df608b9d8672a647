"""Names of request fields instead of command-line flags in texts for web clients, who set fields and never type flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from whichgpu.base.messages import Language
from whichgpu.surface.web.rest.endpoints import ENDPOINTS, fields, parameter_name
from whichgpu.workload.spelling import ALIASES

# A whole command line, which keeps its flags, or a flag. A command ends before punctuation and closing quotes.
_FLAG = re.compile(r"(?P<command>\bwhichgpu [^,;()]*)|--(?:no-)?(?P<flag>[a-z][a-z0-9-]*[a-z0-9])")


def with_field_names(text: str) -> str:
    """Return a text with the names of request fields in place of flags; a whole `whichgpu` command keeps its flags.

    >>> with_field_names("give --seq-in, as whichgpu fit gpt2 --in 5 does, or --json")
    'give seq_in, as whichgpu fit gpt2 --in 5 does, or --json'
    """
    return _replaced(text, lambda name: name)


def with_labels(text: str, language: Language) -> str:
    """Return a text with the labels of a page's fields in place of flags; flags of fields without a label keep their name."""

    def label(name: str) -> str:
        id = f"web.field-{name.replace('_', '-')}"
        return language.text(id) if id in language else name

    return _replaced(text, label)


def error_texts(body: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return the body of an error with its message and hint changed, and those of its fields."""
    texts = {name: change(body[name]) for name in ("message", "hint") if body[name]}
    fields = {name: error_texts(one, change) for name, one in body.get("fields", {}).items()}
    return {**body, **texts, **({"fields": fields} if fields else {})}


def _replaced(text: str, name_of: Callable[[str], str]) -> str:
    if "--" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        name = _names_by_flag().get(match["flag"] or "")
        return name_of(name) if name else match[0]

    return _FLAG.sub(replacement, text)


@cache
def _names_by_flag() -> Mapping[str, str]:
    """Return the parameter of each flag of a command that is a REST endpoint, by the flag without its dashes."""
    all_fields = [field for endpoint in ENDPOINTS for field in fields(endpoint).values()]
    names = {alias.replace("_", "-"): name for alias, name in ALIASES.items()}
    return names | {flag.removeprefix("--"): parameter_name(field) for field in all_fields for flag in field.flags}
