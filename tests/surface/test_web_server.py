"""The server's own manners: pages and their twins, tags, compression, headers, names that lead nowhere."""

from __future__ import annotations

import gzip
import time

import pytest

from tests.surface.cli import call
from tests.surface.web import Server

TWINS = {"json": "--json", "csv": "--csv", "md": "--markdown"}


def test_a_page_is_html_with_a_policy_that_allows_no_inline_script(server: Server) -> None:
    page = server.get("/gpus?name=T4")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["x-frame-options"] == "DENY"
    assert "server" not in page.headers
    assert "<script>" not in page.text
    assert " style=" not in page.text
    assert "T4" in page.text


@pytest.mark.parametrize("ending", TWINS)
def test_json_and_csv_of_a_page_equal_the_command_output(server: Server, ending: str) -> None:
    twin = server.get(f"/gpus.{ending}?name=T4")
    assert twin.status == 200
    assert twin.text == call("gpus", "T4", TWINS[ending]).out


def test_page_fragment_can_be_requested(server: Server) -> None:
    part = server.get("/gpus.part?name=T4").json()
    assert set(part) == {"html", "charts", "command", "url"}
    assert "T4" in part["html"]
    assert "<html" not in part["html"]
    assert part["command"].startswith("whichgpu gpus")


def test_the_server_says_that_it_lives_and_is_ready_and_lists_its_endpoints(server: Server) -> None:
    assert server.get("/healthz").json() == {"ok": True}
    assert server.get("/readyz").json()["workers"] >= 1
    listing = server.get("/api/v1").json()
    assert listing["endpoints"]["recommend"] == "/api/v1/recommend"
    assert listing["openapi"] == "/api/v1/openapi.json"


def test_first_answer_takes_less_than_a_second(server: Server) -> None:
    start = time.monotonic()
    assert server.get("/").status == 200
    assert time.monotonic() - start < 1.0


def test_unknown_pages_are_404_as_a_page_or_in_the_one_shape(server: Server) -> None:
    response = server.get("/nowhere", accept="text/html")
    assert (response.status, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert server.get("/nowhere.json").error["kind"] == "unknown-page"
    for path in ("/a/b/c", "/gpus.exe", "/api/v2/gpus", "/api/v1/", "/api/v1/nothing", "/gpus/", "//gpus"):
        reply = server.get(path)
        assert (reply.status, reply.error["kind"]) == (404, "not-found"), path


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/%2e%2e%2f%2e%2e%2fcli%2fmain.py",
        "/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/..\\app.py", "/static/%00", "/static/",
        "/static/page.css%00.html",
    ],
)  # fmt: skip
def test_static_files_are_only_our_own(server: Server, path: str) -> None:
    reply = server.get(path)
    assert reply.status in (400, 404), path
    assert b"import" not in reply.body
    assert b"root:" not in reply.body
    assert server.get("/static/page.css").status == 200


def test_unchanged_content_gets_304(server: Server) -> None:
    first = server.get("/api/v1/gpus?name=T4", accept_encoding="gzip")
    tag = first.headers["etag"]
    for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = server.get("/api/v1/gpus?name=T4", accept_encoding="gzip", if_none_match=header)
        assert (again.status, again.body) == (304, b""), header
        assert again.headers["etag"] == tag
    assert server.get("/api/v1/gpus?name=T4", if_none_match='"other"').status == 200
    plain = server.get("/api/v1/gpus?name=T4")
    assert plain.headers["etag"] != tag  # other bytes, another tag


def test_replies_are_compressed_if_accepted(server: Server) -> None:
    packed = server.get("/api/v1/gpus", accept_encoding="br, gzip;q=0.5")
    plain = server.get("/api/v1/gpus")
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 5
    assert "Accept-Encoding" in packed.headers["vary"]
    assert "content-encoding" not in server.get("/api/v1/gpus", accept_encoding="gzip;q=0").headers


def test_head_request_has_headers_and_no_body(server: Server) -> None:
    head, whole = server.get("/api/v1/gpus?name=T4", "HEAD"), server.get("/api/v1/gpus?name=T4")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_refused(server: Server, method: str) -> None:
    reply = server.get("/gpus", method)
    assert reply.status in (400, 405)
    assert reply.error["kind"] in ("method", "bad-http")
    assert server.get("/gpus", "POST", b"{}", content_type="application/json").status == 405


def test_chart_script_is_served_locally_with_cache_headers(server: Server) -> None:
    script = server.get("/assets/vega.js", accept_encoding="gzip")
    assert script.status == 200
    assert script.headers["content-type"].startswith("text/javascript")
    assert b"window.vegaEmbed" in gzip.decompress(script.body)


def test_the_list_of_endpoints_needs_no_network(server: Server) -> None:
    page = server.get("/api/docs").text
    assert "/api/v1/recommend" in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "https://" not in page
    assert "<script>" not in page


def test_invalid_bytes_in_an_address_are_reported(server: Server) -> None:
    for query in ("name=%ff%fe", "name=%c3%28", "%ff=1"):
        reply = server.get(f"/api/v1/gpus?{query}")
        assert (reply.status, reply.error["kind"]) == (400, "bad-query"), query
    for query in ("name=%00", "name=%ed%a0%80", "name=%F0%9F%98%80", "name=%E2%80%AE", "name=a%0d%0aSet-Cookie:x=1"):
        reply = server.get(f"/api/v1/gpus?{query}")
        assert reply.status == 400, query
        assert "set-cookie" not in reply.headers
        assert reply.error
    for path in ("/%ff", "/%00", "/%ed%a0%80", "/gpus%0d%0aX:1"):
        assert server.get(path).status == 404, path
