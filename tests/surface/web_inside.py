"""The web application within the test's own process: no workers are started, and the questions that are computed are counted."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs the web extra")
pytest.importorskip("httpx", reason="Starlette's test client needs httpx")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # httpx serves until the test client needs its successor
    from starlette.testclient import TestClient as TestClient

from whichgpu.surface.web.app import application
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.server.gate import AccessRules
from whichgpu.surface.web.server.limits import Limits
from whichgpu.surface.web.server.service import Service
from whichgpu.surface.web.server.worker import compute, encoded


class InsideService(Service):
    """A service that computes answers at once, in this process."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits or Limits(), workers=1, draws=False)
        self.computed: list[Question] = []

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def ask(self, question: Question, client: str, drawing: bool = False) -> dict[str, Any]:
        self.computed.append(question)
        return encoded(compute(question), question.get("lang"))


def web_client(service: Service, rules: AccessRules | None = None) -> TestClient:
    """A client of the application with this service; redirects are not followed."""
    return TestClient(application(service, rules or AccessRules()), base_url="http://localhost", follow_redirects=False)
