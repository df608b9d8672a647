"""The pages: the start page, those of the navigation in order, and those of one subject; `@view` declares each in its module."""

from __future__ import annotations

START = "start"  # The page at "/".
NAVIGATION = ("recommend", "fit", "gpus", "prices", "plan", "accuracy", "sources")
PAGES = (START, *NAVIGATION)
