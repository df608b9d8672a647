"""The system's Chromium driven by Playwright, and a local server to open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1360, "height": 900}
POLL_MILLISECONDS = 100
PATIENCE_SECONDS = 300.0  # A busy machine must not fail a page.
WEB = ("whichgpu", "web", "--port", "0", "--workers")


def chromium() -> str | None:
    """Path of the system's Chromium, or None."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


@contextmanager
def serving(workers: int = 1, module: tuple[str, ...] = WEB) -> Iterator[str]:
    """Address of a server started on a free port of this machine, for the duration of the context: `whichgpu web` by default.

    `module` is the module to run with its arguments, to which the number of workers is added.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-m", *module, str(workers)]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment, cwd=ROOT
    ) as server:
        try:
            assert server.stderr is not None
            output = ""
            for line in server.stderr:
                output += line
                if match := re.search(r"http://[0-9.]+:\d+", line):
                    yield match[0]
                    return
            raise RuntimeError(f"the server did not start: {output}")
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser for the duration of the context."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def until(page: Any, script: str, value: Any = None, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until an expression holds; polled from outside, since the pages' security policy forbids evaluation inside."""
    end = time.monotonic() + seconds
    while not page.evaluate(script, value):
        if time.monotonic() > end:
            raise TimeoutError(f"still not so after {seconds:g} s: {script} ({value})")
        page.wait_for_timeout(POLL_MILLISECONDS)


def drawn(page: Any) -> None:
    """Wait until every chart of a page is drawn."""
    until(page, "() => [...document.querySelectorAll('[data-chart]')].every(plot => plot.dataset.drawn)")
