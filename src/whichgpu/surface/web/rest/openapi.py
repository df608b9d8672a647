"""The OpenAPI document, derived from the fields of commands and their help."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Numbers, Pairs, Share, Span
from whichgpu.base.bundled_data import read_data
from whichgpu.base.kinds import ShareValue, Whole
from whichgpu.base.messages import Language, languages
from whichgpu.base.version import __version__
from whichgpu.surface.web.rest.answer_schemas import AnswerSchemas
from whichgpu.surface.web.rest.endpoints import ENDPOINTS, PREFIX, Endpoint, command_of, fields
from whichgpu.surface.web.rest.error_catalogue import error_kinds, example_errors
from whichgpu.surface.web.rest.parameters import MAX_CHARACTERS

JSON = "application/json"
EXAMPLES_BY_NAME: dict[str, tuple[str, ...]] = {
    "model": ("llama-3.1-8b", "resnet50", "bert-large", "mlp:784x2048x10"),
    "gpu": ("H100 SXM", "A100-SXM-80GB", "T4", "RTX 4090"),
    "provider": ("aws", "gcp", "azure"),
    "parallel": ("tp=2", "dp=8,zero=3"),
    "currency": ("USD", "EUR", "KRW"),
    "gpus": ("1", "1..8"),
    "lang": languages(),
}
EXAMPLES_BY_METAVAR: dict[str, tuple[str, ...]] = {
    "TIME": ("50ms", "2s", "24h"),
    "SIZE": ("16GB", "80GiB"),
    "RATE": ("1TB/s",),
    "N/s": ("0.5/s", "5/s"),
    "DATE": ("2024-06-01",),
    "MONEY": ("2usd/h", "500usd"),
    "N.N[+]": ("8.0+",),
    "N": ("1", "100"),
    "FEATURES": ("bf16", "nvlink"),
    "CITY": ("Seoul",),
}
REPLIES = Path(__file__).with_name("reply_examples.json")  # Written by tools: `python -m reference.rest_examples`.
ERROR_STATUSES = (400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 429, 503)


def document(language: Language) -> dict[str, Any]:
    """Return the OpenAPI document of the REST API, with descriptions in a language."""
    answers = AnswerSchemas()
    paths: dict[str, Any] = {f"{PREFIX}/{one.path}": _path(one, language, answers) for one in ENDPOINTS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "whichgpu", "version": __version__, "description": language.text("web.about-rest")},
        "servers": [{"url": "/"}],
        "paths": paths | _jobs(language),
        "components": {
            "schemas": answers.components | _schemas(),
            "responses": _errors(language),
            "examples": {name.replace("/", "-"): {"value": reply} for name, reply in _reply_examples().items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path(endpoint: Endpoint, language: Language, answers: AnswerSchemas) -> dict[str, Any]:
    text, fields_by_name = language.text, fields(endpoint)
    word = endpoint.command.rpartition(" ")[2]
    about = {
        "summary": text(f"command.{word}.short"),
        "description": text(f"command.{word}.help"),
        "tags": [endpoint.command.partition(" ")[0]],
    }
    id = endpoint.path.replace("/", "-")
    answer = answers.of(command_of(endpoint))
    query = [_parameter(name, field, endpoint, language) for name, field in fields_by_name.items()]
    get = about | {"operationId": id, "parameters": query, "responses": _responses(language, answer=answer, example=id)}
    content = {JSON: {"schema": body_schema(endpoint, language), "example": endpoint.example}}
    post = about | {
        "operationId": f"{id}-by-body",
        "requestBody": {"required": True, "content": content},
        "responses": _responses(language, answer=answer, example=id),
    }
    return {"get": get, "post": post}


def body_schema(endpoint: Endpoint, language: Language) -> dict[str, Any]:
    """Return the JSON schema of an endpoint's request as an object, with descriptions in a language."""
    by_name = fields(endpoint)
    names = {name: _schema(field, body=True) | {"description": _help(field, language)} for name, field in by_name.items()}
    body: dict[str, Any] = {"type": "object", "properties": names, "additionalProperties": False}
    if required := [name for name, field in by_name.items() if field.required]:
        body["required"] = required
    return body


def _parameter(name: str, field: Field, endpoint: Endpoint, language: Language) -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": "query", "schema": _schema(field), "description": _help(field, language)}
    if field.required:
        parameter["required"] = True
    if field.is_list:
        parameter |= {"style": "form", "explode": True}
    if name in endpoint.example:
        parameter["example"] = endpoint.example[name]
    return parameter


def _help(field: Field, language: Language) -> str:
    return language.text(field.help) if field.help in language else field.metavar.strip("[]")


def _schema(field: Field, body: bool = False) -> dict[str, Any]:
    one = _one(field)
    if body and (isinstance(field.kind, Pairs) or getattr(field.kind, "takes_mapping", False)):
        one = {"anyOf": [*one.get("anyOf", [one]), {"type": "object"}]}
    if body and field.is_list:
        return {"anyOf": [one, {"type": "array", "items": one}]}
    if body and isinstance(field.kind, Span):
        pair = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
        return {"anyOf": [one, {"type": "integer"}, pair]}
    return {"type": "array", "items": one} if field.is_list else one


def _one(field: Field) -> dict[str, Any]:
    """Return the JSON schema of a single value of a field, with the bounds of a number or example values of a text."""
    kind = field.kind
    if field.is_switch:
        return {"type": "boolean"}
    if isinstance(kind, Whole) and field.metavar == "N":
        return {"type": "integer", "minimum": kind.low, "maximum": kind.high}
    if isinstance(kind, Share | ShareValue):
        return {"type": "number"}
    words = field.choices or EXAMPLES_BY_NAME.get(field.name) or EXAMPLES_BY_METAVAR.get(field.metavar, ())
    if not words or isinstance(kind, Numbers):
        return {"type": "string"}
    return {"anyOf": [{"type": "string", "enum": list(words)}, {"type": "string", "maxLength": MAX_CHARACTERS}]}


def _responses(
    language: Language,
    ok: str = "200",
    schema: str = "Answer",
    answer: dict[str, Any] | None = None,
    example: str | None = None,
) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": answer or _ref(schema)}}
    if example is not None:
        content[JSON]["examples"] = {"reply": {"$ref": f"#/components/examples/{example}"}}
        content["text/csv"] = {"schema": {"type": "string"}}
    unchanged = {"304": {"description": language.text("web.status-304")}} if ok == "200" else {}
    errors = {str(status): {"$ref": f"#/components/responses/{status}"} for status in ERROR_STATUSES}
    return {ok: {"description": language.text("web.status-200"), "content": content}, **unchanged, **errors}


def _errors(language: Language) -> dict[str, Any]:
    """Return the responses of all errors by status, with an example of every kind: the error catalogue."""
    examples = example_errors(language)
    return {
        str(status): {
            "description": language.text(f"web.status-{status}"),
            "content": {JSON: {"schema": _ref("Refusal"), "examples": examples.get(str(status), {})}},
        }
        for status in ERROR_STATUSES
    }


@cache
def _reply_examples() -> dict[str, Any]:
    """Return a shortened reply of every endpoint to its example, by path."""
    return dict(json.loads(read_data(REPLIES)))


def _jobs(language: Language) -> dict[str, Any]:
    text = language.text
    id = {"name": "id", "in": "path", "required": True, "description": text("web.parameter-id"), "schema": {"type": "string"}}
    header = {
        "name": "X-Whichgpu", "in": "header", "required": True, "description": text("web.parameter-header"),
        "schema": {"type": "string"}, "example": "1",
    }  # fmt: skip
    example = {"command": "estimate", "task": "serve", "model": "llama-3.1-8b", "gpu": "H100 SXM", "rate": "5/s"}
    body = {"type": "object", "properties": {"command": {"type": "string"}, "trace": {"type": "string"}}, "required": ["command"]}
    events = {"description": text("web.events"), "content": {"text/event-stream": {"schema": {"type": "object"}}}}
    job, problem = _responses(language, schema="Job"), _responses(language)
    del problem["200"], problem["304"]

    def operation(id: str, parameters: list[Any], responses: Any, content: dict[str, Any] | None = None) -> dict[str, Any]:
        about = {"summary": text(f"web.{id}"), "operationId": id, "tags": ["jobs"], "parameters": parameters}
        received = {"requestBody": {"required": True, "content": content}} if content else {}
        return about | received | {"responses": responses}

    new_job = {JSON: {"schema": body, "example": example}}
    upload = {"text/csv": {"schema": {"type": "string"}}}
    return {
        f"{PREFIX}/jobs": {"post": operation("job-new", [header], _responses(language, "202", "Job"), new_job)},
        f"{PREFIX}/jobs/{{id}}": {
            "get": operation("job-state", [id], job),
            "delete": operation("job-cancel", [id, header], job),
        },
        f"{PREFIX}/jobs/{{id}}/events": {"get": operation("job-events", [id], {"200": events} | problem)},
        f"{PREFIX}/jobs/{{id}}/result": {"get": operation("job-result", [id], _responses(language))},
        f"{PREFIX}/uploads": {"post": operation("upload", [header], _responses(language, "201", "Upload"), upload)},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> dict[str, Any]:
    words: dict[str, Any] = {"type": "string"}
    choices = {"type": "array", "items": words}
    kind = {"anyOf": [{"type": "string", "enum": list(error_kinds())}, words]}  # A later release may have more kinds.
    values = {"kind": kind, "message": words, "hint": {"type": ["string", "null"]}, "choices": choices}
    one = {"type": "object", "required": list(values), "properties": values}
    error = {**one, "properties": {**values, "fields": {"type": "object", "additionalProperties": one}}}
    job = "FkGroKb0R3LtPkOY"
    url = f"{PREFIX}/jobs/{job}"
    number = {"type": "number"}
    figure = {"value": number, "low": number, "high": number, "unit": words, "basis": words, "sources": choices}
    return {
        "Answer": {"type": "object"},
        "Refusal": {
            "type": "object",
            "required": ["ok", "error"],
            "properties": {
                "ok": {"const": False}, "error": error,
                "rejected": {"type": "object", "additionalProperties": {"type": "integer"}},
                "relaxation": {"type": ["object", "null"]},
            },
            "example": {
                "ok": False,
                "error": {"kind": "unknown-gpu", "message": "there is no GPU named 'H101'", "hint": "did you mean: H100?",
                          "choices": ["H100"]},
            },
        },
        "Figure": {"type": "object", "properties": figure},
        "Money": {"type": "object", "properties": {"amount": words, "currency": words}},
        "Job": {
            "type": "object",
            "required": ["id", "state", "done", "url"],
            "properties": {"id": words, "state": words, "done": number, "url": words, "events": words, "result": words},
            "example": {"id": job, "state": "running", "done": 0.5, "url": url, "events": f"{url}/events"},
        },
        "Upload": {
            "type": "object", "required": ["id", "bytes"], "properties": {"id": words, "bytes": {"type": "integer"}},
            "example": {"id": "Zk3vQ0aT1mX8bLrd", "bytes": 51234},
        },
    }  # fmt: skip
