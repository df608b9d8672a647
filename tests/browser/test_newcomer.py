"""A newcomer opens each page and can use it: an answer, charts, captions, labels and contrast, in light and dark."""

from __future__ import annotations

from typing import Any

import pytest
from pages.browser import drawn, until

from tests.browser.looking import PAGES, SOME_LONG, Opener, brief, faults, marks, number_in

LISTS = ("sources", "accuracy")  # pages of the same parts as `gpus` and `prices`


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) if name in LISTS else name for name in PAGES])
@pytest.mark.sweep(4)
def test_page_has_an_answer_and_passes_accessibility_checks(opened: Opener, name: str) -> None:
    page = opened(brief(name))
    assert page.locator("h1").count() == 1
    assert page.locator("nav [aria-current=page]").get_attribute("href") == f"/{name}"
    assert page.locator("#answer table, #answer .sentence").count() > 0
    assert page.locator("#answer table").count() == page.locator("#answer table caption").count()
    assert faults(page) == []


@pytest.mark.parametrize("name", [SOME_LONG[0], *(pytest.param(name, marks=pytest.mark.long) for name in PAGES[1:])])
def test_dark_keeps_its_contrast(opened: Opener, name: str) -> None:
    page = opened(brief(name), "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert faults(page) == []


def test_chosen_theme_survives_a_reload(opened: Opener) -> None:
    page = opened("/sources")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"


def test_address_of_an_answer_reproduces_the_question(opened: Opener, home: str) -> None:
    page = opened("/recommend")
    first = page.locator("#best").inner_text()
    page.check("#f-task-train")
    page.fill("#f-model", "resnet50")
    page.fill("#f-epochs", "90")
    page.fill("#f-samples", "1281167")
    page.click("form button.main")
    until(page, "() => location.search.includes('samples=1281167')")
    until(page, "was => document.querySelector('#best').innerText !== was", first)
    drawn(page)
    second = page.locator("#best").inner_text()
    assert "task=train" in page.url
    assert "model=resnet50" in page.url
    assert "run takes" in second
    shared = opened(page.url, "phone")
    assert shared.locator("#best").inner_text() == second
    assert shared.input_value("#f-epochs") == "90"
    page.go_back()
    until(page, "text => document.querySelector('#best').innerText !== text", second)
    page.go_forward()
    until(page, "text => document.querySelector('#best').innerText === text", second)
    assert page.input_value("#f-model") == "resnet50"


def test_the_front_shows_the_candidates_of_the_json(opened: Opener, home: str) -> None:
    page = opened("/recommend?task=train&model=resnet50&epochs=90&samples=1281167")
    answer = page.request.get(page.url.replace("/recommend?", "/recommend.json?")).json()
    every = {(one["gpu"], one["gpus"], one["instance"]): one for one in (*answer["candidates"], *answer["pareto"])}
    labels = marks(page, "front", "mark-symbol.role-mark")
    assert len(labels) == len(every)
    costs = sorted(number_in(label, "USD") for label in labels)
    assert costs == pytest.approx(sorted(float(one["cost"]["amount"]) for one in every.values()), rel=0.01)
    chosen = [label for label in labels if "the answer" in label]
    assert len(chosen) == 1
    assert f"{answer['answer']['gpus']}× {answer['answer']['gpu_name']}" in chosen[0]


def test_the_bars_show_the_memory_of_the_json(opened: Opener) -> None:
    page = opened("/fit?model=llama-3.1-8b&gpu=H100-SXM&batch=4")
    answer = page.request.get(page.url.replace("/fit?", "/fit.json?")).json()
    sizes = sorted(round(figure["value"] / 2**30, 3) for figure in answer["memory_parts"].values())
    values = sorted(number_in(label, "GiB") for label in marks(page, "memory", "mark-rect.role-mark") if "part: " in label)
    assert values == pytest.approx(sizes, abs=0.002)


def test_a_slider_redraws_the_bars(opened: Opener) -> None:
    page = opened("/fit?model=llama-3.1-8b&gpu=H100-SXM&batch=4")
    before = marks(page, "memory", "mark-rect.role-mark")
    slider = page.locator("[data-slider=batch] input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#bars[data-redrawn]")
    assert marks(page, "memory", "mark-rect.role-mark") != before
    until(page, "() => location.search.includes('batch=6')")
    answer: Any = page.request.get(page.url.replace("/fit?", "/fit.json?")).json()
    drawn(page)
    sizes = sorted(round(figure["value"] / 2**30, 3) for figure in answer["memory_parts"].values())
    values = sorted(number_in(label, "GiB") for label in marks(page, "memory", "mark-rect.role-mark") if "part: " in label)
    assert values == pytest.approx(sizes, abs=0.002)


def test_gpus_are_put_in_order_and_compared(opened: Opener) -> None:
    page = opened("/gpus?name=A100&name=H100")
    page.click("#basket thead a:has-text('memory bandwidth')")
    page.wait_for_selector("#basket th[aria-sort=ascending]:has-text('memory bandwidth')")
    page.check("#basket input[value=h100-sxm]")
    page.check("#basket input[value=a100-sxm-80gb]")
    page.click("text=Compare the chosen")
    page.wait_for_selector(".sides")
    assert page.locator(".sides thead th").all_inner_texts()[1:] == ["A100 SXM 80GB", "H100 SXM"]
    assert page.url.count("compare=") == 2
    drawn(page)
    assert len(page.locator("[data-chart=roofline] .mark-line > path").all()) == 2


def test_unanswerable_question_shows_the_reason(opened: Opener) -> None:
    page = opened("/recommend", expecting="status of 422")  # a refusal is a reply of its own, which the browser notes
    page.fill("#f-budget", "0.01usd/h")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer .problem")
    assert "Try it with a change: Budget" in page.locator("#answer .problem").inner_text()
    assert page.input_value("#f-budget") == "0.01usd/h"
    assert page.get_attribute("#f-budget", "aria-invalid") == "true"
    page.click("#answer .relax")
    page.wait_for_selector("#best")
    assert page.locator("[aria-invalid]").count() == 0
