"""The pages. Each module declares one with `@view`; PAGES lists them in the order of the navigation."""

from __future__ import annotations

# page -> module of this package that declares it; the first is also "/"
PAGES = {
    "recommend": "recommend",
    "fit": "fit",
    "gpus": "gpus",
    "prices": "prices",
    "plan": "plan",
    "accuracy": "accuracy",
    "sources": "sources",
}
