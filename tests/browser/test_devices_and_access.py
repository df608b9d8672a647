"""The pages on a phone, with the keyboard alone, without JavaScript, on paper and as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages.browser import drawn, until

from tests.browser.looking import SOME_LONG, Opener, faults

OUTLINED = """() => {
    const at = document.activeElement;
    const seen = [at, at.nextElementSibling].filter(Boolean).some(one => {
        const style = getComputedStyle(one);
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    });
    const box = at.getBoundingClientRect();
    return { seen, name: at.id || at.name || at.textContent.trim().slice(0, 40), tag: at.tagName, wide: box.width };
}"""


@pytest.mark.parametrize("name", SOME_LONG)
@pytest.mark.sweep(3)
def test_a_phone_shows_all_of_it_in_its_width(opened: Opener, name: str) -> None:
    page = opened(f"/{name}", "phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert page.locator("#best, #basket").first.is_visible()
    if name == "recommend":
        assert faults(page) == []


def test_a_phone_shows_the_answer_first_and_the_form_on_demand(opened: Opener) -> None:
    page = opened("/fit?model=llama-3.1-8b&gpu=H100-SXM", "phone")
    assert not page.locator("form.ask").is_visible()
    assert page.locator("#best").bounding_box()["y"] < page.viewport_size["height"] / 2
    page.tap("label.fold")
    page.fill("#f-batch", "3")
    page.tap("form button.main")
    until(page, "() => location.search.includes('batch=3')")
    until(page, "() => !document.querySelector('form.ask').offsetParent")
    assert page.evaluate("document.activeElement.id") == "answer"
    bare = opened("/fit?model=llama-3.1-8b&gpu=H100-SXM", "bare", viewport=page.viewport_size)
    assert not bare.locator("form.ask").is_visible()
    bare.locator("#fold").focus()
    bare.keyboard.press("Space")
    assert bare.locator("form.ask").is_visible()


def test_the_keyboard_leads_past_the_bar_and_through_the_form(opened: Opener) -> None:
    page = opened("/recommend")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    before = page.locator("#best").inner_text()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "f-model":
            break
    page.keyboard.press("Control+A")
    page.keyboard.type("llama-3.1-70b")
    page.keyboard.press("Enter")
    until(page, "was => document.querySelector('#best').innerText !== was", before)
    assert page.url.endswith("model=llama-3.1-70b") or "model=llama-3.1-70b&" in page.url


@pytest.mark.parametrize("name", ["recommend", "gpus"])
def test_focused_element_has_a_visible_outline(opened: Opener, name: str) -> None:
    page = opened(f"/{name}" if name != "gpus" else "/gpus?name=H100")
    focused: list[Any] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        at = page.evaluate(OUTLINED)
        if at["tag"] == "BODY":
            break
        focused.append(at)
    assert len(focused) > 20
    assert [at["name"] for at in focused if not at["seen"]] == []


@pytest.mark.parametrize("name", SOME_LONG)
@pytest.mark.sweep(3)
def test_without_javascript_a_page_has_its_answer_and_pictures(opened: Opener, name: str, home: str) -> None:
    page = opened(f"/{name}", "bare")
    assert page.locator("#best, #basket").first.is_visible()
    for control in page.locator(".needs-js").all():
        assert not control.is_visible()
    pictures = page.locator("noscript img")
    assert pictures.count() == page.locator("[data-chart]").count()
    for picture in pictures.all():
        assert picture.get_attribute("alt")
        reply = page.request.get(home + str(picture.get_attribute("src")))
        assert reply.status == 200
        assert reply.headers["content-type"] == "image/svg+xml"
        assert "<svg" in reply.text()


@pytest.mark.long
def test_without_javascript_forms_go_by_get(opened: Opener) -> None:
    page = opened("/fit", "bare")
    page.fill("#f-model", "bert-large")
    page.check("#f-task-train")
    page.fill("#f-batch", "32")
    page.click("form button.main")
    page.wait_for_load_state()
    assert "model=bert-large" in page.url
    assert "batch=32" in page.url
    assert page.locator("#best").inner_text().startswith("bert-large (train")
    page.goto(page.url.replace("/fit?", "/gpus?name=H100&old="))
    page.click("#basket thead a:has-text('memory bandwidth')")
    page.wait_for_load_state()
    assert "sort=memory_bandwidth" in page.url
    assert page.locator("#basket th[aria-sort=ascending]").count() == 1


def test_paper_has_the_answer_and_no_controls(opened: Opener) -> None:
    page = opened("/recommend")
    page.emulate_media(media="print")
    assert not page.locator("form.ask").is_visible()
    assert not page.locator(".top nav").is_visible()
    assert page.locator("#best").is_visible()
    assert page.locator("[data-chart=front] svg").is_visible()


def test_saved_page_is_one_file_without_requests(opened: Opener, home: str, tmp_path: Path) -> None:
    page = opened("/fit?model=llama-3.1-8b&gpu=H100-SXM")
    reply = page.request.get(home + str(page.locator("a[download$='.html']").get_attribute("href")))
    assert reply.headers["content-disposition"].startswith("attachment")
    sentence = page.locator("#best").inner_text()
    path = tmp_path / "answer.html"
    path.write_text(reply.text(), encoding="utf-8")
    requests: list[str] = []
    alone = page.context.new_page()
    alone.on("request", lambda request: requests.append(request.url))
    alone.goto(path.as_uri())
    assert requests == [path.as_uri()]
    assert alone.locator("#best").inner_text() == sentence
    assert alone.locator("[data-chart=memory] svg").is_visible()
    assert alone.locator("button, form, script").count() == 0
    assert faults(alone) == []


def test_the_command_line_and_the_link_can_be_copied(opened: Opener) -> None:
    page = opened("/gpus?name=T4", permissions=["clipboard-read", "clipboard-write"])
    page.click("[data-copy='#command']")
    until(page, "async () => (await navigator.clipboard.readText()).startsWith('whichgpu gpus')")
    page.click("[data-copy-link]")
    until(page, "async () => (await navigator.clipboard.readText()) === location.href")


@pytest.mark.long
@pytest.mark.parametrize("what", ["server", "fleet"])
def test_a_trace_is_uploaded_worked_through_and_shown(opened: Opener, tmp_path: Path, what: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,prompt,output\n" + "".join(f"{18 * place},500,60\n" for place in range(4000)), encoding="utf-8")
    page = opened(f"/plan?what={what}&count=200&percentile=99")
    page.set_input_files("#f-trace", str(trace))
    until(page, "() => document.querySelector('.course progress')")
    page.click("form button.main")  # The answer to the file is under way: it is not computed twice, nor another one.
    assert page.locator(".course").count() == 1
    until(page, "() => document.querySelector('#traced')", seconds=180)
    drawn(page)
    text = page.locator("#answer").inner_text()
    assert ("4000 REQUESTS" if what == "server" else "0.0556 requests/s") in text
    assert "first token" in text
    assert "first token, p99" in text  # A plan shows the percentile of its objectives.
    assert "{" not in text
    assert page.locator("[data-chart=hours] svg").count() == (what == "fleet")
    assert page.locator("#answer .downloads, #answer .twins").count() == 0  # Their addresses would be of another question.
    assert "--trace=trace.csv" in page.locator("#command").inner_text()
    page.click("[data-without]")
    until(page, "() => !document.querySelector('#traced, [aria-busy]')")
    assert "--trace" not in page.locator("#command").inner_text()


@pytest.mark.long
def test_a_plan_shows_its_progress_and_can_be_cancelled(opened: Opener) -> None:
    page = opened("/plan?count=200")
    before, address = page.locator("#best").inner_text(), page.url
    routes: list[Any] = []
    page.route("**/plan?*rate=30*", lambda route: routes.append(route))  # Never answered: axe-core may take longer than a plan.
    for rate in ("30/s", "31/s"):
        page.fill("#f-rate", rate)
        page.keyboard.press("Enter")
        until(page, "() => document.querySelector('.course progress')")
        if rate == "30/s":
            assert faults(page) == []
        page.click(".course button")
        until(page, "() => !document.querySelector('.course')")
        assert (page.locator("#best").inner_text(), page.url) == (before, address)
    assert len(routes) == 1
    page.fill("#f-rate", "32/s")
    page.keyboard.press("Enter")
    until(page, "() => document.querySelector('.course progress')?.value > 0")
    until(page, "() => location.search.includes('rate=32')")
    assert "32 requests/s" in page.locator("#best").inner_text()
    assert page.locator(".course").count() == 0


@pytest.mark.long
def test_a_day_is_drawn_with_the_keyboard(opened: Opener) -> None:
    page = opened("/plan?count=200")
    assert page.locator("[data-day]").count() > 0
    page.locator("[data-day] input").nth(9).focus()
    page.keyboard.press("ArrowUp")
    rates = page.input_value("#f-hourly").split(",")
    assert len(rates) == 24
    assert float(rates[9]) > float(rates[8])
    page.click("[data-shape=office]")
    until(page, "() => location.search.includes('hourly=')")
    page.wait_for_selector("[data-chart=hours][data-drawn]")
