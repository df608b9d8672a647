"""Every page in three widths, light and dark, in English and Korean, and with the keyboard alone: nothing is cut off or hidden.

The default run looks at one page in three looks; `make test-long` walks the whole cross. With WHICHGPU_PICTURES=FOLDER the same
run writes the screenshots of the documentation.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from pages.browser import drawn, until

from tests.browser.looking import Opener, brief, faults
from whichgpu.surface.web.views import PAGES

WIDTHS = (1440, 1024, 390)
SCHEMES, LANGUAGES = ("light", "dark"), ("en", "ko")
HEIGHT = 1180
CONFIG = (
    '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, '
    '"num_attention_heads": 32, "vocab_size": 32000}'
)
# Errors of the console that the status of a page makes.
EXPECTED = {
    "failure": "422", "bad-config": "400", "bad-fields": "400", "no-rows": "422", "no-plan": "422", "no-buy": "400",
    "no-side": "400", "no-sentence": "422", "unknown": "404",
}  # fmt: skip
DAY = "1,1,1,1,1,2,4,8,14,18,20,20,17,19,20,18,15,11,7,5,4,3,2,1"
SUBJECTS = {
    "start": "/", "models": "/models?name=llama", "compare": "/compare", "buy": "/buy?name=RTX+4090", "docs": "/docs",
    "gpu": "/gpu/t4", "model": "/model/gpt2", "instance": "/instance/p3.2xlarge",
    "recommend": "/recommend?task=train&model=resnet50&epochs=90&samples=1281167&deadline=24h",
    "serve": "/recommend?task=serve&model=llama-3.1-70b&rate=5/s&seq_in=1000&seq_out=300&tpot_max=50ms",
    "fit": "/fit?model=llama-3.1-8b&batch=16&seq_in=8192", "no-fit": "/fit?model=llama-3.1-70b&gpu=RTX+4090,B200&unit=percent",
    "sides": "/gpus?name=A100&compare=a100-sxm-80gb&compare=h100-sxm&compare=mi300x",
    "plan": f"/plan?rate=20/s&hourly={DAY}&seq_in=1000&seq_out=200&tpot_max=50ms",
    "load": "/plan?what=server&model=llama-3.1-8b&rate=5/s&seq_in=1000&seq_out=200&ttft_max=300ms&tpot_max=30ms",
    "failure": "/recommend?task=train&model=resnet50&budget=0.01usd",
    "pasted": f"/fit?{urlencode({'gpu': 'T4', 'model': CONFIG})}",
    "bad-config": '/fit?gpu=T4&model={"model_type":"gpt2"}',
    "bad-fields": "/recommend?task=train&model=resnet50&budget=much&deadline=soon&gpu=H101",
    "no-rows": "/gpus?min_memory=900GB", "no-plan": "/plan?rate=5/s&budget=0.01usd/h", "no-buy": "/buy?name=H101",
    "no-side": "/compare?name=H101&name=T4", "no-sentence": "/?q=zzz", "unknown": "/gpu/h101",
    "fits": "/models?fits=RTX+4090",
    "trained": "/compare?name=H100+SXM&name=MI300X&name=T4&task=train&model=bert-large&batch=64",
    "home": "/recommend?task=serve&model=qwen3-14b&budget=800usd&buy=true", "mix": "/recommend?task=serve&any_model=true",
    "finetune": "/fit?task=finetune&model=llama-3.1-8b&lora=true&gpu=RTX+4090,L4",
}  # fmt: skip
ALL = (*SUBJECTS, "gpus", "prices", "accuracy", "sources")
PICTURES = os.environ.get("WHICHGPU_PICTURES")
PICTURE_LOOKS = {("light", "en", 1440): "light", ("dark", "en", 1440): "dark", ("light", "en", 390): "phone"}
MAX_TABS = 1500  # Presses of the tab key after which a page is taken to hold the focus in a loop.
# What has the focus: whether that shows, and whether it follows the element before it in the page or is the next part of the
# same one (a date has three); null after the last element.
FOCUSED = """() => {
    const at = document.activeElement;
    if (at === document.body) return null;
    const parts = [at, at.nextElementSibling, at.closest("label")].filter(Boolean);
    const seen = parts.some(one => {
        const style = getComputedStyle(one);
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    });
    const before = window.walked.at(-1);
    const follows = !before || before === at || Boolean(before.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_FOLLOWING);
    window.walked.push(at);
    return { seen, follows, name: `${at.tagName} ${at.id || at.name || at.textContent.trim().slice(0, 40)}` };
}"""
# Visible controls that never had the focus; of radio buttons of one name the tab key reaches only one.
MISSED = """() => {
    const kinds = "a[href], button, input, select, textarea, details > summary:first-of-type, [tabindex]";
    const radios = new Set(window.walked.filter(one => one.type === "radio").map(one => one.name));
    return [...document.querySelectorAll(kinds)]
        .filter(one => one.tabIndex >= 0 && !one.disabled && !one.closest("svg"))
        .filter(one => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }))
        .filter(one => !window.walked.includes(one) && !(one.type === "radio" && radios.has(one.name)))
        .map(one => `${one.tagName} ${one.id || one.name || one.textContent.trim().slice(0, 40)}`);
}"""


def test_every_page_is_walked() -> None:
    assert set(PAGES) <= set(ALL)


def test_a_page_is_whole_and_accessible_in_three_looks(opened: Opener) -> None:
    page = opened(_address("buy", "en"))
    for place, width in enumerate(WIDTHS):
        scheme, code = (("light", "en"), ("dark", "ko"))[place % 2]
        if place:
            page.goto(page.url.partition("&lang")[0] + f"&lang={code}")
        _look(page, "buy", scheme, width, code)


@pytest.mark.long
@pytest.mark.parametrize("code", LANGUAGES)
@pytest.mark.parametrize("name", ALL)
def test_a_page_is_whole_and_accessible_in_every_look(opened: Opener, name: str, code: str) -> None:
    page = opened(_address(name, code), expecting=EXPECTED.get(name, ""))
    for scheme, width in product(SCHEMES, WIDTHS):
        _look(page, name, scheme, width, code)
    page.evaluate("() => document.querySelectorAll('details').forEach(part => { part.open = true; })")
    for scheme, width in (("light", 1440), ("dark", 390)):
        _look(page, f"{name}, unfolded", scheme, width, code)


@pytest.mark.long
@pytest.mark.parametrize("code", LANGUAGES)
@pytest.mark.parametrize("name", ALL)
def test_the_keyboard_reaches_all_of_a_page_with_a_visible_focus(opened: Opener, name: str, code: str) -> None:
    page = opened(_address(name, code), expecting=EXPECTED.get(name, ""))
    for width in WIDTHS:
        _settle(page, "light", width)
        focused: list[dict[str, Any]] = []
        page.evaluate("() => { window.walked = []; }")
        page.keyboard.press("Tab")
        while (at := page.evaluate(FOCUSED)) is not None and len(focused) < MAX_TABS:
            focused.append(at)
            page.keyboard.press("Tab")
        look = (name, width, code)
        assert at is None, look
        assert [at["name"] for at in focused if not at["seen"]] == [], look
        assert [at["name"] for at in focused if not at["follows"]] == [], look
        assert page.evaluate(MISSED) == [], look
        links = page.locator(".top nav a").count()
        assert len(focused) > links  # past the navigation, into the page


def _address(name: str, code: str) -> str:
    address = SUBJECTS.get(name) or brief(name)
    return address + ("&" if "?" in address else "?") + f"lang={code}"


def _settle(page: Any, scheme: str, width: int) -> None:
    """Show a page in a colour scheme and a width, with all of its charts and answers."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.emulate_media(color_scheme=scheme)
    drawn(page)
    until(page, "() => !document.querySelector('[data-pending]')")  # The start page's answers come after the page.


def _look(page: Any, name: str, scheme: str, width: int, code: str) -> None:
    """Check a page in one look: its width, its navigation, and what axe-core finds."""
    _settle(page, scheme, width)
    look = (name, scheme, width, code)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, look
    links = page.locator(".top nav a")
    assert links.count() == links.filter(visible=True).count() > 0, look
    assert faults(page) == [], look
    if PICTURES and name in ALL and (picture := PICTURE_LOOKS.get((scheme, code, width))):
        page.wait_for_timeout(400)  # The charts are drawn anew for a new width.
        page.screenshot(path=Path(PICTURES) / f"{name}-{picture}.png")


def test_a_request_is_tried_on_the_page_about_the_api(opened: Opener) -> None:
    page = opened("/docs")
    form = page.locator('form[action="/api/v1/fit"]')
    page.locator("details", has=form).locator("summary").click()
    form.locator('input[name="gpu"]').fill("T4")
    form.locator("button").first.click()
    form.locator("[data-reply]").wait_for(state="visible")
    assert '"gpu": "t4"' in form.locator("[data-reply]").inner_text()
    assert "200" in form.locator("[data-status]").inner_text()
    form.locator("button").nth(1).click()
    page.wait_for_function(
        "() => document.querySelector('form[action=\"/api/v1/fit\"] [data-reply]').textContent.startsWith('gpu')"
    )
