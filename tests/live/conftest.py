"""A server, a client that does not really wait, and small catalogs to serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.server import Server
from tests.live.source_harness import TODAY, SourceHarness
from whichgpu.catalog.live.http import Client
from whichgpu.catalog.live.resolve import Resolver
from whichgpu.catalog.live.rows import SourceRequest
from whichgpu.catalog.store import Catalog


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as running:
        yield running


@pytest.fixture
def waits() -> list[float]:
    """Seconds the client would have waited."""
    return []


@pytest.fixture
def client(waits: list[float]) -> Iterator[Client]:
    client = Client(sleep=waits.append, timeout=5.0, max_body_seconds=3.0)
    yield client
    client.close()


@pytest.fixture(scope="session")
def resolver(catalog: Catalog) -> Resolver:
    return Resolver(catalog)


@pytest.fixture
def source_request(client: Client, resolver: Resolver, catalog: Catalog) -> SourceRequest:
    return SourceRequest(client, TODAY, machine_of=resolver.machine_of, machines=catalog.instances)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the store of a test lies."""
    return tmp_path / "store"


@pytest.fixture
def harness(catalog: Catalog, folder: Path, server: Server, never_waits: None) -> SourceHarness:
    return SourceHarness(catalog, folder, server)


@pytest.fixture
def never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    import whichgpu.catalog.live.refresh as module

    def quick(**settings: Any) -> Client:
        return Client(**{**settings, "sleep": lambda _: None, "max_body_seconds": 0.3, "timeout": 5.0})

    monkeypatch.setattr(module, "Client", quick)
