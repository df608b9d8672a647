"""What a worker can be asked: a page, a command by its REST endpoint, a file of requests, the schema, the charts' script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from urllib.parse import urlencode

from whichgpu.base.codec import to_json, to_json_line
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.messages import language as speech
from whichgpu.surface.web.command_replies import CONTENT, HttpReply, Progress, answered, catalog, refused
from whichgpu.surface.web.hide_paths import without_paths
from whichgpu.surface.web.model_guard import permitted
from whichgpu.surface.web.reader_language import PARAMETER, chosen
from whichgpu.surface.web.rest import parameters
from whichgpu.surface.web.rest.endpoints import BY_PATH, PAGING, PREFIX, Endpoint

Question = Mapping[str, Any]
TOGETHER = TOLD_EVERY = 100


def rest(question: Question, language: Language, progress: Progress | None) -> HttpReply:
    """A command through its endpoint; `files` are fields that name files of the server's own making."""
    endpoint = BY_PATH[question["endpoint"]]
    try:
        values = parameters.from_query(question.get("query", ""))
        if question.get("body"):
            values |= parameters.from_body(question["body"])
        named = values.pop(PARAMETER, None)  # in a body it comes too late to be asked for otherwise
        if named:
            language = speech(chosen(str(named[-1])))
        request = parameters.request_of(endpoint, values) | question.get("files", {})
        if endpoint.rows is None:
            status, document = answered(endpoint.command, request, language, progress)
            headers: dict[str, str] = {}
        else:
            status, document, headers = _paged(endpoint, values, request, language, language.code if named else None)
        body = to_json(document).encode("utf-8", "backslashreplace")
        return HttpReply(status, CONTENT["json"], body, {**headers, "Content-Language": language.code})
    except WhichGpuError as error:
        return replace(refused(error, language), headers={"Content-Language": language.code})


def _paged(
    endpoint: Endpoint, values: parameters.Values, request: dict[str, Any], language: Language, named: str | None
) -> tuple[int, Any, dict[str, str]]:
    """A page of the rows, with how many there are and where the next page is."""
    limit, offset = parameters.page(endpoint, values)
    if endpoint.command == "offers" and limit is not None:
        request = {**request, "limit": offset + limit}  # rows nobody sees are not written out
    status, document = answered(endpoint.command, request, language)
    if status != 200 or (limit is None and not offset):
        return status, document, {}
    whole = _fields(document)
    name = endpoint.rows or ""
    rows = whole[name]
    total = whole.get("matching", len(rows))
    shown = rows[offset:] if limit is None else rows[offset : offset + limit]
    whole |= {name: shown, "total": total, "offset": offset, "limit": limit, "next": None}
    headers = {}
    if offset + len(shown) < total and shown:
        kept = [(name, value) for name, given in values.items() if name not in PAGING for value in given]
        pairs = [*kept, *([(PARAMETER, named)] if named else []), ("limit", limit), ("offset", offset + len(shown))]
        whole["next"] = f"{PREFIX}/{endpoint.path}?{urlencode(pairs)}"
        headers["Link"] = f'<{whole["next"]}>; rel="next"'
    return status, whole, headers


def _fields(document: Any) -> dict[str, Any]:
    """The fields of an answer by name."""
    if isinstance(document, Mapping):
        return dict(document)
    return {field.name: getattr(document, field.name) for field in fields(document)}


def check(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """Whether a question can be read, before a job is made of it."""
    try:
        values = parameters.from_body(question["body"])
        if named := values.pop(PARAMETER, None):
            chosen(str(named[-1]))
        parameters.request_of(BY_PATH[question["endpoint"]], values)
    except WhichGpuError as error:
        return refused(error, language)
    return HttpReply(200, CONTENT["json"], b"{}")


def requests(question: Question, language: Language, progress: Progress | None) -> HttpReply:
    """`estimate --requests`: a line for each, in order."""
    from whichgpu.api.workloads.stream import Reply, estimate_requests
    from whichgpu.surface.commands.request_lines import reply_document

    asked: Sequence[Any] = question["requests"]
    checked = [_checked(request) for request in asked]
    lines = [json.dumps(request).encode() for request in checked if not isinstance(request, WhichGpuError)]
    replies = estimate_requests(lines, catalog(), TOGETHER)
    out: list[str] = []
    for number, (request, found) in enumerate(zip(asked, checked, strict=True), start=1):
        refused = isinstance(found, WhichGpuError)
        reply = Reply(number, request.get("id"), error=found) if refused else replace(next(replies), line=number)
        if reply.error is not None:
            reply = replace(reply, error=without_paths(reply.error))
        out.append(to_json_line(reply_document(reply, language)))
        if progress is not None and number % TOLD_EVERY == 0:
            progress(number / len(asked))
    return HttpReply(200, "application/x-ndjson", "".join(out).encode())


def _checked(request: Any) -> Any:
    """The request with its model as the guard resolves it, or the error that refuses it."""
    if not isinstance(request, dict) or not isinstance(request.get("model"), str):
        return request
    try:
        return {**request, "model": permitted(request["model"], catalog())}
    except WhichGpuError as error:
        return error


def page(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """A page in one of its forms."""
    from whichgpu.surface.web.rendering import drawn

    return drawn(question["name"], question["ending"], question["query"], language, question.get("chart"))


def schema(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """The OpenAPI document."""
    from whichgpu.surface.web.rest.openapi import document

    return HttpReply(200, CONTENT["json"], to_json(document(language)).encode())


def reference(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """The page that lists the endpoints."""
    from whichgpu.surface.web.rest.reference import drawn

    return HttpReply(200, "text/html; charset=utf-8", drawn(language, question.get("query", "")).encode())


def script(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """The bundle that draws charts, made once and kept."""
    from whichgpu.surface.web.vega_bundle import bundle

    return HttpReply(200, "text/javascript; charset=utf-8", bundle())


ANSWERS: dict[str, Callable[[Question, Language, Progress | None], HttpReply]] = {
    "rest": rest,
    "requests": requests,
    "check": check,
    "page": page,
    "schema": schema,
    "reference": reference,
    "script": script,
}
