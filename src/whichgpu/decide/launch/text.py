"""Text of launch files: comments and YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def comments(lines: Sequence[str]) -> str:
    """Return lines as comments; a line break in a name must not end its comment."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def yaml(value: Mapping[str, Any], depth: int = 0) -> str:
    """Format nested mappings as YAML, with strings quoted and lists written as in JSON.

    >>> print(yaml({"name": "a", "resources": {"ports": 8000, "use_spot": True}}), end="")
    name: "a"
    resources:
      ports: 8000
      use_spot: true
    """
    text = ""
    for name, item in value.items():
        start = "  " * depth + f"{name}:"
        text += f"{start}\n{yaml(item, depth + 1)}" if isinstance(item, dict) else f"{start} {json.dumps(item)}\n"
    return text
