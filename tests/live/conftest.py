"""A server, a client that does not really wait, and small catalogs to serve."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.live.price_lists import DAY, imported
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


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """Two lists of one cloud, a week apart."""
    folder = tmp_path / "lists"
    folder.mkdir()
    header = "provider,instance,region,gpu,gpus,term,price"
    first, second = (folder / f"colo-{day}.csv" for day in (DAY - timedelta(days=8), DAY - timedelta(days=1)))
    first.write_text(f"{header}\ncolo,one,Seoul,H100 SXM,1,on-demand,2.5\ncolo,two,Seoul,H100 SXM,8,on-demand,20\n")
    second.write_text(f"{header}\ncolo,one,Seoul,H100 SXM,1,on-demand,1.9\ncolo,new,Seoul,L4,1,spot,0.3\n")
    return folder


@pytest.fixture
def filled(lists: Path) -> Path:
    first, second = sorted(lists.iterdir())
    lists.joinpath("colo.csv").write_bytes(first.read_bytes())
    imported(lists / "colo.csv", "--date", (DAY - timedelta(days=8)).isoformat())
    lists.joinpath("colo.csv").write_bytes(second.read_bytes())
    imported(lists / "colo.csv", "--date", (DAY - timedelta(days=1)).isoformat())
    return lists
