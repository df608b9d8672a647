"""The endpoints, from the OpenAPI document the server itself gives out."""

from __future__ import annotations

import json
from typing import Any

from reference.markdown import anchor, code, heading, table, text
from whichgpu.base.messages import english
from whichgpu.surface.web.openapi import document


def page() -> str:
    """The page."""
    told = document(english())
    parts = [
        "# REST endpoints\n\nMade from the document at `/api/v1/openapi.json`. How to ask, errors, jobs and safety: "
        "[REST, and the server behind it](../rest.md). Every question may also be sent as a JSON object by POST.\n",
    ]
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            if method == "post" and "get" in methods:  # the same question as a body
                continue
            parts.append(_operation(path, method, operation, methods.get("post", {})))
    return "".join(parts)


def _operation(path: str, method: str, told: dict[str, Any], body: dict[str, Any]) -> str:
    parts = [heading(2, code(f"{method.upper()} {path}"), anchor(method, path)), text(told["summary"]) + "\n\n"]
    if parameters := told.get("parameters"):
        rows = ((code(one["name"]), text(_kind(one["schema"])), text(one.get("description", ""))) for one in parameters)
        parts.append(table(("parameter", "type", "meaning"), rows))
    example = (
        (told if method == "post" else body).get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    )
    if example:
        parts.append(f"\n```json\n{json.dumps(example, ensure_ascii=False)}\n```\n")
    return "".join(parts)


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return _kind(schema["anyOf"][0])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", ""))
