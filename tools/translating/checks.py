"""Automatic checks of translations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from translating.catalog import Entry, Forms, digest

PLURAL_FORMS = 1  # Korean, Vietnamese and Chinese have no plural forms.
LANGUAGE_SETTINGS = ("list.separator", "list.clauses", "number.marks")  # Each language has its own, with blanks and marks.
_HOLE = re.compile(r"\{[a-z_0-9]*(?:![rsa])?(?::[^{}]*)?\}")
_COMMAND = re.compile(r"^ +(?:\$ )?(?:whichgpu|curl|pip) .*$", re.MULTILINE)
# Text that must not be translated: code in backquotes, flags, variables, files, URLs.
_TYPED = re.compile(
    r"`[^`\n]+`|(?<![\w-])--[a-z][a-z-]*[a-z]|\b[A-Z]+_[A-Z_]+\b|\bhttps?://[^\s)\"]+|\b[\w-]+\.(?:json|toml|csv|md)\b", re.ASCII
)
WIDE = ("：", "，", "。", "；")
KINDS = ("missing", "stale", "superfluous", "holes", "forms", "lines", "typed", "blanks")


class Problem(msgspec.Struct, frozen=True):
    """A problem (one of KINDS) of a sentence, with details."""

    kind: str
    id: str
    detail: str = ""


def problems(entries: Mapping[str, Entry], source: Mapping[str, Forms]) -> list[Problem]:
    """All problems of a language."""
    all_problems = [Problem("missing", id) for id, forms in source.items() if id not in entries and any(forms)]
    all_problems += [Problem("superfluous", id) for id in entries if id not in source]
    for id, entry in entries.items():
        if id in source:
            all_problems += of_entry(id, entry, source[id])
    return all_problems


def of_entry(id: str, entry: Entry, forms: Sequence[str]) -> Iterator[Problem]:
    """Problems of one sentence; `forms` are the English ones, the last of which has all placeholders."""
    if entry.digest != digest(forms):
        yield Problem("stale", id)
    if len(entry.forms) != PLURAL_FORMS:
        yield Problem("forms", id, f"{len(entry.forms)} for {PLURAL_FORMS}")
        return
    text, model = entry.forms[0], forms[-1]
    yield from _of_text(id, text, model)


def _of_text(id: str, text: str, model: str) -> Iterator[Problem]:
    holes, wanted = set(_HOLE.findall(text)), set(_HOLE.findall(model))
    if holes != wanted:
        yield Problem("holes", id, _differing(holes, wanted))
    if text.count("\n") != model.count("\n"):
        yield Problem("lines", id, f"{text.count(chr(10)) + 1} for {model.count(chr(10)) + 1}")
    commands, ours = Counter(_COMMAND.findall(text)), Counter(_COMMAND.findall(model))
    if commands != ours:
        yield Problem("typed", id, _differing(set(commands), set(ours)))
    typed, expected_code = set(_TYPED.findall(text)), set(_TYPED.findall(model))
    if typed != expected_code:
        yield Problem("typed", id, _differing(typed, expected_code))
    if id not in LANGUAGE_SETTINGS and not _alike(_edges(text), _edges(model), text.endswith(WIDE)):
        yield Problem("blanks", id, f"{_edges(text)} for {_edges(model)}")


def _edges(text: str) -> tuple[str, str]:
    """Blanks before and after."""
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


def _alike(edges: tuple[str, str], expected: tuple[str, str], is_wide: bool) -> bool:
    """Whether blanks at the edges agree; a full-width mark at the end includes its blank."""
    return edges == expected or (is_wide and edges == (expected[0], "") and expected[1] == " ")


def _differing(have: set[str], want: set[str]) -> str:
    lacks, more = sorted(want - have), sorted(have - want)
    return "; ".join(part for part in (f"lacks {lacks}" if lacks else "", f"has {more}" if more else "") if part)
