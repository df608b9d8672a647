"""How the tests reach the server: as a process of its own on a free port of this machine, with folders of its own."""

from __future__ import annotations

import http.client
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
READY_SECONDS = 180.0  # on a busy machine
SMALL = Path(__file__).with_name("web_small.py")


@dataclass(frozen=True)
class Got:
    """One reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must have the one shape errors have."""
        document = self.json()
        assert set(document) == {"ok", "error"}, self.text[:400]
        assert document["ok"] is False
        assert set(document["error"]) == {"kind", "message", "hint", "choices"}
        assert isinstance(document["error"], dict)
        return document["error"]


@dataclass
class Server:
    """A server under test."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    def get(self, path: str, method: str = "GET", body: bytes | None = None, seconds: float = 30.0, **headers: str) -> Got:
        """One request on a connection of its own; underscores of header names are dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            return Got(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def post(self, path: str, value: Any, **headers: Any) -> Got:
        """JSON."""
        return self.get(path, "POST", json.dumps(value).encode(), **{"content_type": "application/json", **headers})

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def answers_others(self, within: float = 5.0) -> None:
        """Another client is answered meanwhile."""
        start = time.monotonic()
        assert self.get("/api/v1/gpus?name=T4", seconds=within).status == 200
        assert time.monotonic() - start < within

    def workers(self) -> list[int]:
        """Its child processes."""
        result = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(word) for word in result.stdout.split()]


@contextmanager
def serving(folder: Path, *argv: str, script: Path | None = None, **variables: str) -> Iterator[Server]:
    """A server; `script` where another than the command is to be run."""
    pytest.importorskip("starlette", reason="the page needs the web extra")
    pytest.importorskip("uvicorn", reason="the page needs the web extra")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WHICHGPU_")}
    environ |= {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CONFIG")}
    environ |= {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))} | variables
    command = [sys.executable, str(script), *argv] if script else [sys.executable, "-m", "whichgpu", "web", "--port", "0", *argv]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ, cwd=folder) as process:
        try:
            yield Server(process, _port(process), folder)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def _port(process: subprocess.Popen[str]) -> int:
    """Read from the line that says where it is."""
    assert process.stderr is not None
    end, output = time.monotonic() + READY_SECONDS, ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while time.monotonic() < end and process.poll() is None:
            if not selector.select(timeout=0.5):
                continue
            line = process.stderr.readline()
            output += line
            if "http://127.0.0.1:" in line:
                return int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
    raise AssertionError(f"the server did not start: {output}")
