"""Serving until interrupted: where to listen, and the refusal to listen beyond this machine without a token."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable

import uvicorn

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.surface.web.app import application
from whichgpu.surface.web.server.connections import RequestTracker, bound_connections
from whichgpu.surface.web.server.gate import Door
from whichgpu.surface.web.server.service import Service

SHORTEST_TOKEN = 16


def check_binding(host: str, token: str | None) -> None:
    """Refuse to be reachable from elsewhere without a token worth the name."""
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise UsageError("weak-token", msg("error.weak-token", n=SHORTEST_TOKEN), msg("hint.weak-token"))
    if token is None and not is_loopback(host):
        raise UsageError("needs-token", msg("error.needs-token", host=host), msg("hint.needs-token"))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name counts only if it is localhost, whatever it resolves to today."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """A socket bound to the address; every way it can fail is a usage error."""
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((bare, port))
        found.listen(4096)
    except (OSError, UnicodeError) as problem:
        found.close()
        why = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(
            "cannot-listen", msg("error.cannot-listen", host=host, port=port, why=why), msg("hint.cannot-listen")
        ) from problem
    return found


def serve(host: str, port: int, service: Service, door: Door, ready: Callable[[str], None] = print) -> None:
    """Serve until interrupted; `ready` is told the address when the first question can be answered at once."""
    check_binding(host, door.token)
    listener = listening(host, port)
    limits = service.limits
    config = uvicorn.Config(
        RequestTracker(application(service, door)),
        http="h11",
        ws="none",
        lifespan="on",
        log_level="critical",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=2,
    )
    bound_connections(config, limits)
    address, bound = listener.getsockname()[:2]
    url = f"http://{f'[{address}]' if ':' in address else address}:{bound}/"
    asyncio.run(_run(uvicorn.Server(config), listener, service, lambda: ready(url)))


async def _run(server: uvicorn.Server, listener: socket.socket, service: Service, ready: Callable[[], None]) -> None:
    """Serve until a signal comes, which uvicorn raises again after its shutdown: the exit code is that of the signal."""
    serving = asyncio.ensure_future(server.serve([listener]))
    while not (server.started or server.should_exit or serving.done()):
        await asyncio.sleep(0.02)
    if server.should_exit:  # startup waits for a worker that nobody needs any more
        await service.close()
    elif server.started:
        ready()
    await serving
