"""Pages show the measurements nearest to their estimates, and predicted against measured times of every source."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.surface.web_inside import InsideService, TestClient, web_client


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with web_client(InsideService()) as client:
        yield client


def test_compare_shows_the_nearest_measurements_of_each_gpu(client: TestClient) -> None:
    page = client.get("/compare?name=H100+SXM&name=A100+SXM+80GB&task=decode&model=llama-3.1-8b").text
    evidence = page.partition('id="evidence"')[2]
    for name in ("H100 SXM", "A100 SXM 80GB"):
        assert f"<summary>{name}</summary>" in evidence


def test_a_models_page_has_the_evidence_of_its_recommendation(client: TestClient) -> None:
    page = client.get("/model/llama-3.1-8b").text
    answer = client.get("/api/v1/recommend?task=serve&model=llama-3.1-8b&limit=10").json()
    assert answer["evidence"]
    assert answer["evidence"][0]["source"] in page


def test_predictions_are_filtered_and_the_worst_come_first(client: TestClient) -> None:
    everything = client.get("/accuracy.json").json()
    some = client.get("/accuracy.json?engine=vllm&model=llama-3.1-8b&worst=40").json()
    assert 0 < some["total"]["rows"] < everything["total"]["rows"]
    assert {pair["engine"] for pair in some["pairs"]} == {"vllm"}
    ratios = [abs(math.log(pair["predicted"] / pair["measured"])) for pair in some["worst"]]
    assert len(ratios) > 15
    assert ratios == sorted(ratios, reverse=True)
    page = client.get("/accuracy?engine=vllm&model=llama-3.1-8b").text
    assert page.count('scope="row"') < client.get("/accuracy?engine=vllm&model=llama-3.1-8b&worst=500").text.count('scope="row"')
    assert "worst=500" in page
    assert client.get("/accuracy?model=no-such-model").status_code == 400


def test_every_source_has_its_own_page(client: TestClient) -> None:
    scores = client.get("/accuracy.json?by=source").json()["scores"]
    name = scores[0]["group"]
    assert len(scores) > 5
    assert client.get("/accuracy", params={"source": name}).status_code == 200, name
