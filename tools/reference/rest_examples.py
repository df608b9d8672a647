"""Write a shortened reply of every REST endpoint to its example for OpenAPI (`python -m reference.rest_examples`)."""

from __future__ import annotations

import json
from typing import Any

from whichgpu.base.messages import english
from whichgpu.surface.web.rest.endpoints import ENDPOINTS
from whichgpu.surface.web.rest.openapi import REPLIES
from whichgpu.surface.web.worker_answers import ANSWERS

MAX_ITEMS, MAX_ENTRIES = 1, 4  # Items of a list, and entries of a mapping from names to records, that are kept.


def shortened(value: Any) -> Any:
    """The first item of each list; of a mapping whose values are all lists or mappings, the first few entries."""
    if isinstance(value, list):
        return [shortened(item) for item in value[:MAX_ITEMS]]
    if isinstance(value, dict):
        is_table = len(value) > MAX_ENTRIES and all(isinstance(item, list | dict) for item in value.values())
        items = list(value.items())[: MAX_ENTRIES if is_table else None]
        return {name: shortened(item) for name, item in items}
    return value


def main() -> None:
    """Write the file."""
    replies = {}
    for endpoint in ENDPOINTS:
        question = {"endpoint": endpoint.path, "body": json.dumps(endpoint.example).encode()}
        replies[endpoint.path] = shortened(json.loads(ANSWERS["rest"](question, english(), None).body))
    del replies["catalog/status"]["live"]  # It describes the price store of the machine that makes the page.
    REPLIES.write_text(json.dumps(replies, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
