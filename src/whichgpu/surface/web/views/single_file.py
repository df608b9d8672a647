"""A page as one file that needs no server: styles included, charts drawn, no scripts, forms or links to the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

STATIC = Path(__file__).resolve().parent.parent / "static"
SHEETS = (("page.css", "all"), ("print.css", "print"))
_HEAD = re.compile(
    r'<link rel="(?:icon|stylesheet)"[^>]*>\s*|<script src="[^"]*"></script>\s*|<script type="module"[^>]*></script>\s*'
)
_DATA = re.compile(r'<script type="application/json" id="charts">.*?</script>', re.DOTALL)
_BARE = re.compile(r"<noscript>.*?</noscript>|<template .*?</template>", re.DOTALL)
_FOLD = re.compile(r'<input type="checkbox" class="fold-box"[^>]*><label class="fold".*?</label>', re.DOTALL)
_CONTROLS = re.compile(
    r'<form class="(?:ask|filters|sentence-box)[^"]*".*?</form>|<ul class="(?:twins|downloads)".*?</ul>|<nav .*?</nav>'
    r'|<div class="(?:languages|controls[^"]*)".*?</div>',
    re.DOTALL,
)
_BUTTONS = re.compile(r"<button[^>]*>.*?</button>", re.DOTALL)
_BRAND = re.compile(r'<a class="brand"[^>]*>(.*?)</a>', re.DOTALL)
_OWN_LINK = re.compile(r'<a(?: [a-z-]+(?:="[^"]*")?)*? href="/[^"]*"[^>]*>(.*?)</a>', re.DOTALL)
_PLOT = re.compile(r'(<div class="plot plot-[^"]*" data-chart="([a-z-]+)"[^>]*>)(</div>)')


def single_file(html: str, charts: Mapping[str, dict[str, Any]]) -> str:
    """Convert a page's HTML and charts to one HTML file."""

    def draw(match: re.Match[str]) -> str:
        svg = import_module("vl_convert").vegalite_to_svg(charts[match[2]]) if match[2] in charts else ""
        return f"{match[1]}{svg}{match[3]}"

    for pattern in (_HEAD, _DATA, _BARE, _FOLD, _CONTROLS, _BUTTONS):
        html = pattern.sub("", html)
    html = _PLOT.sub(draw, _OWN_LINK.sub(r"\1", _BRAND.sub(r'<span class="brand">\1</span>', html)))
    html = html.replace('<div class="split">', '<div class="wide">')  # There is no form next to the answer.
    return html.replace("</head>", f"{_styles()}</head>").replace('<html lang="', '<html class="js" lang="', 1)


@cache
def _styles() -> str:
    return "".join(f'<style media="{media}">\n{(STATIC / name).read_text(encoding="utf-8")}</style>\n' for name, media in SHEETS)
