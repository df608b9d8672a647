"""The endpoints, from the OpenAPI document of the server."""

from __future__ import annotations

import json
from typing import Any

from reference.commands import arguments
from reference.markdown import anchor, code, heading, table, text
from reference.translator import Translator
from whichgpu.surface.web.rest.endpoints import PREFIX
from whichgpu.surface.web.rest.openapi import document


def page(translator: Translator) -> str:
    """The page."""
    api = document(translator.language)
    about = (
        "Made from the document at `/api/v1/openapi.json`. How to ask, errors, jobs and safety: "
        "[REST, and the server behind it]({up}rest.md). Every question may also be sent as a JSON object by POST."
    )
    parts = [f"# {translator.say('REST endpoints')}\n\n", translator.say(about, up=translator.up) + "\n"]
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            if method == "post" and "get" in methods:  # the same request as a body
                continue
            parts.append(_operation(path, method, operation, methods.get("post", {}), translator))
    return "".join(parts)


def _operation(path: str, method: str, endpoint: dict[str, Any], body: dict[str, Any], translator: Translator) -> str:
    parts = [heading(2, code(f"{method.upper()} {path}"), anchor(method, path)), text(endpoint["summary"]) + "\n\n"]
    if parameters := endpoint.get("parameters"):
        rows = (
            (code(one["name"]), text(_kind(one["schema"], translator)), text(_meaning(path, one, translator)))
            for one in parameters
        )
        parts.append(table((translator.say("parameter"), translator.say("type"), translator.say("meaning")), rows))
    example = (
        (endpoint if method == "post" else body)
        .get("requestBody", {})
        .get("content", {})
        .get("application/json", {})
        .get("example")
    )
    if example:
        parts.append(f"\n```json\n{json.dumps(example, ensure_ascii=False)}\n```\n")
    return "".join(parts)


def _meaning(path: str, parameter: dict[str, Any], translator: Translator) -> str:
    """Description of a parameter: the help of its flag, or that of its argument, also by its plural name."""
    command, name = path.removeprefix(f"{PREFIX}/").replace("/", " "), str(parameter["name"])
    meaning = arguments().get((command, name)) or arguments().get((command, f"{name}s"))
    return translator.say(meaning) if meaning else str(parameter.get("description", "")) or translator.say(arguments()["", name])


def _kind(schema: dict[str, Any], translator: Translator) -> str:
    if "anyOf" in schema:
        return _kind(schema["anyOf"][0], translator)
    if schema.get("type") == "array":
        return translator.say("list of {type}", type=_kind(schema["items"], translator))
    return str(schema.get("type", ""))
