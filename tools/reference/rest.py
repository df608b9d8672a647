"""The endpoints, from the OpenAPI document the server itself gives out."""

from __future__ import annotations

import json
from typing import Any

from reference.commands import arguments
from reference.markdown import anchor, code, heading, table, text
from reference.tongue import Tongue
from whichgpu.surface.web.rest.endpoints import PREFIX
from whichgpu.surface.web.rest.openapi import document


def page(tongue: Tongue) -> str:
    """The page."""
    told = document(tongue.language)
    about = (
        "Made from the document at `/api/v1/openapi.json`. How to ask, errors, jobs and safety: "
        "[REST, and the server behind it]({up}rest.md). Every question may also be sent as a JSON object by POST."
    )
    parts = [f"# {tongue.say('REST endpoints')}\n\n", tongue.say(about, up=tongue.up) + "\n"]
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            if method == "post" and "get" in methods:  # the same question as a body
                continue
            parts.append(_operation(path, method, operation, methods.get("post", {}), tongue))
    return "".join(parts)


def _operation(path: str, method: str, told: dict[str, Any], body: dict[str, Any], tongue: Tongue) -> str:
    parts = [heading(2, code(f"{method.upper()} {path}"), anchor(method, path)), text(told["summary"]) + "\n\n"]
    if parameters := told.get("parameters"):
        rows = ((code(one["name"]), text(_kind(one["schema"], tongue)), text(_meaning(path, one, tongue))) for one in parameters)
        parts.append(table((tongue.say("parameter"), tongue.say("type"), tongue.say("meaning")), rows))
    example = (
        (told if method == "post" else body).get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    )
    if example:
        parts.append(f"\n```json\n{json.dumps(example, ensure_ascii=False)}\n```\n")
    return "".join(parts)


def _meaning(path: str, parameter: dict[str, Any], tongue: Tongue) -> str:
    """What a parameter means: the flag's help, or the argument's words, several of which go by the name of one."""
    command, name = path.removeprefix(f"{PREFIX}/").replace("/", " "), str(parameter["name"])
    said = arguments().get((command, name)) or arguments().get((command, f"{name}s"))
    return tongue.say(said) if said else str(parameter.get("description", "")) or tongue.say(arguments()["", name])


def _kind(schema: dict[str, Any], tongue: Tongue) -> str:
    if "anyOf" in schema:
        return _kind(schema["anyOf"][0], tongue)
    if schema.get("type") == "array":
        return tongue.say("list of {type}", type=_kind(schema["items"], tongue))
    return str(schema.get("type", ""))
