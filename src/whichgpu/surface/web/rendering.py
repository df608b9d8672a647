"""A page as HTML, as the part of it that changes, and as its twins."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from whichgpu.base.codec import to_json
from whichgpu.base.errors import UnknownName, WhichGpuError
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.names import unknown_word
from whichgpu.base.numerals import ENGLISH_MARKS, Numeral
from whichgpu.base.version import __version__
from whichgpu.surface import tables
from whichgpu.surface.cells import human, label
from whichgpu.surface.commands.command import command_line
from whichgpu.surface.web.command_replies import HttpReply, ask, client_error, refused, status_of
from whichgpu.surface.web.page import Page, Shown, address, mended, read_state, unknown_names, view_named
from whichgpu.surface.web.reader_language import choices, kept, named_in
from whichgpu.surface.web.views import PAGES
from whichgpu.surface.web.views.single_file import single_file

HERE = Path(__file__).parent
TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "part": "application/json",
    "svg": "image/svg+xml",
    "file": "text/html; charset=utf-8",
}
FRAME = '{% extends "base.html" %}{% block title %}{{ title }}{% endblock %}{% block answer %}{{ inside }}{% endblock %}'
FORMS = {"json": "json", "csv": "csv", "md": "markdown"}


def drawn(name: str, ending: str, query: str, language: Language, chart: str | None = None) -> HttpReply:
    """A page in one of its forms; a problem is told in the same form."""
    try:
        named_in(query)
        found = view_named(name)
        page = Page(name, read_state(found.state, query), language, query)
        unknown = unknown_names(found.state, query)
        if unknown and ending in FORMS:  # a program reads no warning
            raise unknown_word("field", unknown[0], tuple(field.name for field in fields(found.state)))
        shown = found.show(page)
        shown = replace(shown, charts={key: _spoken(spec, language) for key, spec in shown.charts.items()})
        return _formed(page, shown, ending, chart)
    except WhichGpuError as error:
        return problem(error, ending, language, name if name in PAGES else None, query)


def problem(error: WhichGpuError, ending: str, language: Language, name: str | None = None, query: str = "") -> HttpReply:
    """An error, as a page for those who look and in the one shape for programs."""
    if ending != "html":
        return refused(error, language)
    body = client_error(error, language)
    context = _common(name or "", language, query) | {"error": body, **_ways_on(name, query, body["choices"] or ())}
    return HttpReply(status_of(error), TYPES["html"], environment().get_template("error.html").render(context).encode())


def _ways_on(name: str | None, query: str, known: Sequence[str]) -> dict[str, Any]:
    """Where an error leads: the question without what was wrong in it, and with each name that would work in its place."""
    found = mended(view_named(name).state, query) if name else None
    if name is None or found is None:
        return {"again": f"/{name or next(iter(PAGES))}", "choices": [(choice, "") for choice in known]}
    field, state = found
    single = not isinstance(getattr(state, field, ()), tuple)
    urls = [(choice, address(name, state, **{field: choice}) if single else "") for choice in known]
    return {"again": address(name, state), "choices": urls}


def framed(inside: Markup, title: str, language: Language, query: str) -> str:
    """HTML of our own making inside the frame all pages have."""
    template = environment().from_string(FRAME)
    return template.render(_common("", language, query) | {"inside": inside, "title": title})


def _formed(page: Page[Any], shown: Shown, ending: str, chart: str | None) -> HttpReply:
    if ending in FORMS:
        return _twin(page, shown, ending)
    if ending == "svg":
        return _picture(shown, chart or "")
    context = _common(page.name, page.language, page.query) | _own(page, shown)
    template = environment().get_template(shown.template)
    if ending == "html":
        return HttpReply(shown.status, TYPES["html"], template.render(context).encode())
    if ending == "file":
        alone = single_file(template.render(context), shown.charts)
        kept = {"Content-Disposition": f'attachment; filename="whichgpu-{page.name}.html"'}
        return HttpReply(shown.status, TYPES["file"], alone.encode(), kept)
    html = "".join(template.blocks["answer"](template.new_context(context)))
    part = {"html": html, "charts": shown.charts, "command": context["command"], "url": context["url"]}
    return HttpReply(shown.status, TYPES["part"], json.dumps(part, ensure_ascii=False).encode())


def _spoken(spec: dict[str, Any], language: Language) -> dict[str, Any]:
    """A chart whose axes and tips write numbers as the reader does."""
    if language.marks == ENGLISH_MARKS:
        return spec
    number = {"decimal": language.marks[0], "thousands": language.marks[1], "grouping": [3], "currency": ["", ""]}
    return {**spec, "config": {**spec.get("config", {}), "locale": {"number": number}}}


def _twin(page: Page[Any], shown: Shown, ending: str) -> HttpReply:
    if shown.command is not None:
        return ask(*shown.command, FORMS[ending], page.language)
    if ending == "json" or shown.table is None:
        return HttpReply(shown.status, TYPES["json"], to_json(shown.document).encode())
    header, rows = shown.table
    write = tables.write_csv if ending == "csv" else tables.write_markdown
    return HttpReply(shown.status, TYPES[ending], tables.text_of(write, header, rows).encode())


def _picture(shown: Shown, chart: str) -> HttpReply:
    import vl_convert

    if chart not in shown.charts:
        raise UnknownName("unknown-chart", msg("error.unknown-chart", name=chart[:80]), None, tuple(shown.charts))
    return HttpReply(200, TYPES["svg"], vl_convert.vegalite_to_svg(shown.charts[chart]).encode())


def _common(name: str, language: Language, query: str) -> dict[str, Any]:
    """What every template can use."""
    try:
        named = named_in(query)
    except WhichGpuError:  # which is what the page tells
        named = None

    def text(id: str, **values: object) -> str:
        return language.text(id, **values)

    def say(message: Message | None) -> str:
        return language.render(message) if message else ""

    return {
        "name": name,
        "pages": [(page, text(f"web.page-{page}")) for page in PAGES],
        "text": text,
        "say": say,
        "label": lambda field: label(field, language),
        "human": lambda field, value: human(field, value, language),
        "written": language.localize,
        "link": lambda url: kept(url, named),
        "lang": language.code,
        "named_lang": named,
        "languages": choices(query, language.code),
        "unknown": (),
        "version": __version__,
    }


def _own(page: Page[Any], shown: Shown) -> dict[str, Any]:
    charts = json.dumps(shown.charts, ensure_ascii=False).replace("<", "\\u003c")  # safe inside a data block
    return {
        "page": page,
        "state": page.state,
        "url": page.url(),
        "unknown": unknown_names(type(page.state), page.query),
        "command": shlex.join(["whichgpu", *command_line(*shown.command)]) if shown.command is not None else "",
        "charts": shown.charts,
        "charts_json": Markup(charts),
        **shown.context,
    }


@pass_context
def _written(context: Context, value: Any) -> Any:
    """What a template shows, its numbers as the reader's language writes them."""
    if isinstance(value, str) and not isinstance(value, Markup) and (spoken := context.get("written")) is not None:
        return spoken(value)
    return value


@cache
def environment() -> Environment:
    """Templates, all escaped, with no name forgotten in silence."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["as_given"] = escape  # what is typed stays as it is
    made.filters["number"] = Numeral
    return made
