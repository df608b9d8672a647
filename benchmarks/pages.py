"""Speed of the pages in a real browser: the first answer after opening a page, its charts, and redraws by a slider.

    PYTHONPATH=src:tools python -m benchmarks.pages

Needs the system's Chromium; without it nothing is measured. The first answer counts from opening the address to the first paint
that contains the answer; redraws from the slider's move to the new bars.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from pages.browser import DESKTOP, browsing, chromium, drawn, serving, until

from benchmarks.start import Result, table

PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
DRAWN = "() => performance.now()"
OPENINGS, MOVES = 7, 40


def results() -> Iterator[Result]:
    """Every figure against its goal; empty without a browser."""
    if chromium() is None:
        print("no Chromium: pages are not timed", file=sys.stderr)
        return
    with serving(2) as home, browsing() as browser:
        cold = _opened(browser, f"{home}/recommend")
        yield Result("page: first answer, server just started", cold[0] / 1e3, cold[0] / 1e3, 1.0)
        other = [_opened(browser, f"{home}/recommend?rate={rate}/s")[0] / 1e3 for rate in range(6, 6 + OPENINGS)]
        yield Result("page: first answer, new question", median(other), min(other), 1.0)
        again = [_opened(browser, f"{home}/recommend") for _ in range(OPENINGS)]
        yield Result("page: first answer, cached", median(one[0] for one in again) / 1e3, min(again)[0] / 1e3, 1.0)
        charts = [one[1] / 1e3 for one in again]
        yield Result("page: all charts drawn, cached", median(charts), min(charts), 3.0)
        for name, address in (("serve", "/fit"), ("train", "/fit?task=train&model=bert-large&batch=8")):
            moves = _moves(browser, home + address)
            yield Result(f"page: slider's redraw, {name}, median", median(moves) / 1e3, min(moves) / 1e3, 0.1)
            late = sorted(moves)[int(0.95 * len(moves))] / 1e3
            yield Result(f"page: slider's redraw, {name}, p95", late, min(moves) / 1e3, 0.1)


def _opened(browser: Any, address: str) -> tuple[float, float]:
    """Milliseconds to the paint that contains the answer, and to the last chart, in a browser with an empty cache."""
    context = browser.new_context(viewport=DESKTOP)
    try:
        page = context.new_page()
        page.goto(address)
        assert page.locator("#best").is_visible()
        painted = float(page.evaluate(PAINTED))
        drawn(page)
        return painted, float(page.evaluate(DRAWN))
    finally:
        context.close()


def _moves(browser: Any, address: str) -> list[float]:
    """Milliseconds of redraws as a slider moves up and down."""
    context = browser.new_context(viewport=DESKTOP)
    try:
        page = context.new_page()
        page.goto(address)
        drawn(page)
        page.locator("[data-slider=batch] input[type=range]").focus()
        for move in range(MOVES):
            page.keyboard.press("ArrowRight" if move % 20 < 10 else "ArrowLeft")
            until(page, "count => performance.getEntriesByName('slider').length > count", move)
        return [float(one) for one in page.evaluate("() => performance.getEntriesByName('slider').map(one => one.duration)")][2:]
    finally:
        context.close()


if __name__ == "__main__":
    sys.exit(table(results()))
