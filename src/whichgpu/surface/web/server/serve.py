"""Run the server until interrupted; listening beyond this machine needs a token."""

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
from whichgpu.surface.web.server.gate import AccessRules
from whichgpu.surface.web.server.service import Service

MIN_TOKEN_CHARACTERS = 16  # Characters of an access token (assumed to be too long to guess).


def check_binding(host: str, token: str | None) -> None:
    """Raise if the access token is too short, or if other machines could reach the address without a token."""
    if token is not None and len(token) < MIN_TOKEN_CHARACTERS:
        raise UsageError("weak-token", msg("error.weak-token", n=MIN_TOKEN_CHARACTERS), msg("hint.weak-token"))
    if token is None and not is_loopback(host):
        raise UsageError("needs-token", msg("error.needs-token", host=host), msg("hint.needs-token"))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; of names only localhost, since others may resolve differently later."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; every failure is a usage error."""
    address = host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(4096)
    except (OSError, UnicodeError) as problem:
        listener.close()
        why = getattr(problem, "strerror", None) or str(problem)
        message = msg("error.cannot-listen", host=host, port=port, why=why)
        raise UsageError("cannot-listen", message, msg("hint.cannot-listen")) from problem
    return listener


def serve(host: str, port: int, service: Service, rules: AccessRules, ready: Callable[[str], None] = print) -> None:
    """Run the web server until interrupted; `ready` is called with the URL once questions can be answered."""
    check_binding(host, rules.token)
    listener = listening_socket(host, port)
    limits = service.limits
    config = uvicorn.Config(
        RequestTracker(application(service, rules)),
        http="h11",
        ws="none",
        lifespan="on",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # The gate reads them, from configured proxies only; uvicorn would believe every local client.
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=2,
    )
    bound_connections(config, limits)
    address, bound = listener.getsockname()[:2]
    url = f"http://{f'[{address}]' if ':' in address else address}:{bound}/"
    asyncio.run(_run(uvicorn.Server(config), listener, service, lambda: ready(url)))


async def _run(server: uvicorn.Server, listener: socket.socket, service: Service, ready: Callable[[], None]) -> None:
    """Run the web server until a signal; uvicorn raises it again after its shutdown, so that the exit code is the signal's."""
    serving = asyncio.ensure_future(server.serve([listener]))
    while not (server.started or server.should_exit or serving.done()):
        await asyncio.sleep(0.02)
    if server.should_exit:  # Startup would wait for a worker that is no longer needed.
        await service.close()
    elif server.started:
        ready()
    await serving
