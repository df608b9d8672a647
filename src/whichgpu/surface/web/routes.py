"""Code shared by all routes: refusals become responses, and work for a client that has disconnected is cancelled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from whichgpu.surface.web.responses import HttpRefusal, refusal_response
from whichgpu.surface.web.server.cache import Answer
from whichgpu.surface.web.server.clients import client_of
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.server.service import Service

Handler = Callable[..., Awaitable[Response]]  # A handler takes the request and the path's parameters by name.
Endpoint = Callable[[Request], Awaitable[Response]]


def endpoint(handler: Handler) -> Endpoint:
    """Return a Starlette endpoint that calls a handler with the path's parameters and turns `HttpRefusal` into a response."""

    @functools.wraps(handler)
    async def respond(request: Request) -> Response:
        try:
            return await handler(request, **request.path_params)
        except HttpRefusal as refusal:
            return refusal_response(request, refusal)

    return respond


def service_of(request: Request) -> Service:
    """Return the state (workers, cache, jobs) of the server that got this request."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def ask_worker(request: Request, question: Question, drawing: bool = False) -> Answer:
    """Return a worker's or cached answer; cancelled if the client leaves before a worker began. `drawing` needs charts."""
    service = service_of(request)
    cached = service.cached(question)
    if cached is not None:
        return cached
    work = asyncio.ensure_future(service.ask(question, client_of(request), drawing))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise HttpRefusal(499, "left")  # The client has disconnected.
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
