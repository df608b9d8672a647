"""The pages, in the order of the navigation; each module declares one with `@view`."""

from __future__ import annotations

# Module of this package that declares each page; the first page is also "/".
PAGES = {
    "recommend": "recommend",
    "fit": "fit",
    "gpus": "gpus",
    "prices": "prices",
    "plan": "plan",
    "accuracy": "accuracy",
    "sources": "sources",
}
