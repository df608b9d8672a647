"""Every page in three widths, one of them dark and in Korean: nothing is cut off, and axe-core finds nothing wrong."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests.browser.looking import Opener, brief, faults

WIDTHS = {"desktop": 1280, "laptop": 1024, "phone": 390}
CONFIG = (
    '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, '
    '"num_attention_heads": 32, "vocab_size": 32000}'
)
EXPECTED = {"failure": "422", "bad-config": "400"}  # Errors of the console that the status of a page makes.
SUBJECTS = {
    "start": "/", "models": "/models?name=llama", "compare": "/compare", "buy": "/buy?name=RTX+4090", "docs": "/docs",
    "gpu": "/gpu/t4", "model": "/model/gpt2", "instance": "/instance/p3.2xlarge",
    "failure": "/recommend?task=train&model=resnet50&budget=0.01usd",
    "pasted": f"/fit?{urlencode({'gpu': 'T4', 'model': CONFIG})}",
    "bad-config": '/fit?gpu=T4&model={"model_type":"gpt2"}',
}  # fmt: skip
ALL = (*(name for name in ("recommend", "fit", "gpus", "prices", "plan", "accuracy", "sources")), *SUBJECTS)
IN_EVERY_RUN = ("buy",)  # The others share its parts, and take minutes.
SOME_LONG = [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.long) for name in ALL]


@pytest.mark.parametrize("name", SOME_LONG)
def test_a_page_is_whole_and_accessible_in_every_look(opened: Opener, name: str) -> None:
    address = SUBJECTS.get(name) or brief(name)
    page = opened(address, expecting=EXPECTED.get(name, ""))
    for place, width in enumerate(WIDTHS.values()):
        scheme, code = (("light", "en"), ("dark", "ko"))[place % 2]
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        page.goto(page.url.partition("?lang")[0].partition("&lang")[0] + ("&" if "?" in address else "?") + f"lang={code}")
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        hidden = [link for link in page.locator(".top nav a").all() if not link.is_visible()]
        assert hidden == [], (name, width)
        assert faults(page) == [], (name, width, scheme, code)


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
