"""The pages: the start page, those of the navigation in order, and those of one subject; `@view` declares each in its module."""

from __future__ import annotations

START = "start"  # The page at "/".
NAVIGATION = ("recommend", "fit", "compare", "gpus", "models", "prices", "buy", "plan", "accuracy", "sources")
SUBJECTS = ("gpu", "model", "instance")  # Pages of one subject, whose name is in the path: `/gpu/t4`.
PAGES = (START, *NAVIGATION, *SUBJECTS)
