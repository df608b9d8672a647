"""Parts of pages: files of a chart, a pasted config.json, the share of each card's memory."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from html import unescape

import pytest

from tests.surface.web_inside import InsideService, TestClient, web_client

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
    "vocab_size": 32000,
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with web_client(InsideService()) as client:
        yield client


def test_a_chart_is_offered_as_svg_png_and_csv(client: TestClient) -> None:
    page = client.get("/buy?name=RTX+4090").text
    urls = [unescape(url) for url in re.findall(r'<li><a href="([^"]+)" download="whichgpu-buy-own\.[a-z]+"', page)]
    assert [url.partition("?")[0] for url in urls] == ["/buy/own.svg", "/buy/own.png", "/buy/own.values.csv"]
    svg, png, values = (client.get(url) for url in urls)
    assert (svg.headers["content-type"], svg.text.lstrip()[:4]) == ("image/svg+xml", "<svg")
    assert (png.headers["content-type"], png.content[:4]) == ("image/png", b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO(values.text)))
    charted = client.get("/buy.part?name=RTX+4090").json()["charts"]["own"]["data"]["values"]
    assert [float(row["cost"]) for row in rows] == [point["cost"] for point in charted]
    assert client.get("/buy/nothing.values.csv").status_code == 404


def test_charts_of_a_gpus_page_have_files_too(client: TestClient) -> None:
    reply = client.get("/gpu/t4/history.values.csv")
    assert reply.status_code == 200, reply.text[:300]
    assert "price" in reply.text.splitlines()[0]


@pytest.mark.parametrize("page", ["fit", "recommend"])
def test_a_config_is_pasted_in_place_of_a_models_name(client: TestClient, page: str) -> None:
    text = json.dumps(CONFIG)
    reply = client.get(f"/{page}", params={"model": ["llama-3.1-8b", text]})  # the box comes after the name
    assert reply.status_code == 200, reply.text[:300]
    area = reply.text.partition('<textarea id="f-model-config"')[2].partition("</textarea>")[0].partition(">")[2]
    assert json.loads(unescape(area)) == CONFIG
    assert '<details class="paste" open>' in reply.text
    plain = client.get(f"/{page}?model=llama-3.1-8b").text
    assert '<details class="paste">' in plain
    bad = client.get(f"/{page}", params={"model": ["", '{"model_type": ']})
    assert bad.status_code == 400


def test_fit_shows_the_share_of_each_cards_memory(client: TestClient) -> None:
    page = client.get("/fit?model=llama-3.1-8b&gpu=RTX+4090&gpu=H100+SXM").text
    answer = client.get("/api/v1/fit?model=llama-3.1-8b&gpu=RTX+4090&gpu=H100+SXM").json()
    for row in answer["gpus"]:
        assert f">{row['needed'] / row['usable']:.0%}</span>" in page
