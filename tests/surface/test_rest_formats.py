"""What programs rely on around an answer: CSV, tags that spare the computation, limits, field names in errors, metrics."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import whichgpu
from tests.surface.cli import call
from tests.surface.web_inside import InsideService, TestClient, web_client

TABLE = "text/csv; charset=utf-8"


@pytest.fixture(scope="module")
def service() -> InsideService:
    return InsideService()


@pytest.fixture(scope="module")
def client(service: InsideService) -> Iterator[TestClient]:
    with web_client(service) as client:
        yield client


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_an_endpoint_answers_in_csv_by_its_ending_or_the_accept_header(client: TestClient) -> None:
    expected = call("gpus", "T4", "L4", "--csv").out
    path = "/api/v1/gpus?name=T4&name=L4"
    accepted = client.get(path, headers={"accept": "application/json;q=0.5, text/csv"})
    for reply in (client.get("/api/v1/gpus.csv?name=T4&name=L4"), accepted):
        assert (reply.status_code, reply.headers["content-type"]) == (200, TABLE)
        assert reply.text == expected
        assert "Accept," in reply.headers["vary"]
    for accept in ("text/csv;q=0.4, application/json", "*/*", "text/csv;q=x"):
        assert client.get(path, headers={"accept": accept}).json()["gpus"], accept
    assert client.post("/api/v1/gpus.csv", json={"name": ["T4", "L4"]}).text == expected
    assert client.get("/api/v1/gpus.csv?name=H101").json()["error"]["kind"] == "unknown-gpu"


def test_pages_of_csv_follow_each_other(client: TestClient) -> None:
    whole = rows(client.get("/api/v1/gpus.csv?vendor=nvidia").text)
    path, all_rows = "/api/v1/gpus.csv?vendor=nvidia&limit=60", []
    while path:
        reply = client.get(path)
        header, *page = rows(reply.text)
        assert header == whole[0]
        all_rows += page
        path = reply.headers.get("link", "").partition("<")[2].partition(">")[0]
    assert all_rows == whole[1:]
    first = client.get("/api/v1/offers.csv?gpu=H100&limit=3")
    assert len(rows(first.text)) == 4
    assert "offset=3" in first.headers["link"]


def test_an_answer_that_the_client_has_is_not_computed_again(client: TestClient, service: InsideService) -> None:
    path = "/api/v1/gpus?name=L4"
    tag = client.get(path).headers["etag"]
    count = len(service.computed)
    again = client.get(path, headers={"if-none-match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert len(service.computed) == count
    for other in ("/api/v1/gpus?name=T4", "/api/v1/gpus.csv?name=L4", "/api/v1/gpus?name=L4&lang=ko"):
        assert client.get(other, headers={"if-none-match": tag}).status_code == 200, other
    service._stamp = (service._stamp[0] + 10**6, "other prices")
    assert client.get(path, headers={"if-none-match": tag}).status_code == 200
    service._stamp = (-1.0, "")


def test_replies_say_how_many_questions_a_client_may_have_under_way(client: TestClient) -> None:
    headers = client.get("/api/v1/gpus?name=T4").headers
    assert headers["ratelimit-policy"] == '"questions";q=128;qu="concurrent-requests"'
    assert headers["ratelimit"] == '"questions";r=128'


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("estimate?task=train&model=resnet50&gpu=T4&batch=10&micro_batch=4", "micro_batch"),
        ("compare?name=T4&task=decode", "model"),
        ("offers?max_latency=50ms", "near"),
    ],
)
def test_errors_name_fields_and_never_flags(client: TestClient, path: str, name: str) -> None:
    error = client.get(f"/api/v1/{path}").json()["error"]
    text = f"{error['message']} {error['hint']}".partition("whichgpu ")[0]
    assert name in text
    assert "--" not in text


def test_metrics_are_in_the_format_of_prometheus(client: TestClient) -> None:
    client.get("/api/v1/gpus?name=T4")
    client.get("/no/such/page/of/ours")
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in reply.text.splitlines() if not line.startswith("#"))
    assert float(values['whichgpu_http_requests_total{route="/api/v1/gpus",status="200"}']) >= 1
    assert values['whichgpu_http_requests_total{route="other",status="404"}'] == "1"
    count = values['whichgpu_http_request_seconds_count{route="/api/v1/gpus"}']
    assert values['whichgpu_http_request_seconds_bucket{route="/api/v1/gpus",le="+Inf"}'] == count
    assert values['whichgpu_jobs{state="running"}'] == values["whichgpu_workers"] == "0"


def test_the_page_about_the_api_has_a_form_for_each_endpoint_and_no_script_of_others(client: TestClient) -> None:
    page = client.get("/docs").text
    assert page.count("data-try>") >= 18
    assert '<input name="model" value="llama-3.1-8b"' in page
    assert "https://" not in page
    assert client.get("/api/v1").json()["docs"] == "/docs"


def test_the_state_of_the_catalog_names_no_path_of_the_server(client: TestClient) -> None:
    for ending in ("", ".csv"):
        text = client.get(f"/api/v1/catalog/status{ending}").text
        assert str(Path(whichgpu.__file__).parent) not in text, ending
        assert str(Path.home()) not in text, ending
    assert client.get("/api/v1/catalog/status").json()["folder"] == "data"


@pytest.mark.parametrize("size", [{"count": 60_000}, {"count": "40,000", "seq_out": 2000}])
def test_a_simulation_beyond_an_answers_time_is_refused_before_it_starts(client: TestClient, size: dict[str, object]) -> None:
    request = {"task": "serve", "model": "llama-3.1-8b", "gpu": "H100 SXM", "rate": "5/s", **size}
    reply = client.post("/api/v1/estimate", json=request)
    assert (reply.status_code, reply.json()["error"]["kind"]) == (400, "long-simulation"), reply.text
    page = client.get("/plan", params={"what": "server", **{name: str(value) for name, value in size.items()}})
    assert page.status_code == 400
    assert reply.json()["error"]["message"] in page.text
    assert client.post("/api/v1/estimate", json={**request, "count": 200, "seq_out": 50}).status_code == 200
