"""The ASGI application: pages, static files and REST, behind the checks of `server/gate.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from whichgpu.surface.web.reader_language import language_of
from whichgpu.surface.web.rendering import CONTENT_TYPES
from whichgpu.surface.web.responses import FOREVER, REVALIDATE, HttpRefusal, answer_response, json_response, refusal_response
from whichgpu.surface.web.rest.routes import api_routes
from whichgpu.surface.web.routes import Handler, ask_worker, endpoint, service_of
from whichgpu.surface.web.server.gate import AccessRules, Gate
from whichgpu.surface.web.server.metrics import RequestMeter
from whichgpu.surface.web.server.service import Service, page_question
from whichgpu.surface.web.static_files import static_answer, static_version
from whichgpu.surface.web.vega_bundle import is_cached
from whichgpu.surface.web.views import START

FORMATS = {"": "html", "html": "file", "json": "json", "csv": "csv", "md": "md"}  # Formats of a page by the ending of its URL.
CHART_ENDINGS = {"svg": "svg", "png": "png", "values.csv": "values"}  # Formats of one chart by the ending of its URL.
PROGRESS = "progress"  # Ending of the URL that says how much of a page's answer is computed.
STATUS_KINDS = {404: "not-found", 405: "method"}


def application(service: Service, rules: AccessRules) -> ASGIApp:
    """Return the web application (pages, static files, REST); the service with its workers starts and stops with it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.open()
        preparing = asyncio.ensure_future(service.prepare())
        yield
        preparing.cancel()
        await service.close()

    app = Starlette(
        routes=[
            *api_routes(),
            Route("/static/{name}", endpoint(static_file)),
            Route("/static/{digest}/{name}", endpoint(static_file)),
            Route("/assets/vega.js", endpoint(script)),
            Route("/", endpoint(first)),
            *(Route(f"/{{name}}/{{chart}}.{ending}", endpoint(chart_route(ending))) for ending in CHART_ENDINGS),
            *(Route(f"/{{name}}/{{subject}}/{{chart}}.{ending}", endpoint(chart_route(ending))) for ending in CHART_ENDINGS),
            Route("/{name}/{subject}", endpoint(subject_page)),
            Route("/{name}", endpoint(page)),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return RequestMeter(Gate(app, rules, service.limits.head_bytes), service.metrics)


async def first(request: Request) -> Response:
    """Respond to `/` with the start page."""
    question = page_question(START, "html", request.url.query, language_of(request).code)
    return answer_response(request, await ask_worker(request, {**question, "hurry": True}))


async def page(request: Request, name: str) -> Response:
    """Respond with the page of that name in the format of the URL's ending; .html is one file that needs no server."""
    stem, _, ending = name.partition(".")
    if ending == PROGRESS:
        question = page_question(stem, "html", request.url.query, language_of(request).code)
        return json_response({"done": service_of(request).progress(question)})
    if ending and ending not in CONTENT_TYPES:
        raise HttpRefusal(404, "not-found")
    return await _page(request, stem, FORMATS.get(ending, ending))


async def subject_page(request: Request, name: str, subject: str) -> Response:
    """Respond with the page of one GPU, model or instance; its name may contain dots, which are no ending."""
    stem, _, ending = subject.rpartition(".")
    if stem and ending in FORMATS:
        return await _page(request, name, FORMATS[ending], subject=stem)
    return await _page(request, name, "html", subject=subject)


def chart_route(ending: str) -> Handler:
    """Return the handler of one chart of a page, or of the page of a GPU, model or instance, as SVG, PNG or CSV of its values."""

    async def chart_file(request: Request, name: str, chart: str, subject: str | None = None) -> Response:
        return await _page(request, name, CHART_ENDINGS[ending], chart, subject)

    return chart_file


async def static_file(request: Request, name: str, digest: str | None = None) -> Response:
    """Respond with a script or style; under the digest of its present content it may be cached for ever."""
    answer = static_answer(name) if digest in (None, static_version()) else None
    if answer is None:
        raise HttpRefusal(404, "not-found")
    return answer_response(request, answer, FOREVER if digest else REVALIDATE)


async def script(request: Request) -> Response:
    """Respond with the script that draws charts in the browser."""
    cache_control = FOREVER if "v" in request.query_params else REVALIDATE
    return answer_response(request, await ask_worker(request, {"kind": "script"}, drawing=not is_cached()), cache_control)


async def _page(request: Request, name: str, ending: str, chart: str = "", subject: str | None = None) -> Response:
    question = page_question(name, ending, request.url.query, language_of(request).code, chart, subject)
    try:
        return answer_response(request, await ask_worker(request, question, drawing=ending in ("svg", "png", "file")))
    except HttpRefusal as refusal:
        if refusal.status != 422 or ending != "html" or subject is not None:
            raise
        refused = {
            **question,
            "refusal": {"kind": refusal.kind, "values": refusal.values},
        }  # The page has the form, to ask for less.
        return answer_response(request, await ask_worker(request, refused))


async def _http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    kind = STATUS_KINDS.get(problem.status_code, "bad-request")
    status = problem.status_code if problem.status_code in STATUS_KINDS else 400
    return refusal_response(request, HttpRefusal(status, kind, problem.headers, method=request.method))


async def _internal_error(request: Request, _: Exception) -> Response:
    return refusal_response(request, HttpRefusal(500, "lost"))
