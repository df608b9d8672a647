"""Charts with several series: one is chosen on the legend or with the keyboard, the axes are zoomed, all of it is shown again."""

from __future__ import annotations

from typing import Any

import pytest
from pages.browser import until

from tests.browser.looking import Opener, faults

DAY = "1,1,1,1,1,2,4,8,14,18,20,20,17,19,20,18,15,11,7,5,4,3,2,1"
CHARTS = {
    "front": "/recommend?task=train&model=resnet50&epochs=90&samples=1281167", "own": "/buy", "memory": "/fit?gpu=T4,L4",
    "roofline": "/gpus?name=A100&name=H100", "history": "/prices?limit=8", "pairs": "/accuracy?gpu=T4&worst=5",
    "ttft": "/plan?what=server&count=300", "hours": f"/plan?count=200&hourly={DAY}",
}  # fmt: skip
MARKS = "name => document.querySelectorAll(`[data-chart=${name}] .role-mark > *`).length"
LABELS = """name => [...document.querySelectorAll(`[data-chart=${name}] .role-axis-label text`)]
    .map(one => one.textContent).sort().join(" ")"""


@pytest.mark.long
@pytest.mark.parametrize("name", CHARTS)
def test_one_series_is_chosen_and_the_axes_are_zoomed(opened: Opener, name: str) -> None:
    page = opened(CHARTS[name])
    controls = page.locator(f'[data-controls="{name}"]')
    marks, labels = page.evaluate(MARKS, name), page.evaluate(LABELS, name)
    choice = controls.locator("select").first
    choice.focus()
    page.keyboard.press("ArrowDown")
    until(page, f"([name, before]) => ({MARKS})(name) < before", [name, marks])
    choice.select_option("")
    until(page, f"([name, before]) => ({MARKS})(name) === before", [name, marks])
    _legend(page, name, 1).click()
    until(page, "one => one.value !== ''", choice.element_handle())
    assert page.evaluate(MARKS, name) < marks
    assert choice.input_value() == _legend(page, name, 1).text_content()
    choice.select_option("")
    moves = controls.locator("[data-moves]")
    assert not moves.is_visible()
    controls.locator("[data-zoom=in]").press("Enter")
    until(page, f"([name, before]) => ({LABELS})(name) !== before", [name, labels])
    zoomed = page.evaluate(LABELS, name)
    moves.locator("[data-zoom=right]").press("Enter")
    until(page, f"([name, before]) => ({LABELS})(name) !== before", [name, zoomed])
    assert faults(page) == []
    controls.locator("[data-zoom=whole]").press("Enter")
    until(page, f"([name, before]) => ({LABELS})(name) === before", [name, labels])
    until(page, "moves => moves.hidden", moves.element_handle())


@pytest.mark.long
def test_a_plain_wheel_scrolls_the_page_and_one_with_ctrl_zooms_the_chart(opened: Opener) -> None:
    page = opened("/prices?limit=8")
    plot = page.locator("[data-chart=history]")
    plot.scroll_into_view_if_needed()
    plot.hover()
    labels, top = page.evaluate(LABELS, "history"), page.evaluate("scrollY")
    page.mouse.wheel(0, -200)
    until(page, "top => scrollY < top", top)
    assert page.evaluate(LABELS, "history") == labels
    plot.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, f"before => ({LABELS})('history') !== before", labels)


@pytest.mark.long
def test_a_chart_printed_from_a_dark_page_has_the_colours_of_paper(opened: Opener) -> None:
    page = opened("/prices?limit=8", "dark")
    page.emulate_media(media="print", color_scheme="dark")
    colours = page.evaluate(
        "['--c1', '--ink', '--paper'].map(name => getComputedStyle(document.documentElement).getPropertyValue(name))"
    )
    assert [colour.strip() for colour in colours] == ["#0072b2", "#000", "#fff"]
    assert not page.locator("[data-controls=history]").is_visible()
    assert page.locator("[data-chart=history] svg").is_visible()


def _legend(page: Any, name: str, place: int) -> Any:
    return page.locator(f'[data-chart="{name}"] .role-legend-label text').nth(place)
