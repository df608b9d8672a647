"""Who may ask, from where, and what the server refuses to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.copies import copy_tables
from tests.surface.cli import assert_refused, call, process
from tests.surface.web import SMALL, Server, serving
from whichgpu.base.errors import UsageError

TOKEN = "a-token-that-is-long-enough"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("locked"), f"token={TOKEN}", "workers=1", script=SMALL) as running:
        yield running


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "[::]", "127.0.0.1.nip.io"])
def test_it_listens_beyond_this_machine_only_with_a_token(host: str) -> None:
    pytest.importorskip("starlette")
    from whichgpu.surface.web.server.serve import check_binding

    with pytest.raises(UsageError, match="token"):
        check_binding(host, None)
    check_binding(host, TOKEN)
    check_binding("127.0.0.1", None)
    check_binding("::1", None)


def test_weak_token_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    file = tmp_path / "token"
    file.write_text("short\n")
    weak = process("web", "--host", "0.0.0.0", "--port", "0", "--token-file", str(file))
    assert_refused(weak, 2)
    assert "16 characters" in weak.err
    assert_refused(process("web", "--host", "0.0.0.0", "--port", "0"), 2)
    assert_refused(call("web", "--port", "0", "--token-file", str(tmp_path / "none")), 2)
    assert_refused(call("web", "--port", "99999"), 2)


def test_port_in_use_is_reported(server: Server) -> None:
    assert_refused(process("web", "--port", str(server.port)), 2)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "", "127.0.0.2", "[::1"]
)
def test_only_configured_host_names_are_answered(server: Server, host: str) -> None:
    reply = server.get("/api/v1/gpus?name=T4", host=host)
    assert (reply.status, reply.error["kind"]) == (421, "host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80", "[::1]"])
def test_names_of_this_machine_are_answered(server: Server, host: str) -> None:
    assert server.get("/api/v1/gpus?name=T4", host=host).status == 200


def test_a_second_host_header_is_refused(server: Server) -> None:
    with server.connect() as bare:
        bare.sendall(b"GET /gpus HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert bare.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.1 421"))


def test_cross_site_requests_may_only_follow_links(server: Server) -> None:
    linked = server.get("/gpus?name=T4", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert linked.status == 200
    for site in ("cross-site", "same-site"):
        embedded = server.get("/api/v1/gpus?name=T4", sec_fetch_site=site, sec_fetch_mode="no-cors")
        assert (embedded.status, embedded.error["kind"]) == (403, "origin")
    own = server.get("/api/v1/gpus?name=T4", sec_fetch_site="same-origin", sec_fetch_mode="cors")
    assert own.status == 200
    assert "access-control-allow-origin" not in own.headers


def test_posts_of_other_sites_are_refused(server: Server) -> None:
    question = {"name": "T4"}
    for origin in (
        "http://evil.example",
        "null",
        f"http://localhost:{server.port + 1}",
        f"http://localhost:{server.port}@evil.example",
    ):
        assert server.post("/api/v1/gpus", question, origin=origin).status == 403, origin
    assert server.post("/api/v1/gpus", question, origin=f"http://127.0.0.1:{server.port}").status == 200
    assert server.post("/api/v1/gpus", question, sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 403


def test_modifying_requests_need_a_header_no_form_can_send(server: Server) -> None:
    job = {"command": "estimate", "task": "decode", "model": "bert-large", "gpu": "T4"}
    assert server.post("/api/v1/jobs", job).error["kind"] == "mark"
    assert server.get("/api/v1/jobs/x", "DELETE").error["kind"] == "mark"
    assert server.get("/api/v1/uploads", "POST", b"a,b\n", content_type="text/csv").error["kind"] == "mark"


def test_server_with_a_token_requires_it(locked: Server) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": TOKEN},
        {"cookie": "whichgpu-token=wrong"},
        {"cookie": "\x7f;="},
    )
    for headers in wrong:
        for path in ("/gpus", "/api/v1/gpus", "/static/page.css", "/api/docs"):
            assert locked.get(path, **headers).status == 401, (path, headers)
    assert locked.get("/gpus?token=wrong").status == 401
    assert locked.get("/gpus?token=%C3%A4").status == 401
    assert locked.get("/api/v1/gpus?name=T4", authorization=f"Bearer {TOKEN}").status == 200


def test_a_browser_shows_the_token_once_and_keeps_it_out_of_addresses(locked: Server) -> None:
    first = locked.get(f"/gpus?name=T4&token={TOKEN}")
    assert (first.status, first.headers["location"]) == (303, "/gpus?name=T4")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert locked.get("/gpus?name=T4", cookie=cookie.partition(";")[0]).status == 200
    assert locked.get(f"//evil.example/?token={TOKEN}").headers["location"].startswith("/evil.example")


def test_a_folder_of_other_facts_is_served(tmp_path: Path) -> None:
    table = copy_tables(tmp_path / "facts") / "gpus.csv"
    table.write_text(table.read_text(encoding="utf-8").replace(",GTX 580 1.5GB,", ",GTX 580 Test,"), encoding="utf-8")
    with serving(tmp_path, "workers=1", f"catalog={tmp_path / 'facts'}", script=SMALL) as running:
        assert running.get("/api/v1/gpus?name=gtx-580-1.5gb").json()["gpus"][0]["name"] == "GTX 580 Test"
        assert running.get("/gpus.json?name=gtx-580-1.5gb").json()["gpus"][0]["name"] == "GTX 580 Test"


def test_config_and_environment_do_not_change_an_address_s_answer(tmp_path: Path) -> None:
    config = tmp_path / "config" / "whichgpu" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('format = "csv"\n[gpus]\nvendor = "amd"\n')
    with serving(tmp_path, "workers=1", script=SMALL, WHICHGPU_GPUS_VENDOR="amd", WHICHGPU_FORMAT="csv") as running:
        assert [gpu["name"] for gpu in running.get("/api/v1/gpus?name=T4").json()["gpus"]] == ["T4"]


def test_new_prices_in_the_user_s_store_are_used(small: Server, tmp_path: Path) -> None:
    def offer_providers() -> list[str]:
        return [offer["provider"] for offer in small.get("/api/v1/offers?gpu=H100+SXM").json()["offers"]]

    prices = tmp_path / "2026-11-14.csv"
    prices.write_text("provider,instance,region,gpu,gpus,term,price\ncolo,one,Seoul,H100 SXM,1,on-demand,2.5\n")
    assert "colo" not in offer_providers()
    done = process("catalog", "import", str(prices), XDG_DATA_HOME=str(small.folder / "data"))
    assert done.code == 0, done.err
    for _ in range(30):
        if "colo" in offer_providers():
            return
        time.sleep(0.1)
    raise AssertionError("the answer of before was kept")
