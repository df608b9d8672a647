"""Checks shared by the browser tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

Opener = Callable[..., Any]
PAGES = ("recommend", "fit", "gpus", "prices", "plan", "accuracy", "sources")
# Other pages share this code and are checked by hand before a release.
FIRST = ("recommend", "fit", "gpus")
SOME_LONG = [pytest.param(name, marks=() if name in FIRST else pytest.mark.long) for name in PAGES]
# Pages with few rows: the same parts as with many, and far fewer elements for axe-core to check.
BRIEF = {
    "gpus": "/gpus?name=A100",
    "prices": "/prices?limit=8",
    "accuracy": "/accuracy?gpu=T4&worst=5",
    "sources": "/sources?find=h100",
}
# Only violations are collected with the places of their elements, which takes axe-core as long as half of its rules.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], "resultTypes": ["violations"]}
# A chart is one image to a reader, and what is folded is not there until it is opened.
UNREAD = [[".plot svg"], ["details:not([open]) > :not(summary)"]]


@cache
def _axe() -> str:
    return files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def faults(page: Any) -> list[str]:
    """What axe-core finds wrong: missing labels, contrast below AA, broken structure."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe() + "; undefined")
    report = page.evaluate("([unread, rules]) => axe.run({ exclude: unread }, rules)", [UNREAD, RULES])
    return [
        f"{one['id']}: {node['target']} {node['failureSummary'][:300]}"
        for one in report["violations"]
        for node in one["nodes"][:3]
    ]


def brief(name: str) -> str:
    """The address of a page, with few rows where it has many."""
    return BRIEF.get(name, f"/{name}")


def marks(page: Any, chart: str, kind: str) -> list[str]:
    """Labels of a chart's marks of a kind, as a screen reader would hear them."""
    script = """([chart, kind]) => [...document.querySelectorAll(`[data-chart="${chart}"] .${kind} > *`)]
        .map(mark => mark.getAttribute("aria-label")).filter(Boolean)"""
    labels: list[str] = page.evaluate(script, [chart, kind])
    return labels


def number_in(label: str, title: str) -> float:
    """The number a mark's label gives for a title."""
    match = re.search(rf"{re.escape(title)}: (−?[0-9.,]+)", label)
    assert match is not None, f"no {title} in {label}"
    return float(match[1].replace(",", "").replace("−", "-"))
