"""Tasks on a Ray cluster (the extra `plan-ray`): one that is there, by its address, or one started for this run alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.parallel.process_pool import Results, worker_died
from whichgpu.base.units import parse_whole_number

PACKAGE = Path(__file__).resolve().parents[2]  # sent to a cluster, so that it runs the same code as this process
AHEAD = 2  # tasks given out for each processor of a cluster
PATIENCE = 5.0  # seconds in which a cluster's port must answer
MODE, TOKEN, TOKEN_PATH, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", Path(".ray") / "auth_token"
ADDRESSES = ("local", "auto")


def on_ray(function: Callable[..., Any], items: Sequence[tuple[Any, ...]], address: str) -> Results:
    """The function's result for the arguments in each item; a cluster that was not running before is stopped afterwards."""
    cluster = _ray(address)
    own = not cluster.is_initialized()
    if own:
        _connect(cluster, address)
    try:
        remote = cluster.remote(function)
        workers = max(1, int(cluster.cluster_resources().get("CPU", 1)))
        running: dict[Any, int] = {}
        rest = enumerate(items)
        while True:
            while len(running) < AHEAD * workers and (one := next(rest, None)):
                running[remote.remote(*one[1])] = one[0]
            if not running:
                return
            ready, _ = cluster.wait(list(running), num_returns=1)
            for reference in ready:
                yield running.pop(reference), _fetched(cluster, reference, address)
    finally:
        if own:
            cluster.shutdown()


def check_ray(address: str) -> None:
    """Refuse before any work what could only fail after it: an address that is none, no Ray here, or nobody who answers."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if address not in ADDRESSES and (not host or not parse_whole_number(port, 65535)):
        raise UsageError("bad-ray", msg("error.bad-ray", address=address[:80]), msg("hint.ray-address"))
    if find_spec("ray") is None:
        raise _no_ray()
    if address not in ADDRESSES:
        try:  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
        except (OSError, UnicodeError) as problem:
            message = msg("error.ray-unreachable", address=address, why=getattr(problem, "strerror", None) or str(problem))
            raise NoAnswer("ray-unreachable", message, msg("hint.ray-unreachable")) from problem


def _ray(address: str) -> Any:
    for name, value in _token(address).items():  # read by Ray when it is first imported
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")  # an extra
    except ImportError as problem:
        raise _no_ray() from problem


def _no_ray() -> UsageError:
    return UsageError("no-ray", msg("error.no-ray"), msg("hint.no-ray"))


def _token(address: str) -> dict[str, str]:
    """Ray shows the user's token to a cluster it finds by itself, never to an address it is given.

    A cluster started where there is a token asks for it, and one is there once `local` was used. An address of this machine is as
    good as found; one elsewhere gets no token unasked.
    """
    if address in ADDRESSES or not own_address(address):
        return {}
    told = os.environ.get(TOKEN) or os.environ.get(TOKEN_PATH) or (Path.home() / TOKEN_FILE).exists()
    return {MODE: "token"} if told else {}


def own_address(address: str) -> bool:
    """Whether `host:port` is this machine: what it would be reached from is what it is. Nothing is sent.

    >>> own_address("127.0.0.1:6379"), own_address("192.0.2.255:6379"), own_address("nonsense")
    (True, False, False)
    """
    host, _, port = address.partition("://")[2].rpartition(":") if "://" in address else address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[4])
            return bool(probe.getsockname()[0] == found[4][0])
    except (OSError, ValueError, OverflowError, UnicodeError):
        return False


def _connect(cluster: Any, address: str) -> None:
    try:
        cluster.init(address=address, log_to_driver=False, logging_level="ERROR", **_settings(address))
    except (ConnectionError, ValueError, RuntimeError, OSError, cluster.exceptions.RayError) as problem:
        message = msg("error.ray-unreachable", address=address, why=str(problem).strip().partition("\n")[0])
        raise NoAnswer("ray-unreachable", message, _hint(address)) from problem


def _hint(address: str) -> Message:
    """An address elsewhere may only lack the token."""
    asked = address not in ADDRESSES and os.environ.get(MODE) != "token"
    return msg("hint.ray-token" if asked else "hint.ray-unreachable")


def _settings(address: str) -> dict[str, Any]:
    """A cluster of this run alone needs no page of its own; another is sent this code."""
    return {"include_dashboard": False} if address == "local" else {"runtime_env": {"py_modules": [str(PACKAGE)]}}


def _fetched(cluster: Any, reference: Any, address: str) -> Any:
    """A task's result, or its own error rather than the cluster's wrapping of it."""
    try:
        return cluster.get(reference)
    except cluster.exceptions.RayTaskError as problem:
        cause = problem.cause or problem
        if isinstance(cause, ImportError):
            message = msg("error.ray-lacks", address=address, name=cause.name or str(cause))
            raise NoAnswer("ray-lacks", message, msg("hint.ray-lacks")) from problem
        raise cause from problem
    except cluster.exceptions.RuntimeEnvSetupError as problem:
        message = msg("error.ray-unreachable", address=address, why=str(problem).strip().partition("\n")[0])
        raise NoAnswer("ray-unreachable", message, msg("hint.ray-lacks")) from problem
    except cluster.exceptions.RayError as problem:
        raise worker_died() from problem
