"""The application: pages, static files and REST behind one gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from whichgpu.surface.web.reader_language import language_of
from whichgpu.surface.web.rendering import HERE, TYPES
from whichgpu.surface.web.responses import FOREVER, REVALIDATE, Refusal, refused, replied
from whichgpu.surface.web.rest.routes import api_routes
from whichgpu.surface.web.routes import answering, asked
from whichgpu.surface.web.server.gate import Door, Gate
from whichgpu.surface.web.server.service import Service, page_question
from whichgpu.surface.web.vega_bundle import is_made
from whichgpu.surface.web.views import PAGES

STATUS_KINDS = {404: "not-found", 405: "method"}


def application(service: Service, door: Door) -> ASGIApp:
    """The whole of it; the service starts and ends with it."""

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
            Mount("/static", Static(directory=HERE / "static")),
            Route("/assets/vega.js", answering(script)),
            Route("/", answering(first)),
            Route("/{name}/{chart}.svg", answering(picture)),
            Route("/{name}", answering(page)),
        ],
        exception_handlers={HTTPException: _refused, Exception: _failed},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return Gate(app, door)


async def first(request: Request) -> Response:
    """The first of the pages."""
    return await _page(request, next(iter(PAGES)), "html")


async def page(request: Request, name: str) -> Response:
    """A page, or a twin of it; with .html written out it is one file that needs no server."""
    bare, _, ending = name.partition(".")
    if ending and ending not in TYPES:
        raise Refusal(404, "not-found")
    return await _page(request, bare, {"": "html", "html": "file"}.get(ending, ending))


async def picture(request: Request, name: str, chart: str) -> Response:
    """A chart drawn by the server."""
    return await _page(request, name, "svg", chart)


async def script(request: Request) -> Response:
    """What draws charts in the browser; its name never changes its content while the server runs."""
    kept_for = FOREVER if "v" in request.query_params else REVALIDATE
    return replied(request, await asked(request, {"kind": "script"}, drawing=not is_made()), kept_for)


async def _page(request: Request, name: str, ending: str, chart: str = "") -> Response:
    question = page_question(name, ending, request.url.query, language_of(request).code, chart)
    return replied(request, await asked(request, question, drawing=ending in ("svg", "file")))


class Static(StaticFiles):
    """Our own files, looked at again by the browser each time; unchanged ones cost a line."""

    def file_response(self, *args: Any, **values: Any) -> Response:
        reply = super().file_response(*args, **values)
        reply.headers["Cache-Control"] = REVALIDATE
        return reply


async def _refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    kind = STATUS_KINDS.get(problem.status_code, "bad-request")
    status = problem.status_code if problem.status_code in STATUS_KINDS else 400
    return refused(request, Refusal(status, kind, problem.headers, method=request.method))


async def _failed(request: Request, _: Exception) -> Response:
    return refused(request, Refusal(500, "lost"))
