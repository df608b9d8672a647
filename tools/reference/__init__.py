"""The reference pages of the documentation, made from the code and its tables whenever the site is built.

What has no words yet is a gap; `tests/docs/test_reference.py` fails on any.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

PAGES = ("commands", "fields", "errors", "settings", "gpus", "formulas", "rest")


def pages() -> dict[str, str]:
    """The Markdown of every page by its path below docs/."""
    makers: dict[str, Callable[[], str]] = {name: import_module(f"reference.{name}").page for name in PAGES}
    return {f"reference/{name}.md": make() for name, make in makers.items()}
