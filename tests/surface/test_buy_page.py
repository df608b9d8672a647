"""The buy page has the figures of the command, and a chart of both costs by use."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.surface.cli import call
from tests.surface.web_inside import InsideService, TestClient, web_client


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with web_client(InsideService()) as client:
        yield client


def test_the_page_says_what_the_command_says(client: TestClient) -> None:
    page = client.get("/buy?name=RTX+4090&price=RTX+4090%3D1800usd&use=0.4")
    assert page.status_code == 200
    answer = call("buy", "RTX 4090", "--price", "RTX 4090=1800usd", "--use", "0.4", "--json").json()
    assert f"{answer['rows'][0]['break_even_use']:.0%}" in page.text
    assert client.get("/buy.json?name=RTX+4090&price=RTX+4090%3D1800usd&use=0.4").json() == answer


def test_the_chart_has_both_costs_and_they_cross_at_the_break_even(client: TestClient) -> None:
    part = client.get("/buy.part?name=RTX+4090").json()
    points = part["charts"]["own"]["data"]["values"]
    own = {point["use"]: point["cost"] for point in points if point["kind"] == "own"}
    rent = {point["cost"] for point in points if point["kind"] == "rent"}
    assert len(rent) == 1
    assert [*own.values()] == sorted(own.values(), reverse=True)  # the more it is used, the less an hour costs
    even = 100 * json.loads(client.get("/buy.json?name=RTX+4090").text)["rows"][0]["break_even_use"]
    assert (
        max(use for use, cost in own.items() if cost > min(rent))
        < even
        < min(use for use, cost in own.items() if cost < min(rent))
    )


def test_a_card_of_unknown_price_is_an_error_with_its_hint(client: TestClient) -> None:
    page = client.get("/buy?name=H100+SXM&lang=ko")
    assert page.status_code == 422
    assert "--price" not in page.text


@pytest.mark.parametrize("code", ["en", "ko", "vi", "zh"])
def test_the_page_is_in_each_language(client: TestClient, code: str) -> None:
    page = client.get(f"/buy?lang={code}")
    assert page.status_code == 200
    assert "web." not in page.text.replace("web.dev", "")
