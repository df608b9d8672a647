"""A config is fetched from its host, up to a size limit, and a token is sent to that host only."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.server import Answer, Server
from whichgpu.base.errors import UsageError
from whichgpu.workload.model_files import hub
from whichgpu.workload.model_files.bounded_read import MAX_CONFIG_BYTES, parse_config, read_config
from whichgpu.workload.model_files.json_text import MAX_NESTING, read_object

TINY = json.dumps({"model_type": "llama", "hidden_size": 64}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server().running() as running:
        yield running


def test_token_is_sent_to_the_hub_only(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.on("/config.json", TINY)
    assert hub.fetch(f"{server.url}/config.json", "secret") == TINY
    assert "Authorization" not in server.received[-1].headers
    monkeypatch.setattr(hub, "HOST", "127.0.0.1")
    hub.fetch(f"{server.url}/config.json", "secret")
    assert server.received[-1].headers["Authorization"] == "Bearer secret"
    hub.fetch(f"{server.url}/config.json", None)
    assert "Authorization" not in server.received[-1].headers


def test_a_redirect_to_a_connection_others_can_read_is_not_followed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HOST", "127.0.0.1")
    server.on("/config.json", Answer(302, headers={"Location": f"{server.url}/elsewhere"}))
    server.on("/elsewhere", TINY)
    with pytest.raises(OSError, match=f"redirected to {server.url}/elsewhere"):
        hub.fetch(f"{server.url}/config.json", "secret")
    assert server.paths() == ["/config.json"]


def test_a_redirect_to_a_safe_one_is_followed(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:  # speaks no TLS, but gets a TLS request
        server.on("/config.json", Answer(302, headers={"Location": f"https://127.0.0.1:{other.getsockname()[1]}/there"}))
        greeting: list[bytes] = []

        def listen() -> None:
            caller, _ = other.accept()
            with caller:
                greeting.append(caller.recv(1))

        listening = threading.Thread(target=listen)
        listening.start()
        with pytest.raises(OSError, match=r"SSL|EOF|[Rr]eset"):
            hub.fetch(f"{server.url}/config.json", None)
        listening.join(5)
    assert greeting == [b"\x16"]  # a TLS handshake


def test_no_more_is_read_than_shows_that_it_is_too_much(server: Server) -> None:
    server.on("/config.json", Answer(endless=True))
    content = hub.fetch(f"{server.url}/config.json", None)
    assert len(content) == MAX_CONFIG_BYTES + 1
    with pytest.raises(UsageError) as refused:
        parse_config(content, "there")
    assert refused.value.message.id == "error.config-too-long"


def test_an_answer_that_is_no_http_is_a_failed_fetch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            caller, _ = other.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(OSError, match="SSH"):
            hub.fetch(f"http://127.0.0.1:{other.getsockname()[1]}/config.json", None)
        answering.join(5)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
def test_configured_cache_folder_gives_its_newest_config(variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv(variable, str(tmp_path / "theirs"))
    folder = tmp_path / "theirs" / "models--org--a"
    for place, (name, width) in enumerate((("0123456", 64), ("6543210", 128))):
        (folder / "snapshots" / name).mkdir(parents=True)
        path = folder / "snapshots" / name / "config.json"
        path.write_text(json.dumps({"hidden_size": width}))
        os.utime(path, (1_000_000 + place, 1_000_000 + place))
    assert hub.hub_config("org/a") == {"hidden_size": 128}
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("../../../etc\n")  # no commit: passed over
    assert hub.hub_config("org/a") == {"hidden_size": 128}
    (folder / "refs" / "main").write_text("0123456\n")
    assert hub.hub_config("org/a") == {"hidden_size": 64}


def test_default_cache_folders_are_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(hub, "fetch", lambda url, token: TINY)
    assert hub.hub_config("org/a")["hidden_size"] == 64
    assert (tmp_path / ".cache/whichgpu/hf/org/a/config.json").read_bytes() == TINY
    theirs = tmp_path / ".cache/huggingface/hub/models--org--b/snapshots/0123456"
    theirs.mkdir(parents=True)
    (theirs / "config.json").write_text('{"hidden_size": 256}')
    assert hub.hub_config("org/b") == {"hidden_size": 256}


def test_a_cache_that_cannot_be_written_costs_a_fetch_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    requests: list[str] = []

    def fetched(url: str, token: str | None) -> bytes:
        requests.append(url)
        return TINY

    monkeypatch.setattr(hub, "fetch", fetched)
    assert hub.hub_config("org/a") == hub.hub_config("org/a")
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' is given twice"),
        ('{"a": ' + "1" * 5000 + "}", "a number has 5000 digits"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ("[1]", "an object is wanted, not list"),
        ('{"a":' + "[" * MAX_NESTING + "1" + "]" * MAX_NESTING + "}", "nested too deeply"),
        ('{"a":' + "[" * 200_000, "nested too deeply"),
    ],
)
def test_ambiguous_or_empty_json_is_refused_with_a_message(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_object(text)


def test_json_as_deep_as_is_allowed_is_read() -> None:
    deepest = '{"a":' + "[" * (MAX_NESTING - 1) + "1" + "]" * (MAX_NESTING - 1) + "}"
    assert list(read_object(deepest)) == ["a"]


def test_a_file_with_a_mark_of_its_order_is_read_and_a_folder_is_not(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + TINY)
    assert read_config(tmp_path / "config.json")["hidden_size"] == 64
    with pytest.raises(UsageError) as refused:
        read_config(tmp_path)
    assert refused.value.kind == "file-unreadable"
    assert "Is a directory" in str(refused.value)
