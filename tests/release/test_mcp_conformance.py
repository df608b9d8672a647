"""The Model Context Protocol's conformance suite and inspector find nothing wrong with `whichgpu mcp`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from whichgpu.base.messages import language
from whichgpu.surface.mcp.http import LocalServer
from whichgpu.surface.mcp.tools import NAMES

# The suite needs a newer Node.js than many systems have, which the package `node` brings.
PACKAGES = ("@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/inspector@0.15.0", "node@22")
# Scenarios for any server, with the number of checks in each; others call tools of the suite's reference server.
SCENARIOS = {"server-initialize": 1, "ping": 1, "tools-list": 1, "resources-list": 1, "dns-rebinding-protection": 2}
NODE = Path("node_modules") / "node" / "bin" / "node"


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the suite and the inspector."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("node")
    done = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", *PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode or not (folder / NODE).exists():
        pytest.skip(f"no registry with {PACKAGES}: {done.stderr.strip()[-200:]}")
    return folder


@pytest.fixture
def address() -> Iterator[str]:
    """Address of a server on this machine."""
    with LocalServer(0, language("en")) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.url
        server.shutdown()


def run_node(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{folder / NODE.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [str(folder / NODE), *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_of_the_conformance_suite_pass(node_folder: Path, address: str, scenario: str) -> None:
    suite = node_folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    done = run_node(node_folder, str(suite), "server", "--url", address, "--scenario", scenario)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"Passed: {SCENARIOS[scenario]}/{SCENARIOS[scenario]}, 0 failed" in done.stdout


@pytest.mark.long
def test_the_inspector_lists_and_calls_tools_of_the_process(node_folder: Path) -> None:
    def inspect(*options: str) -> dict[str, Any]:
        inspector = node_folder / "node_modules" / "@modelcontextprotocol" / "inspector" / "cli" / "build" / "cli.js"
        done = run_node(node_folder, str(inspector), "--cli", sys.executable, "-m", "whichgpu", "mcp", *options)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        reply: dict[str, Any] = json.loads(done.stdout)
        return reply

    assert tuple(tool["name"] for tool in inspect("--method", "tools/list")["tools"]) == NAMES
    reply = inspect("--method", "tools/call", "--tool-name", "gpus", "--tool-arg", "name=T4")
    assert reply["structuredContent"]["gpus"][0]["id"] == "t4"
    assert not reply["isError"]
