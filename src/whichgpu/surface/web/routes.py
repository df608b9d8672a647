"""What all routes share: a refusal anywhere inside becomes a reply, and nobody computes for a client who has left."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from whichgpu.surface.web.responses import Refusal, refused
from whichgpu.surface.web.server.cache import Answer
from whichgpu.surface.web.server.pool import Question
from whichgpu.surface.web.server.service import Service, client_of

Handler = Callable[..., Awaitable[Response]]  # takes the request, and the path's parameters by name
Endpoint = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler) -> Endpoint:
    """An endpoint that calls the handler with the path's parameters and turns a refusal into a reply in the one error shape."""

    @functools.wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await handler(request, **request.path_params)
        except Refusal as refusal:
            return refused(request, refusal)

    return answered


def service_of(request: Request) -> Service:
    """The server's state."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def asked(request: Request, question: Question, drawing: bool = False) -> Answer:
    """An answer; given up when the client leaves before a worker has taken the question."""
    service = service_of(request)
    kept = service.kept(question)
    if kept is not None:
        return kept
    work = asyncio.ensure_future(service.ask(question, client_of(request), drawing))
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Refusal(499, "left")  # nobody reads this
        return work.result()
    finally:
        left.cancel()
        work.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
