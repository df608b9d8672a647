"""Pages as functions of their address: each answers in every form, with the numbers of its command, in HTML without faults."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote_plus, urlencode

import pytest

pytest.importorskip("jinja2", reason="the page needs the web extra")

from whichgpu.base.messages import english
from whichgpu.surface.web.command_replies import HttpReply
from whichgpu.surface.web.rendering import render_page
from whichgpu.surface.web.views import PAGES
from whichgpu.surface.web.views.single_file import single_file
from whichgpu.surface.web.worker_answers import rest

VOID = ("meta", "link", "input", "br", "img", "path", "circle", "rect", "hr", "col")
BRIEF = {"accuracy": "gpu=T4", "gpus": "name=H100", "sources": "find=h100", "plan": "what=server&count=200"}


class Whole(HTMLParser):
    """Every tag closed, every id once, every input named by a label."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.inputs: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert "style" not in attributes, f"<{tag} style>: the policy forbids it"
        assert not any(name.startswith("on") for name in attributes), f"<{tag} {attributes}>"
        if attributes.get("id"):
            self.ids.append(str(attributes["id"]))
        if tag == "label" and attributes.get("for"):
            self.labelled.add(str(attributes["for"]))
        if tag in ("input", "select") and attributes.get("type") not in ("hidden", "radio", "checkbox"):
            self.inputs.append(attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def page(name: str, query: str = "", ending: str = "html") -> HttpReply:
    return render_page(name, ending, query, english())


def read(reply: HttpReply) -> Whole:
    parser = Whole()
    parser.feed(reply.body.decode())
    return parser


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.sweep(2)
def test_a_page_is_whole(name: str) -> None:
    reply = page(name, BRIEF.get(name, ""))
    assert reply.status == 200
    assert b"&lt;wbr" not in reply.body  # Places at which names may wrap are no text.
    parsed = read(reply)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    for one in parsed.inputs:
        assert one.get("aria-label") or one.get("id") in parsed.labelled, one


def read_as(sentence: str) -> str:
    """The page to which a sentence leads, without the sentence itself, which that page displays."""
    reply = page("start", urlencode({"q": sentence}))
    location, sign, sentence_part = reply.headers["Location"].partition("q=")
    assert (reply.status, sign, unquote_plus(sentence_part)) == (303, "q=", sentence)
    return location.rstrip("?&")


def test_the_start_page_answers_common_questions_and_reads_a_sentence() -> None:
    answers = json.loads(page("start", "", "json").body)["answers"]
    assert [one["question"] for one in answers] == ["chat", "finetune", "train", "home"]
    html = unescape(page("start").body.decode())
    for one in answers:
        assert one["gpu"], one
        assert one["url"] in html, one
    location = read_as("fine-tune llama-3.1-8b on a gpu for $5/h")
    assert location == "/recommend?task=finetune&model=llama-3.1-8b&budget=5usd%2Fh"
    assert read_as("best gpu to run a 70b").endswith("-70b")
    assert page("start", "q=how+is+the+weather").status == 422


def test_the_sentence_box_reads_figures_and_refuses_those_it_cannot_read() -> None:
    location = read_as("train llama-3.1-70b on 1T tokens in 90 days on aws")
    assert location == "/recommend?task=train&model=llama-3.1-70b&provider=aws&tokens=1T&deadline=90d"
    assert read_as("does llama 3.1 70b fit an A100") == "/fit?model=llama-3.1-70b&gpu=a100"
    assert read_as("price history of H100 SXM") == "/prices?gpu=h100-sxm"
    location = read_as("can I fine-tune an 8b on my RTX 3090")
    assert location == "/fit?model=llama-3.1-8b&task=finetune&gpu=rtx-3090"
    assert read_as("train resnet50 in Seoul") == "/recommend?task=train&model=resnet50&region=seoul"
    assert json.loads(page("start", "q=train+resnet50+in+Atlantis", "json").body)["ignored"] == ["atlantis"]
    location = page("start", "q=does+gpt2+fit+a+T4+in+Seoul").headers["Location"]
    html = unescape(page("fit", location.partition("?")[2]).body.decode())
    assert 'name="q" value="does gpt2 fit a T4 in Seoul"' in html
    assert "These words changed nothing in the answer: seoul." in html
    reply = page("start", "q=train+resnet50+in+3+quarters")
    assert reply.status == 400
    html = unescape(reply.body.decode())
    assert "not understood: 3 quarters" in html
    assert "--" not in re.findall(r'role="alert".*?</', html, re.S)[0]


def test_a_recommendation_without_a_model_has_nothing_to_launch() -> None:
    query = "buy=true&budget=1000eur&any_model=true"
    assert page("recommend", query).status == 200
    reply = rest({"endpoint": "recommend", "query": "task=serve&buy=true&emit=vllm"}, english(), None)
    assert (reply.status, json.loads(reply.body)["error"]["kind"]) == (400, "emit-no-model")


def test_a_reason_that_the_range_of_the_estimate_puts_in_doubt_is_not_ticked() -> None:
    query = "task=train&model=resnet50&gpu=T4&gpus=1&risk=even"
    ranges = json.loads(page("recommend", query, "json").body)["answer"]["run_time"]
    deadlines = {"unsure": ranges["value"] * 1.02, "": ranges["high"] * 1.2}
    for name, seconds in deadlines.items():
        html = page("recommend", f"{query}&deadline={seconds:.0f}s").body.decode()
        matches = re.findall(r'<li(?: class="(\w+)")?>\d+% likely to keep its limits', html)
        assert matches == [name]


def test_a_page_without_an_answer_has_reasons_and_a_change_that_works() -> None:
    reply = page("recommend", "task=serve&model=llama-3.1-70b&budget=0.01usd%2Fh&rate=5%2Fs&mode=service")
    assert reply.status == 422
    html = reply.body.decode()
    assert 'class="reasons-table"' in html
    link = re.search(r'class="relax" href="/recommend\?([^"]+)"', html)
    assert link is not None
    assert page("recommend", unescape(link[1])).status == 200
    for name, text in (("budget", "much"), ("gpu", "H1000"), ("seq_in", "many")):
        html = page("recommend", f"{name}={text}").body.decode()
        assert re.search(rf'name="{name}" value="{text}"[^>]* aria-invalid="true"', html), name


def test_the_compare_page_has_bars_prices_and_reasons() -> None:
    html = page("compare", "name=H100+SXM,L4,T4&model=llama-3.1-8b").body.decode()
    assert html.count('class="bar"') == 4
    assert html.count('<tr class="unfit">') == 1
    assert "GiB usable" in html.partition("unfit")[2]
    assert "as spot" not in html  # A GPU that is rented on demand has that price.
    assert "EUR" not in html  # The costs that the bars compare are in one currency.
    assert page("compare", "name=RTX").status == 400


def test_pages_of_one_subject_are_linked_and_named_in_the_path() -> None:
    def subject(name: str, text: str, ending: str = "html") -> HttpReply:
        return render_page(name, ending, "", english(), subject=text)

    assert '<a href="/gpu/t4">' in page("gpus", "name=T4").body.decode()
    assert '<a href="/model/gpt2">' in page("models", "name=gpt2").body.decode()
    assert '<a href="/instance/g4dn.xlarge">' in page("prices", "gpu=T4&provider=aws").body.decode()
    html = subject("gpu", "t4").body.decode()
    for part in ("Strengths", "Speed by kind of work", "Llama 3.1 8B", "Lowest price of a GPU hour", "/gpu/t4/history.svg"):
        assert part in html, part
    assert json.loads(subject("gpu", "t4", "json").body)["gpus"][0]["id"] == "t4"
    html = subject("model", "llama-3.1-8b").body.decode()
    for part in ("131,072 tokens", '<a href="/gpu/h100-sxm">', "A million tokens", "vllm serve"):
        assert part in html, part
    assert "GPUs for computing" in subject("instance", "p5.48xlarge").body.decode()
    for name in ("gpu", "model", "instance"):
        assert subject(name, "nothing-of-that-name").status == 404
    assert subject("fit", "t4").status == 404


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("gpus", "fit") else pytest.mark.long) for name in PAGES]
)
def test_twins_are_there_in_every_form(name: str) -> None:
    query = BRIEF.get(name, "")
    assert isinstance(json.loads(page(name, query, "json").body), dict)
    csv, markdown = page(name, query, "csv").body.decode(), page(name, query, "md").body.decode()
    assert csv.count("\n") > 1
    assert "| --- |" in markdown


def test_the_page_shows_the_sentence_of_the_json() -> None:
    query = "task=train&model=resnet50&epochs=90&samples=1281167"
    html = page("recommend", query).body.decode()
    answer: Any = json.loads(page("recommend", query, "json").body)
    assert answer["sentence"] in unescape(html)
    reproduced = answer["reproduce"]["url"].partition("?")[2]
    assert json.loads(page("recommend", reproduced, "json").body)["answer"] == answer["answer"]


def test_every_page_with_a_day_takes_one() -> None:
    for name, query in (("recommend", "as_of=2024-06-01"), ("gpus", "as_of=2019-01-01"), ("prices", "as_of=2024-06-01")):
        assert page(name, query).status == 200
        assert page(name, "as_of=someday").status == 400


def test_fields_of_other_tasks_are_hidden() -> None:
    assert page("recommend", "task=train&model=resnet50&rate=5/s").status == 200


def test_an_empty_field_shows_the_value_used_or_says_that_it_is_an_example() -> None:
    placeholders = {
        name: dict(re.findall(r'name="(\w+)" value="" placeholder="([^"]*)"', page(name).body.decode()))
        for name in ("recommend", "buy")
    }
    assert placeholders["recommend"]["rate"] == "e.g. 5/s"
    assert placeholders["buy"]["years"] == "3"


def test_errors_are_shown_next_to_the_form() -> None:
    reply = page("recommend", "budget=0.01usd/h")
    assert reply.status == 422
    html = reply.body.decode()
    assert 'role="alert"' in html
    assert 'value="0.01usd/h"' in html
    assert page("gpus", "min_memory=lots").status == 400
    assert page("prices", "currency=XYZ").status == 400


def test_error_links_to_the_question_without_the_invalid_part() -> None:
    html = page("fit", "model=llama-3.1-8&batch=4").body.decode()
    assert 'href="/fit?batch=4"' in html
    assert 'href="/fit?model=llama-3.1-8b&amp;batch=4"' in html
    assert 'href="/recommend"' in page("recommend", "model=/etc/passwd").body.decode()


def test_bill_shows_date_and_source_of_each_price() -> None:
    query = "rate=1/s&gpu=L4,A10G&seq_in=200&seq_out=50"
    row = json.loads(page("plan", query, "json").body)["bill"][0]
    html = page("plan", query).body.decode()
    assert row["price_observed_at"] in html
    assert f'href="/sources?find={row["source"]}"' in html


def test_words_from_an_address_stay_words() -> None:
    for name, query in (("gpus", "name=%3Cscript%3Ealert(1)%3C/script%3E"), ("prices", "near=%22%3E%3Cimg+src=x%3E")):
        html = page(name, query).body.decode()
        assert "<script>alert" not in html
        assert "<img src=x>" not in html


def test_slider_requests_the_chart_only() -> None:
    part = json.loads(page("fit", "quick=true&batch=3", "part").body)
    assert list(part["charts"]) == ["memory"]
    whole = json.loads(page("fit", "batch=3", "part").body)
    assert part["charts"]["memory"] == whole["charts"]["memory"]


def test_saved_page_is_self_contained() -> None:
    html = page("fit").body.decode()
    alone = single_file(html, json.loads(page("fit", "", "part").body)["charts"])
    assert "<svg" in alone
    assert not re.search(r"<script|<link|<form|<button|<iframe", alone)
    assert not re.search(r'(?:src|href)="/', alone)


def test_sort_order_is_shown_and_its_link_reverses_it() -> None:
    first = re.search(r"<tbody>.*?</tr>", page("gpus", "name=Apple+M5,T4").body.decode(), re.DOTALL)
    assert first is not None
    assert "TFLOP/s" in first[0]  # GPUs without a known peak come last.
    html = page("gpus", "name=H100&sort=memory_bandwidth").body.decode()
    assert re.search(r'aria-sort="ascending"[^>]*><a href="[^"]*sort=-memory_bandwidth', html)


@pytest.mark.long
def test_short_command_line_names_work_in_page_addresses() -> None:
    query = "task=serve&model=llama-3.1-8b&rate=5/s&"
    short = page("recommend", query + "in=1000&out=300&tpot=50ms", "json")
    whole = page("recommend", query + "seq_in=1000&seq-out=300&tpot_max=50ms", "json")
    assert short.status == 200
    request = json.loads(short.body)["request"]
    assert (request["seq_in"], request["seq_out"], request["tpot_max"]) == (1000, 300, 0.05)
    assert json.loads(whole.body)["request"] == request


def test_unknown_parameters_are_shown_on_the_page_and_refused_by_json_and_csv() -> None:
    reply = page("gpus", "name=H100&bogus=1&lang=en")
    assert reply.status == 200
    assert "no parameter called bogus" in reply.body.decode()
    read(reply)
    refused = page("gpus", "name=H100&bogus=1", "json")
    assert refused.status == 400
    assert json.loads(refused.body)["error"]["kind"] == "unknown-field"
    assert "no parameter" not in page("gpus", "name=H100&lang=en").body.decode()


def test_each_table_of_sources_has_a_name() -> None:
    assert "web." not in re.sub("<[^>]*>", "", page("sources").body.decode())
