"""Questions that a worker answers: a page, a REST endpoint, a list of requests, the OpenAPI document, the chart script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from whichgpu.base.codec import to_json, to_json_line
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.messages import language as language_of_code
from whichgpu.surface.commands.session import language_code
from whichgpu.surface.web.command_replies import (
    CONTENT_TYPES,
    NO_ANSWER,
    HttpReply,
    Progress,
    catalog,
    command_document,
    error_reply,
)
from whichgpu.surface.web.hide_paths import without_folders, without_paths
from whichgpu.surface.web.model_guard import permitted_draft, permitted_model
from whichgpu.surface.web.query import LANGUAGE_PARAMETER
from whichgpu.surface.web.rest import parameters
from whichgpu.surface.web.rest.csv_replies import LIMITED_COMMANDS, csv_reply, page_url
from whichgpu.surface.web.rest.endpoints import BY_PATH, Endpoint
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.simulation_limit import check_simulation

BATCH_REQUESTS = 100  # Requests that are estimated together, between two reports of progress.


def rest(question: Question, language: Language, progress: Progress | None) -> HttpReply:
    """Return the HTTP reply of a REST endpoint to its query or body, which are in `question` with uploaded files' paths."""
    endpoint = BY_PATH[question["endpoint"]]
    try:
        values = parameters.from_query(question.get("query", ""))
        if question.get("body"):
            values |= parameters.from_body(question["body"])
        codes = values.pop(LANGUAGE_PARAMETER, None)
        if codes:  # A body may also name the language.
            language = language_of_code(language_code(str(codes[-1])))
        request = parameters.request_of(endpoint, values) | question.get("files", {})
        if "files" not in question:  # It is no job.
            check_simulation(request)
        if question.get("format") == "csv":
            return csv_reply(endpoint, values, request, language, language.code if codes else None)
        if endpoint.rows is None:
            status, document = command_document(endpoint.command, request, language, progress)
            headers: dict[str, str] = {}
        else:
            status, document, headers = _paged(endpoint, values, request, language, language.code if codes else None)
        body = to_json(without_folders(document)).encode("utf-8", "backslashreplace")
        return HttpReply(status, CONTENT_TYPES["json"], body, {**headers, "Content-Language": language.code})
    except WhichGpuError as error:
        return replace(error_reply(error, language), headers={"Content-Language": language.code})


def _paged(
    endpoint: Endpoint, values: parameters.Values, request: dict[str, Any], language: Language, code: str | None
) -> tuple[int, Any, dict[str, str]]:
    """Return status, one page of the rows with their total and the URL of the next page, and headers."""
    limit, offset = parameters.page(endpoint, values)
    if endpoint.command in LIMITED_COMMANDS and limit is not None:
        request = {**request, "limit": offset + limit}  # Later rows are not needed.
    status, document = command_document(endpoint.command, request, language)
    if status != 200 or (limit is None and not offset):
        return status, document, {}
    reply = _fields(document)
    name = endpoint.rows or ""
    rows = reply[name]
    total = reply.get("matching", len(rows))
    page = rows[offset:] if limit is None else rows[offset : offset + limit]
    reply |= {name: page, "total": total, "offset": offset, "limit": limit, "next": None}
    headers = {}
    if offset + len(page) < total and page:
        reply["next"] = page_url(endpoint.path, values, code, limit, offset + len(page))
        headers["Link"] = f'<{reply["next"]}>; rel="next"'
    return status, reply, headers


def _fields(document: Any) -> dict[str, Any]:
    """Return the fields of an answer, which is a mapping or a record, as a dict by name."""
    return dict(document) if isinstance(document, Mapping) else asdict(document)


def check(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """Return an HTTP reply that says whether a job's request is valid, before the job starts."""
    try:
        values = parameters.from_body(question["body"])
        if codes := values.pop(LANGUAGE_PARAMETER, None):
            language_code(str(codes[-1]))
        parameters.request_of(BY_PATH[question["endpoint"]], values)
    except WhichGpuError as error:
        return error_reply(error, language)
    return HttpReply(200, CONTENT_TYPES["json"], b"{}")


def requests(question: Question, language: Language, progress: Progress | None) -> HttpReply:
    """Return the estimates of a list of requests as JSON lines, in order."""
    from whichgpu.api.workloads.stream import Reply, estimate_requests
    from whichgpu.surface.commands.request_lines import reply_document

    requested: Sequence[Any] = question["requests"]
    checked = [_checked(request) for request in requested]
    lines = [json.dumps(request).encode() for request in checked if not isinstance(request, WhichGpuError)]
    replies = estimate_requests(lines, catalog(), BATCH_REQUESTS)
    lines_out: list[str] = []
    for number, (request, result) in enumerate(zip(requested, checked, strict=True), start=1):
        is_refused = isinstance(result, WhichGpuError)
        reply = Reply(number, request.get("id"), error=result) if is_refused else replace(next(replies), line=number)
        if reply.error is not None:
            reply = replace(reply, error=without_paths(reply.error))
        lines_out.append(to_json_line(reply_document(reply, language)))
        if progress is not None and number % BATCH_REQUESTS == 0:
            progress(number / len(requested))
    return HttpReply(200, "application/x-ndjson", "".join(lines_out).encode())


def _checked(request: Any) -> Any:
    """Return the request with the id of its permitted model, or the error that refuses it."""
    if not isinstance(request, dict):
        return request
    try:
        if "speculative" in request:
            request = {**request, "speculative": permitted_draft(request["speculative"], catalog())}
        is_named = isinstance(request.get("model"), str)
        return {**request, "model": permitted_model(request["model"], catalog())} if is_named else request
    except WhichGpuError as error:
        return error


def page(question: Question, language: Language, progress: Progress | None) -> HttpReply:
    """Return a web page as an HTTP reply, in the format that `question` names."""
    from whichgpu.surface.web.rendering import render_page
    from whichgpu.surface.web.responses import HttpRefusal

    refusal = question.get("refusal")
    problem = HttpRefusal(NO_ANSWER, refusal["kind"], None, **refusal["values"]).error() if refusal else None
    chart, subject = question.get("chart"), question.get("subject")
    hurry, files = bool(question.get("hurry") or problem), question.get("files")
    name, ending, query = question["name"], question["ending"], question["query"]
    return render_page(name, ending, query, language, chart, subject, hurry, files, progress, problem)


def schema(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """Return the OpenAPI document of the REST API as an HTTP reply."""
    from whichgpu.surface.web.rest.openapi import document

    return HttpReply(200, CONTENT_TYPES["json"], to_json(document(language)).encode())


def reference(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """Return the web page that documents the REST endpoints as an HTTP reply."""
    from whichgpu.surface.web.rest.reference import render_reference

    return HttpReply(200, "text/html; charset=utf-8", render_reference(language, question.get("query", "")).encode())


def script(question: Question, language: Language, progress: Progress | None) -> HttpReply:  # noqa: ARG001
    """Return the JavaScript that draws charts in the browser, as an HTTP reply."""
    from whichgpu.surface.web.vega_bundle import bundle

    return HttpReply(200, "text/javascript; charset=utf-8", bundle())


ANSWERS: dict[str, Callable[[Question, Language, Progress | None], HttpReply]] = {
    answer.__name__: answer for answer in (rest, requests, check, page, schema, reference, script)
}  # Functions that answer, by the question's kind.
