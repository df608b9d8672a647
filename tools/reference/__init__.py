"""The reference pages of the documentation, made from the code and its tables whenever the site is built, in every language.

What has no words yet is a gap; `tests/docs/test_reference.py` fails on any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from reference.tongue import Tongue, tongues
from whichgpu.surface.web.reader_language import OWN_NAMES

PAGES = ("commands", "fields", "errors", "settings", "gpus", "engines", "formulas", "rest")


def pages(tongue: Tongue | None = None) -> dict[str, str]:
    """The Markdown of every page of one language (English if none is said) by its path below docs/."""
    told = tongue or Tongue()
    makers: dict[str, Callable[[Tongue], str]] = {name: import_module(f"reference.{name}").page for name in PAGES}
    return {f"{told.folder}/{name}.md": _with_languages(make(told), name, told) for name, make in makers.items()}


def all_pages() -> dict[str, str]:
    """The same of all languages."""
    return {path: content for tongue in tongues() for path, content in pages(tongue).items()}


@cache
def sentences() -> tuple[str, ...]:
    """What the pages say in words of their own, in English: what a language needs translations of."""
    tongue = Tongue()
    pages(tongue)
    return tuple(tongue.asked)


def _with_languages(content: str, name: str, tongue: Tongue) -> str:
    """A page with a line of links to the same page in other languages below its title."""
    names = (
        OWN_NAMES[one.code] if one.code == tongue.code else f"[{OWN_NAMES[one.code]}]({tongue.up}{one.folder}/{name}.md)"
        for one in tongues()
    )
    title, _, rest = content.partition("\n\n")
    return f"{title}\n\n{' · '.join(names)}\n\n{rest}"
