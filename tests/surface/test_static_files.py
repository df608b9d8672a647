"""Scripts and styles are compressed, and cached for ever under the digest of their content."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.surface.web_inside import InsideService, TestClient, web_client
from whichgpu.surface.web.static_files import FOLDER, static_url


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with web_client(InsideService()) as client:
        yield client


def test_every_file_of_a_page_is_immutable_and_compressed(client: TestClient) -> None:
    urls = re.findall(r'(?:href|src)="(/static/[^"]+)"', client.get("/gpus?name=T4").text)
    assert len(urls) >= 5
    for url in urls:
        reply = client.get(url)
        assert (reply.status_code, reply.headers["content-encoding"]) == (200, "gzip"), url
        assert "immutable" in reply.headers["cache-control"], url
        assert reply.content == (FOLDER / url.rpartition("/")[2]).read_bytes()


def test_modules_that_scripts_import_are_there_by_relative_urls(client: TestClient) -> None:
    for path in FOLDER.glob("*.js"):
        for name in re.findall(r'(?:from |import\()"\./([a-z]+\.js)"', path.read_text()):
            assert client.get(static_url(name)).status_code == 200, (path.name, name)


def test_an_old_digest_is_not_found_and_a_bare_name_is_revalidated(client: TestClient) -> None:
    assert client.get("/static/0123456789abcdef/page.css").status_code == 404
    bare = client.get("/static/page.css")
    assert bare.headers["cache-control"] == "private, no-cache"
    assert client.get("/static/page.css", headers={"if-none-match": bare.headers["etag"]}).status_code == 304


def test_the_chart_script_is_named_with_its_version(client: TestClient) -> None:
    page = client.get("/gpus?name=T4").text
    assert re.search(r'data-vega="/assets/vega\.js\?v=[^"]+"', page)
    assert "vega" not in "".join(re.findall(r"<script[^>]*src[^>]*>", page))  # loaded only by a page with a chart
