"""A page without an answer keeps its form as it was typed, marks the invalid field, and links to changes that have an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from tests.surface.web_inside import InsideService, TestClient, web_client
from whichgpu.surface.web.responses import HttpRefusal
from whichgpu.surface.web.server.cost import CostEstimates
from whichgpu.surface.web.server.frames import Question
from whichgpu.surface.web.server.service import page_question
from whichgpu.surface.web.server.worker import compute

FORM = re.compile(r'<form class="(?:ask|filters)[^>]*>.*?</form>', re.DOTALL)
CONTROL = re.compile(r"<(?:input|textarea|select)([^>]*)>")
TYPED = ("text", "number", "search", "date")
# Fewer rows and requests than by default.
BRIEF: dict[str, dict[str, str]] = {"accuracy": {"gpu": "T4", "worst": "5"}, "gpus": {"name": "A100"}, "prices": {"limit": "5"}}
PAGES = ("recommend", "fit", "compare", "plan", "buy", "gpus", "models", "prices", "accuracy", "sources")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with web_client(InsideService()) as client:
        yield client


def controls(html: str) -> dict[str, dict[str, str]]:
    """Attributes of the form's controls by name: the first with a value, else the first."""
    form = FORM.search(html)
    assert form is not None, "the form is lost"
    inputs: dict[str, dict[str, str]] = {}
    for match in CONTROL.finditer(form[0]):
        attributes = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', match[1])}
        if name := attributes.get("name"):
            inputs.setdefault(name, attributes)
    return inputs


def links(html: str) -> list[str]:
    """Addresses of the changes that a page without an answer proposes."""
    section = re.search(r'<section class="card problem".*?</section>', html, re.DOTALL)
    assert section is not None
    return [unescape(url) for url in re.findall(r'<a [^>]*href="([^"]+)" data-swap', section[0])]


@pytest.mark.parametrize(
    ("address", "field", "wants"),
    [
        ("/fit?model=lama-3.1-8b&batch=7", "model", "llama-3.1-8b"),
        ("/fit?model=~/gpt2&batch=7", "model", None),
        ("/compare?name=T4,H10&batch=7", "name", "A10"),
        ("/fit?batch=-5&seq_in=77", "batch", None),
        pytest.param("/recommend?deadline=5h&rate=3/s", "deadline", None, marks=pytest.mark.long),
        ("/gpus?min_memory=5000GB&vendor=AMD", "min_memory", None),
        ("/sources?find=zzz9", "find", None),
    ],
)
@pytest.mark.sweep(2)
def test_the_form_is_kept_the_field_marked_and_a_change_proposed(
    client: TestClient, address: str, field: str, wants: str | None
) -> None:
    reply = client.get(address)
    assert reply.status_code in (400, 422)
    inputs = controls(reply.text)
    for name, texts in parse_qs(address.partition("?")[2]).items():
        if name in inputs and inputs[name].get("type") in TYPED:
            assert inputs[name]["value"].replace(", ", ",") == texts[-1]
    assert inputs[field].get("aria-invalid") == "true"
    assert "problem-text" in inputs[field]["aria-describedby"].split()
    assert [name for name, one in inputs.items() if "aria-invalid" in one] == [field]
    urls = links(reply.text)
    assert client.get(urls[0]).status_code == 200
    assert wants is None or any(wants in parse_qs(url.partition("?")[2])[field] for url in urls[1:])


def test_a_pasted_config_that_is_invalid_stays_in_its_box(client: TestClient) -> None:
    html = client.get("/fit", params={"model": '{"model_type": "gpt2"}', "gpu": "T4"}).text
    box = re.search(r'<textarea id="f-model-config"([^>]*)>(.*?)</textarea>', html)
    assert box is not None
    assert 'aria-invalid="true"' in box[1]
    assert unescape(box[2]) == '{"model_type": "gpt2"}'


def test_pages_have_labels_instead_of_field_names(client: TestClient) -> None:
    html = client.get("/recommend?rate=many").text
    assert "Requests cannot be &#39;many&#39;" in html


@pytest.mark.long
def test_reasons_have_labels_instead_of_flags(client: TestClient) -> None:
    html = client.get("/recommend?budget=0.01usd/h&gpu=T4").text
    section = re.search(r'<section class="card problem".*?</section>', html, re.DOTALL)
    assert section is not None
    assert "cost more than Budget" in section[0]
    assert "--" not in re.sub(r"<[^>]+>", "", section[0])


def test_of_many_choices_a_dozen_is_linked(client: TestClient) -> None:
    html = client.get("/accuracy?model=zzz").text
    assert len(links(html)) == 13  # and the link without the model
    assert "choose one of" not in html


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_every_field_that_can_be_typed_is_kept_and_marked(client: TestClient, page: str) -> None:
    base: dict[str, Any] = BRIEF.get(page, {})
    for name, one in controls(client.get(f"/{page}?{urlencode(base)}").text).items():
        for text in ("zz!9", "-5"):
            if one.get("type") not in TYPED or name == "lang":
                continue
            reply = client.get(f"/{page}?{urlencode({**base, name: text})}")
            if reply.status_code == 200:
                continue
            field = controls(reply.text)[name]
            assert (reply.status_code in (400, 422), field["value"], field.get("aria-invalid")) == (True, text, "true"), (
                name,
                text,
            )
            assert client.get(links(reply.text)[0]).status_code == 200, (name, text)


def test_every_invalid_field_is_marked_with_its_own_problem(client: TestClient) -> None:
    params = {"task": "train", "model": "resnet50", "budget": "much", "deadline": "soon", "gpu": "H101"}
    reply = client.get("/recommend", params=params)
    assert reply.status_code == 400
    fields = controls(reply.text)
    for name in ("budget", "deadline", "gpu"):
        assert (fields[name]["value"], fields[name]["aria-invalid"]) == (params[name], "true")
        assert f"problem-{name}" in fields[name]["aria-describedby"]
        assert f'id="problem-{name}"' in reply.text
    assert "aria-invalid" not in fields["model"]
    assert client.get(links(reply.text)[0]).status_code == 400  # A known GPU, and still two invalid fields.
    documents = [client.get("/recommend.json", params=params).json(), client.get("/api/v1/recommend", params=params).json()]
    for document in documents:
        assert document["error"]["fields"].keys() == {"budget", "deadline", "gpu"}


def test_a_refused_model_is_reported_with_other_invalid_fields(client: TestClient) -> None:
    params = {"model": "~/gpt2", "batch": "-5", "gpu": "H101"}
    for address in ("/fit", "/fit.json", "/api/v1/fit"):
        reply = client.get(address, params=params)
        assert reply.status_code == 400
        if address == "/fit":
            assert [name for name, field in controls(reply.text).items() if "aria-invalid" in field] == ["model", "batch", "gpu"]
        else:
            assert reply.json()["error"]["fields"].keys() == params.keys()
    unknown = client.get("/api/v1/fit", params={"modle": "gpt2", "batch": "-5"}).json()
    assert unknown["error"]["fields"].keys() == {"modle", "batch"}
    missing = client.get("/api/v1/fit", params={"batch": "-5"}).json()
    assert missing["error"]["fields"].keys() == {"model", "batch"}


def test_a_page_that_took_too_long_keeps_its_form_and_is_no_error_of_the_server() -> None:
    refusal = {"kind": "too-long", "values": {"seconds": "20"}}
    for name, query in (("plan", "rate=7/s"), ("recommend", "task=serve&model=llama-3.1-70b&budget=5usd/h")):
        question = {**page_question(name, query=query), "refusal": refusal}
        assert not CostEstimates().is_costly(question)
        reply = compute(question)
        assert (reply.status, reply.content_type) == (422, "text/html; charset=utf-8")
        page = reply.body.decode()
        assert "20 s" in re.search(r'<section class="card problem".*?</section>', page, re.DOTALL)[0]  # type: ignore[index]
        assert 'id="f-model"' in page
        assert "7/s" in page or "5usd/h" in page


def test_an_unexpected_exception_on_a_page_is_a_page_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("whichgpu.surface.web.rendering.view_named", fail)
    reply = compute(page_question("plan", query="rate=7/s", lang="ko"))
    assert (reply.status, reply.content_type) == (500, "text/html; charset=utf-8")
    assert "ZeroDivisionError" in reply.body.decode()
    assert "Traceback" not in reply.body.decode()
    assert compute(page_question("plan", "json")).content_type == "application/json"


class RefusingService(InsideService):
    """A service that refuses every question for one reason."""

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__()
        self.refusal = refusal

    async def ask(self, question: Question, client: str, drawing: bool = False) -> dict[str, Any]:
        raise self.refusal


@pytest.mark.parametrize(
    ("refusal", "has_form"),
    [
        (HttpRefusal(429, "many-questions", {"Retry-After": "2"}, n=4), True),
        (HttpRefusal(503, "busy", {"Retry-After": "5"}), True),
        (HttpRefusal(500, "lost"), True),
        (HttpRefusal(404, "not-found"), False),
    ],
)
def test_a_refused_question_can_be_repeated_without_javascript(refusal: HttpRefusal, has_form: bool) -> None:
    config = '{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "intermediate_size": 5632, "<b>": 1}'
    params = [("rate", "5/s"), ("term", "spot"), ("term", "on-demand"), ("model", config), ("lang", "ko")]
    with web_client(RefusingService(refusal)) as client:
        reply = client.get("/plan", params=params, headers={"Accept": "text/html"})
        document = client.get("/plan.json", params=params).json()
    assert reply.status_code == refusal.status
    assert reply.headers.get("retry-after") == refusal.headers.get("Retry-After")
    form = re.search(r'<form class="retry" method="get" action="/plan"[^>]*>.*?</form>', reply.text, re.DOTALL)
    assert (form is not None) == has_form
    if form is not None:
        inputs = re.findall(r'<input type="(?:text|hidden)"[^>]* name="([^"]+)" value="([^"]*)"', form[0])
        areas = re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>(.*?)</textarea>', form[0], re.DOTALL)
        assert sorted((name, unescape(value)) for name, value in (*inputs, *areas)) == sorted(params)
        assert "<b>" not in form[0]
    assert document["error"]["kind"] == refusal.kind


def test_the_valid_names_of_a_list_are_kept(client: TestClient) -> None:
    for address in ("/buy?name=RTX+4090,H100", "/compare?name=RTX+4090,H10"):
        urls = links(client.get(address).text)
        assert parse_qs(urls[0].partition("?")[2])["name"] == ["RTX 4090"]
        assert all("RTX 4090" in parse_qs(url.partition("?")[2])["name"] for url in urls[1:])
        assert client.get(urls[0]).status_code == 200
