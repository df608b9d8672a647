"""The pages, in the order of the navigation; the module of each name declares it with `@view`. The first is also "/"."""

from __future__ import annotations

PAGES = ("recommend", "fit", "gpus", "prices", "plan", "accuracy", "sources")
