"""Pages in a real browser: one server and one Chromium for all tests of this folder; each test fails on any console error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pages.browser import DESKTOP, PATIENCE_SECONDS, PHONE, browsing, chromium, drawn, serving

from tests.browser.looking import Opener

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "is_mobile": True, "has_touch": True},
    "bare": {"viewport": DESKTOP, "color_scheme": "light", "java_script_enabled": False},
}


@pytest.fixture(scope="session")
def chromium_browser() -> Iterator[Any]:
    if find_spec("playwright") is None:
        pytest.skip("Playwright is not installed: make test installs it")
    if chromium() is None:
        pytest.skip("there is no Chromium: apt-get install chromium (make test does, where it may)")
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="session")
def home(chromium_browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with no data of the user's own; it comes after the browser, which may be missing."""
    own: Path = tmp_path_factory.mktemp("own")
    environment = {name: os.environ.get(name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    os.environ.update({name: str(own) for name in environment})
    try:
        with serving(2, ("tests.browser.patient_server",)) as address:
            yield address
    finally:
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@pytest.fixture
def opened(chromium_browser: Any, home: str) -> Iterator[Opener]:
    """Open an address with a device's settings; at the end no console may contain an error."""
    contexts: list[Any] = []
    problems: list[str] = []

    expected: list[str] = []

    def note(message: Any) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in expected):
            problems.append(f"{message.type}: {message.text}")

    def failed(request: Any) -> None:
        # The page itself gives a request up if it is left, if an answer is cancelled, if a newer question overtakes it, and if
        # the job whose events it follows has ended.
        kinds = ("fetch", "eventsource")
        given_up = request.failure == "net::ERR_ABORTED" and (request.resource_type in kinds or "/icon.svg" in request.url)
        if not given_up:
            problems.append(f"failed: {request.url}")

    def open_page(address: str, look: str = "light", context: Any = None, expecting: str = "", **settings: Any) -> Any:
        expected.extend(filter(None, [expecting]))
        if context is None:
            context = chromium_browser.new_context(**{**LOOKS[look], **settings})
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_SECONDS * 1e3)
        page.on("console", note)
        page.on("pageerror", lambda problem: problems.append(f"page error: {problem}"))
        page.on("requestfailed", failed)
        page.goto(home + address if address.startswith("/") else address)
        if look != "bare":
            drawn(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
