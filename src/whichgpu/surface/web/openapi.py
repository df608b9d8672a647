"""The OpenAPI document, made from the commands: every parameter is a flag, every description its help."""

from __future__ import annotations

from typing import Any

from whichgpu.base.messages import Language, languages
from whichgpu.base.version import __version__
from whichgpu.surface.values import MAPPED, SPAN
from whichgpu.surface.web.endpoints import ENDPOINTS, PREFIX, Endpoint, Field, command, fields
from whichgpu.surface.web.spelled import LONGEST, MOST_ROWS
from whichgpu.workload.kinds import KINDS, Whole

JSON = "application/json"
PAGES = {"limit": 1, "offset": 0}
WORDS: dict[str, tuple[str, ...]] = {
    "model": ("llama-3.1-8b", "resnet50", "bert-large", "mlp:784x2048x10"),
    "gpu": ("H100 SXM", "A100-SXM-80GB", "T4", "RTX 4090"),
    "provider": ("aws", "gcp", "azure"),
    "parallel": ("tp=2", "dp=8,zero=3"),
    "currency": ("USD", "EUR", "KRW"),
    "gpus": ("1", "1..8"),
    "lang": languages(),
}
UNITS: dict[str, tuple[str, ...]] = {
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
REFUSALS = (400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 429, 503)


def document(language: Language) -> dict[str, Any]:
    """The whole schema."""
    paths: dict[str, Any] = {f"{PREFIX}/{one.path}": _path(one, language) for one in ENDPOINTS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "whichgpu", "version": __version__, "description": language.text("web.about-rest")},
        "servers": [{"url": "/"}],
        "paths": paths | _jobs(language),
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _path(endpoint: Endpoint, language: Language) -> dict[str, Any]:
    text, found = language.text, fields(endpoint)
    summary = text((command(endpoint).help or "").replace(".help", ".short"))
    about = {"summary": summary, "description": text(command(endpoint).help or ""), "tags": [endpoint.command[0]]}
    id = endpoint.path.replace("/", "-")
    query = [_parameter(field, endpoint, language) for field in found.values()]
    get = about | {"operationId": id, "parameters": query, "responses": _responses(language)}
    names = {field.name: _schema(field, body=True) | {"description": _help(field, language)} for field in found.values()}
    body = {"type": "object", "properties": names, "additionalProperties": False}
    if required := [field.name for field in found.values() if field.required]:
        body["required"] = required
    content = {JSON: {"schema": body, "example": endpoint.example}}
    post = about | {
        "operationId": f"{id}-by-body",
        "requestBody": {"required": True, "content": content},
        "responses": _responses(language),
    }
    return {"get": get, "post": post}


def _parameter(field: Field, endpoint: Endpoint, language: Language) -> dict[str, Any]:
    told: dict[str, Any] = {"name": field.name, "in": "query", "schema": _schema(field), "description": _help(field, language)}
    if field.required:
        told["required"] = True
    if field.many:
        told |= {"style": "form", "explode": True}
    if field.name in endpoint.example:
        told["example"] = endpoint.example[field.name]
    return told


def _help(field: Field, language: Language) -> str:
    return language.text(field.help) if field.help else field.metavar.strip("[]")


def _schema(field: Field, body: bool = False) -> dict[str, Any]:
    one = _one(field)
    if body and field.name in MAPPED:
        one = {"anyOf": [*one.get("anyOf", [one]), {"type": "object"}]}
    if body and field.many:
        return {"anyOf": [one, {"type": "array", "items": one}]}
    if body and field.metavar == SPAN:
        pair = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
        return {"anyOf": [one, {"type": "integer"}, pair]}
    return {"type": "array", "items": one} if field.many else one


def _one(field: Field) -> dict[str, Any]:
    """The schema of one value: its bounds where it is a number, and words that are surely understood where it is a text."""
    if field.name in PAGES:
        return {"type": "integer", "minimum": PAGES[field.name], "maximum": MOST_ROWS if field.name == "limit" else 10**9}
    kind = KINDS.get(field.name)
    if isinstance(kind, Whole) and field.metavar == "N":
        return {"type": "integer", "minimum": kind.low, "maximum": kind.high}
    words = field.choices or WORDS.get(field.name) or UNITS.get(field.metavar, ())
    if field.kind != "string" or not words:
        return {"type": field.kind}
    return {"anyOf": [{"type": "string", "enum": list(words)}, {"type": "string", "maxLength": LONGEST}]}


def _responses(language: Language, ok: str = "200", schema: str = "Answer") -> dict[str, Any]:
    reply = {"description": language.text("web.status-200"), "content": {JSON: {"schema": _ref(schema)}}}
    problem = {"content": {JSON: {"schema": _ref("Refusal")}}}
    unchanged = {"304": {"description": language.text("web.status-304")}} if ok == "200" else {}
    return {ok: reply, **unchanged} | {
        str(status): {"description": language.text(f"web.status-{status}"), **problem} for status in REFUSALS
    }


def _jobs(language: Language) -> dict[str, Any]:
    text = language.text
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    header = {"name": "X-Whichgpu", "in": "header", "required": True, "schema": {"type": "string"}, "example": "1"}
    example = {"command": "estimate", "task": "serve", "model": "llama-3.1-8b", "gpu": "H100 SXM", "rate": "5/s"}
    body = {"type": "object", "properties": {"command": {"type": "string"}, "trace": {"type": "string"}}, "required": ["command"]}
    events = {"description": text("web.events"), "content": {"text/event-stream": {"schema": {"type": "object"}}}}
    problem = _responses(language)
    del problem["200"], problem["304"]
    return {
        f"{PREFIX}/jobs": {
            "post": {
                "summary": text("web.job-new"), "operationId": "job-new", "tags": ["jobs"], "parameters": [header],
                "requestBody": {"required": True, "content": {JSON: {"schema": body, "example": example}}},
                "responses": _responses(language, "202", "Job"),
            },
        },
        f"{PREFIX}/jobs/{{id}}": {
            "get": {"summary": text("web.job-state"), "operationId": "job-state", "tags": ["jobs"], "parameters": [id],
                    "responses": _responses(language, schema="Job")},
            "delete": {"summary": text("web.job-cancel"), "operationId": "job-cancel", "tags": ["jobs"],
                       "parameters": [id, header], "responses": _responses(language, schema="Job")},
        },
        f"{PREFIX}/jobs/{{id}}/events": {
            "get": {"summary": text("web.job-events"), "operationId": "job-events", "tags": ["jobs"], "parameters": [id],
                    "responses": {"200": events} | problem},
        },
        f"{PREFIX}/jobs/{{id}}/result": {
            "get": {"summary": text("web.job-result"), "operationId": "job-result", "tags": ["jobs"], "parameters": [id],
                    "responses": _responses(language)},
        },
        f"{PREFIX}/uploads": {
            "post": {
                "summary": text("web.upload"), "operationId": "upload", "tags": ["jobs"], "parameters": [header],
                "requestBody": {"required": True, "content": {"text/csv": {"schema": {"type": "string"}}}},
                "responses": _responses(language, "201", "Upload"),
            },
        },
    }  # fmt: skip


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> dict[str, Any]:
    words: dict[str, Any] = {"type": "string"}
    error = {
        "type": "object",
        "required": ["kind", "message", "hint", "choices"],
        "properties": {
            "kind": words,
            "message": words,
            "hint": {"type": ["string", "null"]},
            "choices": {"type": "array", "items": words},
        },
    }
    number = {"type": "number"}
    figure = {"value": number, "low": number, "high": number, "unit": words, "basis": words, "sources": {"type": "array"}}
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
        },
        "Upload": {"type": "object", "required": ["id", "bytes"], "properties": {"id": words, "bytes": {"type": "integer"}}},
    }  # fmt: skip
