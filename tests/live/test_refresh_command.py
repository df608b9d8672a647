"""`catalog refresh` and its sources on the command line: failures are named, the rest stored, bars on terminals only."""

from __future__ import annotations

import pytest

from tests.live import answers
from tests.live.server import Answer, Server
from tests.surface.cli import assert_refused, assert_refused_json, call, terminal
from whichgpu.catalog.live.price_store import store_path


@pytest.fixture
def served(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("WHICHGPU_URL_AZURE", f"{server.url}/azure")
    monkeypatch.setenv("WHICHGPU_URL_VAST", f"{server.url}/vast")
    monkeypatch.setattr("whichgpu.catalog.live.http.ATTEMPTS", 1)
    server.on("/azure", answers.azure_page(answers.azure_item()))
    return server


def test_refresh_names_failed_sources_and_stores_the_others(served: Server) -> None:
    served.on("/vast/bundles/", Answer(403))
    reply = call("catalog", "refresh", "azure", "vast")
    assert reply.code == 0
    assert "1 prices read: 1 kept" in reply.err
    assert "failed: vast:" in reply.err
    assert reply.tsv()[1][:2] == ["azure", "USD"]
    document = call("catalog", "refresh", "azure", "vast", "--json").json()
    assert document["failed"] == 1
    assert any(row["problem"] for row in document["snapshots"])


def test_refresh_without_any_reachable_source_is_a_data_error(served: Server) -> None:
    served.on("/vast/bundles/", Answer(403))
    reply = call("catalog", "refresh", "vast")
    assert reply.code == 3
    assert "responded with status 403" in reply.err


def test_dead_network_is_reported_once_per_source_and_leaves_no_store(monkeypatch: pytest.MonkeyPatch, never_waits: None) -> None:
    before = call("catalog", "watch", "--gpu", "L4").err
    for name in ("SKYPILOT", "AZURE"):
        monkeypatch.setenv(f"WHICHGPU_URL_{name}", "http://127.0.0.1:1")
    reply = call("catalog", "refresh", "skypilot", "azure")
    assert reply.code == 3
    lines = reply.err.splitlines()
    assert "  asking skypilot …" in lines
    assert "  azure: failed" in lines
    assert any("23 more parts, not tried" in line for line in lines)
    assert len(lines) < 10
    assert "snapshots" not in reply.err
    assert call("catalog", "watch", "--gpu", "L4").err == before
    store = store_path()
    assert store is not None
    assert not store.exists()


def test_refresh_of_an_unknown_source_or_without_its_key_is_bad_usage() -> None:
    assert_refused(call("catalog", "refresh", "azzure"), 2)
    assert assert_refused_json(call("catalog", "refresh", "azzure", "--json"), 2)["choices"][0] == "azure"
    assert_refused(call("catalog", "refresh", "gcp"), 2)
    assert_refused(call("catalog", "refresh", "azure", "--currency", "XYZ"), 2)


def test_a_terminal_gets_bars_and_a_pipe_none(served: Server) -> None:
    env = {"WHICHGPU_URL_AZURE": f"{served.url}/azure", "COLUMNS": "160"}
    reply = terminal("catalog", "refresh", "azure", env=env)
    assert reply.code == 0, reply.out
    assert "azure" in reply.out
    assert "\x1b" not in call("catalog", "refresh", "azure").err


def test_sources_list_their_content_and_requirements() -> None:
    rows = {row["source"]: row for row in call("catalog", "sources", "--json").json()["sources"]}
    assert set(rows) >= {"skypilot", "gpuhunt", "azure", "aws", "gcp", "runpod", "vast", "lambda"}
    assert rows["gcp"]["needs_key"] == "GOOGLE_API_KEY"
    assert rows["aws"]["only_when_named"] is True
    assert all(len(row["gives"]) > 20 for row in rows.values())
