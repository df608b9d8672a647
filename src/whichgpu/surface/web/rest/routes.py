"""Routes under /api: endpoints, jobs, uploads, the OpenAPI document and its page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from whichgpu.surface.web.reader_language import headers_of, language_of
from whichgpu.surface.web.request_body import json_body
from whichgpu.surface.web.responses import REVALIDATE, HttpRefusal, answer_response, has_already, json_response, wants_csv
from whichgpu.surface.web.rest.endpoints import ALIASES, BY_PATH, PREFIX
from whichgpu.surface.web.routes import Endpoint, ask_worker, endpoint, service_of
from whichgpu.surface.web.server.clients import client_of
from whichgpu.surface.web.server.gate import check_change_header
from whichgpu.surface.web.server.jobs import COMMANDS, FILES, FINISHED_STATES, WebJob
from whichgpu.surface.web.server.metrics import CONTENT_TYPE
from whichgpu.surface.web.server.service import Service, page_question

METHODS = ["GET", "POST"]
EVENTS = "text/event-stream"
PAGE = "page"  # Command of a job whose answer is a part of the plan page, for an uploaded trace.
MAX_REQUESTS = 20_000  # Largest number of requests in one job (assumed).


def api_routes() -> list[Route]:
    """Return every route under /api."""
    jobs = f"{PREFIX}/jobs"
    return [
        *(
            Route(f"{PREFIX}/{path}{ending}", _endpoint(ALIASES.get(path, path), ending), methods=METHODS)
            for path in (*BY_PATH, *ALIASES)
            for ending in ("", ".csv")
        ),
        Route(PREFIX, endpoint(endpoints)),
        Route("/healthz", endpoint(health)),
        Route("/readyz", endpoint(readiness)),
        Route(f"{PREFIX}/openapi.json", endpoint(schema)),
        *(Route(path, endpoint(reference)) for path in ("/docs", "/api/docs")),
        Route("/metrics", endpoint(metrics)),
        Route(f"{PREFIX}/uploads", endpoint(upload), methods=["POST"]),
        Route(jobs, endpoint(new_job), methods=["POST"]),
        Route(f"{jobs}/{{id}}", endpoint(job_state)),
        Route(f"{jobs}/{{id}}", endpoint(cancel_job), methods=["DELETE"]),
        Route(f"{jobs}/{{id}}/events", endpoint(follow_job)),
        Route(f"{jobs}/{{id}}/result", endpoint(job_result)),
    ]


def _endpoint(path: str, ending: str) -> Endpoint:
    async def respond(request: Request) -> Response:
        code, service = language_of(request).code, service_of(request)
        question: dict[str, Any] = {"kind": "rest", "endpoint": path, "query": request.url.query, "lang": code}
        if ending or wants_csv(request):
            question["format"] = "csv"
        if request.method == "POST":
            question["body"] = await json_body(request, service.limits.body_bytes, service.limits.body_seconds)
        tag, headers = service.tag(question), service.rate_limit(client_of(request))
        known_tags = request.headers.get("if-none-match", "")
        if tag in known_tags and has_already(request, tag):  # Nothing needs to be computed.
            shown_tag = f'"{tag}-gz"' if f"{tag}-gz" in known_tags else f'"{tag}"'
            response = Response(None, 304, {"ETag": shown_tag, "Cache-Control": REVALIDATE, **headers_of(code)})
        else:
            response = answer_response(request, {**await ask_worker(request, question), "tag": tag})
        response.headers.update({**headers, "Vary": "Accept, Accept-Encoding, Accept-Language"})
        return response

    return endpoint(respond)


async def endpoints(_: Request) -> Response:
    """Respond with the URLs of all endpoints, of the OpenAPI document and of the page about them."""
    urls = {path: f"{PREFIX}/{path}" for path in BY_PATH}
    others = {name: f"{PREFIX}/{name}" for name in ("jobs", "uploads")} | {"openapi": f"{PREFIX}/openapi.json", "docs": "/docs"}
    return json_response({"endpoints": urls, **others, "formats": ["json", "csv"]})


async def health(_: Request) -> Response:
    """Respond that the server runs."""
    return json_response({"ok": True})


async def readiness(request: Request) -> Response:
    """Respond whether a worker can answer questions: status 503 until one is ready, or if all are lost."""
    workers = service_of(request).pool.alive
    return json_response({"ok": workers > 0, "workers": workers}, 200 if workers else 503)


async def metrics(request: Request) -> Response:
    """Respond with counts of requests and present values for monitoring, in the text format of Prometheus."""
    service = service_of(request)
    text = service.metrics.text(service.present_values())
    return Response(text, 200, {"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE})


async def schema(request: Request) -> Response:
    """Respond with the OpenAPI document."""
    return answer_response(request, await ask_worker(request, {"kind": "schema", "lang": language_of(request).code}))


async def reference(request: Request) -> Response:
    """Respond with the web page that documents the REST endpoints."""
    question = {"kind": "reference", "query": request.url.query, "lang": language_of(request).code}
    return answer_response(request, await ask_worker(request, question))


async def upload(request: Request) -> Response:
    """Store an uploaded file that a later job may use, and respond with its id and size."""
    check_change_header(request)
    id, size = await service_of(request).uploads.receive(request, client_of(request))
    return json_response({"id": id, "bytes": size}, 201)


async def new_job(request: Request) -> Response:
    """Validate the request in the body, start it as a background job, and respond with the job's URLs."""
    check_change_header(request)
    service = service_of(request)
    body = await json_body(request, service.limits.body_bytes, service.limits.body_seconds)
    question = _job_question(body, service) | {"lang": language_of(request).code}
    if "endpoint" in question:
        checked = await ask_worker(request, {**question, "kind": "check"})
        if checked["status"] != 200:
            return answer_response(request, checked)
    job = service.jobs.add(question, client_of(request))
    return json_response(job.document(), 202, {"Location": job.document()["url"]})


def _job_question(body: bytes, service: Service) -> dict[str, Any]:
    """Return what a job is to compute, from its body: a REST endpoint's request, or a list of requests to estimate."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise HttpRefusal(400, "bad-job", None, commands=COMMANDS) from None
    if not isinstance(document, dict) or document.get("command") not in (*COMMANDS, PAGE):
        raise HttpRefusal(400, "bad-job", None, commands=COMMANDS)
    command = document.pop("command")
    files = {name: str(service.uploads.path(str(document.pop(name)))) for name in FILES if name in document}
    if command == PAGE:
        return {**page_question("plan", "part", str(document.get("query", ""))), "files": files}
    if command == "estimate" and isinstance(document.get("requests"), list):
        if not 1 <= len(document["requests"]) <= MAX_REQUESTS:
            raise HttpRefusal(400, "many-requests", None, most=f"{MAX_REQUESTS:,}")
        return {"kind": "requests", "requests": document["requests"]}
    return {"kind": "rest", "endpoint": command, "body": json.dumps(document).encode(), "files": files}


async def job_state(request: Request, id: str) -> Response:
    """Respond with the state and progress of a background job."""
    return json_response(service_of(request).jobs.get(id).document())


async def cancel_job(request: Request, id: str) -> Response:
    """Stop a background job, and respond with its state."""
    check_change_header(request)
    jobs = service_of(request).jobs
    job = jobs.get(id)
    jobs.cancel(job)
    return json_response(job.document())


async def job_result(request: Request, id: str) -> Response:
    """Respond with the answer of a finished background job, or with an error."""
    job = service_of(request).jobs.get(id)
    if job.answer is not None:
        return answer_response(request, job.answer)
    if job.state not in FINISHED_STATES:
        raise HttpRefusal(404, "job-unfinished", {"Retry-After": "1"})
    if job.problem == "job-cancelled":
        raise HttpRefusal(409, "job-cancelled")
    if job.problem == "too-long":
        raise HttpRefusal(422, "too-long", None, seconds=f"{service_of(request).limits.job_seconds:g}")
    raise HttpRefusal(500, "lost")


async def follow_job(request: Request, id: str) -> Response:
    """Respond with the progress of a background job as server-sent events."""
    if request.method == "HEAD":  # Starlette adds HEAD to every GET route, and a stream has no end to wait for.
        raise HttpRefusal(405, "method", {"Allow": "GET"}, method=request.method)
    service = service_of(request)
    job = service.jobs.get(id)
    service.add_stream(client_of(request))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(job, service, client_of(request)), media_type=EVENTS, headers=headers)


async def _events(job: WebJob, service: Service, client: str) -> AsyncIterator[bytes]:
    try:
        async for name, document in service.jobs.follow(job):
            yield f"event: {name}\ndata: {json.dumps(document)}\n\n".encode() if name else b": waiting\n\n"
    finally:
        service.remove_stream(client)
