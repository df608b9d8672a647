"""Rendering of a page as HTML, as the part of it that changes, as one file, as SVG charts, and as JSON, CSV or Markdown."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from msgspec.structs import replace

from whichgpu.api.prices.newest_price import newest_price_day
from whichgpu.base.codec import script_json, to_json
from whichgpu.base.errors import UnknownName, WhichGpuError
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.names import unknown_word
from whichgpu.base.numerals import ENGLISH_MARKS, Numeral
from whichgpu.base.version import __version__
from whichgpu.surface import tables
from whichgpu.surface.cells import heading
from whichgpu.surface.charts.controls import chart_table, with_controls
from whichgpu.surface.charts.palette import with_fixed_colours
from whichgpu.surface.commands.command import command_line
from whichgpu.surface.sentence_question import question_of_sentence
from whichgpu.surface.web.command_replies import CONTENT_TYPES as COMMAND_TYPES
from whichgpu.surface.web.command_replies import HttpReply, Progress, catalog, client_error, command_reply, error_reply, status_of
from whichgpu.surface.web.failure import all_problems
from whichgpu.surface.web.field_names import with_labels
from whichgpu.surface.web.page import (
    MAX_SENTENCE,
    SENTENCE,
    Page,
    PageContent,
    address,
    state_and_problems,
    unknown_parameters,
    view_named,
    without_invalid,
)
from whichgpu.surface.web.query import LANGUAGE_PARAMETER, query_pairs
from whichgpu.surface.web.reader_language import language_choices, language_in, with_language
from whichgpu.surface.web.static_files import chart_script_url, static_url
from whichgpu.surface.web.views import NAVIGATION, PAGES, START
from whichgpu.surface.web.views.single_file import single_file

HERE = Path(__file__).parent
HTML = "text/html; charset=utf-8"
FORMATS = {"json": "json", "csv": "csv", "md": "markdown"}  # Formats of commands by ending of the URL.
CONTENT_TYPES = {ending: COMMAND_TYPES[format] for ending, format in FORMATS.items()}
CONTENT_TYPES |= {"html": HTML, "file": HTML, "part": COMMAND_TYPES["json"], "svg": "image/svg+xml", "png": "image/png"}
PNG_SCALE = 2.0  # Pixels of a PNG per pixel of the page.
FRAME = '{% extends "base.html" %}{% block title %}{{ title }}{% endblock %}{% block answer %}{{ inside }}{% endblock %}'


def render_page(
    name: str,
    ending: str,
    query: str,
    language: Language,
    chart: str | None = None,
    subject: str | None = None,
    hurry: bool = False,
    files: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    problem: WhichGpuError | None = None,
) -> HttpReply:
    """Return the page of that name as an HTTP reply, in the format of the URL's ending; an error in the same format.

    `subject` is what the URL's path names after the page, such as the GPU of `/gpu/t4`; `hurry` permits the page to leave out
    what takes long to compute; `files` are paths of uploaded files by field; `problem` is why there is no answer, if known.
    """
    try:
        language_in(query)
        view = view_named(name)
        state, problems = state_and_problems(view, query, subject)
        page = Page(view, state, language, query, hurry, files or {}, progress, problem, problems)
        if ending != "html" or view.subject:  # Only HTML has a form to correct.
            _check(page)
        unknown = unknown_parameters(view, query)
        if unknown and ending in FORMATS:  # A program would not read a warning.
            raise unknown_word("field", unknown[0], tuple(view.fields))
        content = view.show(page)
        content = replace(
            content, charts={key: with_controls(_localised(spec, language)) for key, spec in content.charts.items()}
        )
        return _render(page, content, ending, chart)
    except WhichGpuError as error:
        if subject is None:
            return error_page(error, ending, language, name if name in PAGES else None, query)
        reply = error_page(error, ending, language, query=query)
        return replace(reply, status=404) if isinstance(error, UnknownName) else reply


def _check(page: Page) -> None:
    """Raise the problem of a page's request, if it has one, with all its invalid fields."""
    try:
        page.check()
    except WhichGpuError as error:
        raise all_problems(error, page, tuple(page.view.fields)) from error


def error_page(
    error: WhichGpuError, ending: str, language: Language, name: str | None = None, query: str = "", retry: str = ""
) -> HttpReply:
    """Return an error as an HTTP reply: a web page if the URL's ending is HTML, else JSON.

    `retry` is the path of a page that may be asked again: its form is made from the query alone, without a worker.
    """
    if ending != "html":
        return error_reply(error, language)
    body = client_error(error, language)
    context = _common(name or "", language, query) | {"error": body, **_ways_on(name, query, body["choices"] or ())}
    context |= {"retry": retry, "typed": _typed(query, language) if retry else ()}
    html = environment().get_template("error.html").render(context)
    return HttpReply(status_of(error), CONTENT_TYPES["html"], html.encode())


def _typed(query: str, language: Language) -> list[tuple[str, str, str]]:
    """Return name, label and text of each field in a query, as it was typed."""
    try:
        pairs = [(name, value) for name, value in query_pairs(query) if name != LANGUAGE_PARAMETER and value.strip()]
    except WhichGpuError:
        return []
    return [(name, with_labels(f"--{name.replace('_', '-')}", language).removeprefix("--"), value) for name, value in pairs]


def _ways_on(name: str | None, query: str, choices: Sequence[str]) -> dict[str, Any]:
    """Return links for an error page: the page without the invalid parameter, and with each valid choice in its place."""
    view = view_named(name) if name else None
    valid = without_invalid(view, query) if view else None
    if name is None or view is None or valid is None:
        return {"again": f"/{name or ''}", "choices": [(choice, "") for choice in choices]}
    parameter, state = valid
    is_single = not isinstance(state.get(parameter, ()), tuple)
    urls = [(choice, address(view, state | {parameter: choice}, always=parameter) if is_single else "") for choice in choices]
    return {"again": address(view, state), "choices": urls}


def render_framed(inside: Markup, title: str, language: Language, query: str) -> str:
    """Return a page that has the given trusted HTML within the header and navigation of all pages."""
    template = environment().from_string(FRAME)
    return template.render(_common("", language, query) | {"inside": inside, "title": title})


def _render(page: Page, content: PageContent, ending: str, chart: str | None) -> HttpReply:
    if ending in FORMATS:
        return _render_data(page, content, ending)
    if ending in CHART_RENDERERS:
        return _render_chart(content, chart or "", ending)
    if content.location:
        return HttpReply(303, CONTENT_TYPES["html"], b"", {"Location": content.location})
    context = _common(page.name, page.language, page.query) | _page_context(page, content)
    template = environment().get_template(content.template)
    if ending == "html":
        return HttpReply(content.status, CONTENT_TYPES["html"], template.render(context).encode())
    if ending == "file":
        html = single_file(template.render(context), content.charts)
        headers = {"Content-Disposition": f'attachment; filename="whichgpu-{page.name}.html"'}
        return HttpReply(content.status, CONTENT_TYPES["file"], html.encode(), headers)
    html = "".join(template.blocks["answer"](template.new_context(context)))
    part = {"html": html, "charts": content.charts, "command": context["command"], "url": context["url"]}
    return HttpReply(content.status, CONTENT_TYPES["part"], json.dumps(part, ensure_ascii=False).encode())


def _localised(spec: dict[str, Any], language: Language) -> dict[str, Any]:
    """Return a chart whose axes and tooltips write numbers in the reader's language."""
    if language.marks == ENGLISH_MARKS:
        return spec
    number = {"decimal": language.marks[0], "thousands": language.marks[1], "grouping": [3], "currency": ["", ""]}
    return {**spec, "config": {**spec.get("config", {}), "locale": {"number": number}}}


def _render_data(page: Page, content: PageContent, ending: str) -> HttpReply:
    if content.command is not None:
        return command_reply(*content.command, FORMATS[ending], page.language)
    if ending == "json" or content.table is None:
        return HttpReply(content.status, CONTENT_TYPES["json"], to_json(content.document).encode())
    header, rows = content.table
    write = tables.write_csv if ending == "csv" else tables.write_markdown
    return HttpReply(content.status, CONTENT_TYPES[ending], tables.text_of(write, header, rows).encode())


def _render_chart(content: PageContent, chart: str, ending: str) -> HttpReply:
    if chart not in content.charts:
        raise UnknownName("unknown-chart", msg("error.unknown-chart", name=chart[:80]), None, tuple(content.charts))
    content_type = CONTENT_TYPES.get(ending, CONTENT_TYPES["csv"])
    return HttpReply(200, content_type, CHART_RENDERERS[ending](content.charts[chart]))


def _svg(spec: dict[str, Any]) -> bytes:
    import vl_convert  # Imported here: it takes seconds to load.

    return vl_convert.vegalite_to_svg(with_fixed_colours(spec)).encode()


def _png(spec: dict[str, Any]) -> bytes:
    import vl_convert

    return vl_convert.vegalite_to_png(with_fixed_colours(spec), scale=PNG_SCALE)


def _values(spec: dict[str, Any]) -> bytes:
    """Return the values that a chart draws as CSV, those of its layers below each other, each once."""
    sets = [one["data"]["values"] for one in (spec, *spec.get("layer", ())) if one.get("data", {}).get("values")]
    layers = [values for place, values in enumerate(sets) if values not in sets[:place]]
    records = [record for values in layers for record in values]
    header = list(dict.fromkeys(name for record in records for name in record))
    rows = [[record.get(name, "") for name in header] for record in records]
    return tables.text_of(tables.write_csv, header, rows).encode()


# Renderers of one chart by format.
CHART_RENDERERS: dict[str, Callable[[dict[str, Any]], bytes]] = {"svg": _svg, "png": _png, "values": _values}


def _common(name: str, language: Language, query: str) -> dict[str, Any]:
    """Return the values that every page template needs: navigation, languages, and functions for texts."""
    try:
        code = language_in(query)
    except WhichGpuError:  # The page itself displays this error.
        code = None

    def text(id: str, **values: object) -> str:
        return language.text(id, **values)

    def say(message: Message | None) -> str:
        return with_labels(language.render(message), language) if message else ""

    return {
        "name": name,
        "pages": [(page, text(f"web.page-{page}")) for page in NAVIGATION],
        "text": text,
        "say": say,
        "label": lambda field: heading(field, language),
        "written": language.localize,
        "link": lambda url: with_language(url, code),
        "lang": language.code,
        "named_lang": code,
        "languages": language_choices(query, language.code),
        "unknown": (),
        "asked_sentence": "",
        "ignored": (),
        "prices_seen": None,
        "bad_fields": (),
        "field_problems": (),
        "choices": (),
        "reasons": (),
        "relaxation": None,
        "version": __version__,
        "static": static_url,
        "vega_url": chart_script_url(),
    }


def _page_context(page: Page, content: PageContent) -> dict[str, Any]:
    return {
        "page": page,
        "state": page.state,
        "url": page.url(),
        "unknown": unknown_parameters(page.view, page.query),
        **_sentence_context(page),
        "prices_seen": _prices_seen(),
        "command": shlex.join(["whichgpu", *command_line(*content.command)]) if content.command is not None else "",
        "charts": content.charts,
        "charts_json": Markup(script_json(content.charts)),
        "chart_table": chart_table,
        **content.context,
    }


def _sentence_context(page: Page) -> dict[str, Any]:
    """Return the sentence that led to an answer, and its words on which the answer does not depend; nothing without one."""
    sentence = page.state.get(SENTENCE)
    if not sentence or page.name == START:
        return {}
    question = question_of_sentence(sentence[:MAX_SENTENCE], catalog())
    return {"asked_sentence": sentence, "ignored": question.ignored if question else ()}


def _prices_seen() -> tuple[str, int] | None:
    """Return the newest day on which a price was seen and its age in days; None if there are no prices."""
    day = newest_price_day(catalog())
    return (day.isoformat(), (date.today() - day).days) if day else None


@pass_context
def _with_local_numbers(context: Context, value: Any) -> Any:
    """Template filter: return a value's text with numbers written as in the reader's language."""
    if isinstance(value, str) and not isinstance(value, Markup) and (localise := context.get("written")) is not None:
        return localise(value)
    return value


def _breakable(name: str) -> Markup:
    """Template filter: return a machine's name that may wrap after `_`, `-` and `.`, not inside its words."""
    return Markup(re.sub("([_.-])", r"\1<wbr>", str(escape(name))))


@cache
def environment() -> Environment:
    """Return the Jinja environment of the page templates, which escapes all values and raises for undefined names."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_with_local_numbers,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters["as_given"] = escape  # Text that the user typed keeps its numbers.
    templates.filters["number"] = Numeral
    templates.filters["breakable"] = _breakable
    return templates
