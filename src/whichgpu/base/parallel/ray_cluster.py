"""Run tasks on a Ray cluster (the extra `plan-ray`): a running one given by its address, or one started for this run only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.parallel.process_pool import Results, worker_died
from whichgpu.base.units import parse_whole_number

PACKAGE = Path(__file__).resolve().parents[2]  # This package is sent to the cluster, so that it runs the same code.
TASKS_PER_PROCESSOR = 2  # Tasks submitted ahead (assumed to hide the scheduler's latency).
CONNECT_TIMEOUT = 5.0  # Seconds to wait for the cluster's address to answer (assumed).
MODE, TOKEN, TOKEN_PATH, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", Path(".ray") / "auth_token"
ADDRESSES = ("local", "auto")


def on_ray(function: Callable[..., Any], items: Sequence[tuple[Any, ...]], address: str) -> Results:
    """Call the function with each item's arguments on Ray; yield index and result; stop the cluster if it was started here."""
    cluster = _ray(address)
    started_here = not cluster.is_initialized()
    if started_here:
        _connect(cluster, address)
    try:
        remote = cluster.remote(function)
        workers = max(1, int(cluster.cluster_resources().get("CPU", 1)))
        running: dict[Any, int] = {}
        rest = enumerate(items)
        while True:
            while len(running) < TASKS_PER_PROCESSOR * workers and (one := next(rest, None)):
                running[remote.remote(*one[1])] = one[0]
            if not running:
                return
            ready, _ = cluster.wait(list(running), num_returns=1)
            for reference in ready:
                yield running.pop(reference), _fetch(cluster, reference, address)
    finally:
        if started_here:
            cluster.shutdown()


def check_ray(address: str) -> None:
    """Raise before any work is done if the address is invalid, Ray is not installed or the cluster does not answer."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if address not in ADDRESSES and (not host or not parse_whole_number(port, 65535)):
        raise UsageError("bad-ray", msg("error.bad-ray", address=address[:80]), msg("hint.ray-address"))
    if find_spec("ray") is None:
        raise _no_ray()
    if address not in ADDRESSES:
        try:  # Test the address first, since Ray itself would retry for minutes.
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
        except (OSError, UnicodeError) as problem:
            message = msg("error.ray-unreachable", address=address, why=getattr(problem, "strerror", None) or str(problem))
            raise NoAnswer("ray-unreachable", message, msg("hint.ray-unreachable")) from problem


def _ray(address: str) -> Any:
    if _needs_token(address):  # Set the variable before the first import of Ray, which reads it then.
        os.environ.setdefault(MODE, "token")
    try:
        return import_module("ray")
    except ImportError as problem:
        raise _no_ray() from problem


def _no_ray() -> UsageError:
    return UsageError("no-ray", msg("error.no-ray"), msg("hint.no-ray"))


def _needs_token(address: str) -> bool:
    """Whether to send the user's Ray token: to an explicit address of this machine, if there is a token.

    Ray sends it to a cluster it finds itself but not to an address it is given, and a cluster started with a token requires it.
    An address elsewhere never gets the token without the user's setting.
    """
    if address in ADDRESSES or not own_address(address):
        return False
    return bool(os.environ.get(TOKEN) or os.environ.get(TOKEN_PATH) or (Path.home() / TOKEN_FILE).exists())


def own_address(address: str) -> bool:
    """Whether `host:port` is this machine, judged by the local address a socket to it would have. Nothing is sent.

    >>> own_address("127.0.0.1:6379"), own_address("192.0.2.255:6379"), own_address("nonsense")
    (True, False, False)
    """
    host, _, port = address.partition("://")[2].rpartition(":") if "://" in address else address.rpartition(":")
    try:
        family, _, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return bool(probe.getsockname()[0] == target[0])
    except (OSError, ValueError, OverflowError, UnicodeError):
        return False


def _connect(cluster: Any, address: str) -> None:
    """Start a local Ray cluster without a dashboard, or connect to one at an address and send it this package's code."""
    own = {"include_dashboard": False} if address == "local" else {"runtime_env": {"py_modules": [str(PACKAGE)]}}
    try:
        cluster.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, ValueError, RuntimeError, OSError, cluster.exceptions.RayError) as problem:
        message = msg("error.ray-unreachable", address=address, why=str(problem).strip().partition("\n")[0])
        may_lack_token = address not in ADDRESSES and os.environ.get(MODE) != "token"
        hint = msg("hint.ray-token" if may_lack_token else "hint.ray-unreachable")
        raise NoAnswer("ray-unreachable", message, hint) from problem


def _fetch(cluster: Any, reference: Any, address: str) -> Any:
    """Return the result of a Ray task, or raise the error of the task itself instead of Ray's wrapper around it."""
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
