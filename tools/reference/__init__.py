"""Reference pages of the documentation, generated from the code and its tables whenever the site is built, in every language.

A field or flag without a description is a gap; `tests/docs/test_reference.py` fails on any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from reference.translator import Translator, translators
from whichgpu.surface.web.reader_language import OWN_NAMES

PAGES = ("commands", "fields", "errors", "settings", "gpus", "engines", "formulas", "rest")


def pages(translator: Translator | None = None) -> dict[str, str]:
    """Markdown of every page of one language (default English) by its path below docs/."""
    chosen = translator or Translator()
    makers: dict[str, Callable[[Translator], str]] = {name: import_module(f"reference.{name}").page for name in PAGES}
    return {f"{chosen.folder}/{name}.md": _with_languages(make(chosen), name, chosen) for name, make in makers.items()}


def all_pages() -> dict[str, str]:
    """Markdown of every page of all languages by its path below docs/."""
    return {path: content for translator in translators() for path, content in pages(translator).items()}


@cache
def sentences() -> tuple[str, ...]:
    """English sentences of the pages that are not in the program's catalog: those that need translations."""
    translator = Translator()
    pages(translator)
    return tuple(translator.used)


def _with_languages(content: str, name: str, translator: Translator) -> str:
    """A page with a line of links to the same page in other languages below its title."""
    names = (
        OWN_NAMES[one.code] if one.code == translator.code else f"[{OWN_NAMES[one.code]}]({translator.up}{one.folder}/{name}.md)"
        for one in translators()
    )
    title, _, rest = content.partition("\n\n")
    return f"{title}\n\n{' · '.join(names)}\n\n{rest}"
