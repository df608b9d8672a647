"""The page that lists the endpoints with their parameters and an example, derived from the OpenAPI document."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from whichgpu.base.messages import Language
from whichgpu.surface.web.rendering import render_framed
from whichgpu.surface.web.rest.endpoints import BY_PATH, PREFIX, Endpoint
from whichgpu.surface.web.rest.openapi import document

FORMATS = (("", "JSON"), (".csv", "CSV"))  # Formats of replies, by the ending of the URL.


def render_reference(language: Language, query: str = "") -> str:
    """Return the HTML page that documents the REST endpoints."""
    text, schema = language.text, document(language)
    parts = [f"<h1>{escape(text('web.reference'))}</h1>", f"<p>{escape(text('web.about-rest'))}</p>"]
    parts.append(f'<p><a href="{PREFIX}/openapi.json">openapi.json</a></p>')
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation, language))
    return render_framed(Markup("\n".join(parts)), text("web.reference"), language, query)  # Every part above is escaped.


def _operation(path: str, method: str, operation: dict[str, Any], language: Language) -> str:
    head = f"<h2>{method.upper()} <code>{escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
    if operation["operationId"].endswith("-by-body"):
        return f"<h3>POST <code>{escape(path)}</code></h3><p>{escape(language.text('web.by-body'))}</p>"
    endpoint = BY_PATH.get(path.removeprefix(f"{PREFIX}/"))
    if endpoint is not None:
        query = urlencode(endpoint.example, doseq=True)
        link = f"{path}?{query}" if query else path
        head += f'<p>{escape(language.text("web.example"))}: <a href="{escape(link)}"><code>{escape(link)}</code></a></p>'
    rows = [_row(one, endpoint, path, language) for one in operation.get("parameters", ())]
    if not rows:
        return head
    caption = escape(language.text("web.parameters", path=f"{method.upper()} {path}"))
    columns = ["web.parameter", *(["column.value"] if endpoint else []), "web.meaning"]
    heads = "".join(f'<th scope="col">{escape(language.text(id))}</th>' for id in columns)
    table = f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    table = f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">{table}</div>'
    inside = _form(path, table, language) if endpoint else table
    return f"{head}<details><summary>{caption}</summary>{inside}</details>"


def _row(parameter: dict[str, Any], endpoint: Endpoint | None, path: str, language: Language) -> str:
    """Return the table row of a parameter; those of an endpoint have an input to try it with the value of the example."""
    name, value = parameter["name"], ""
    if endpoint is not None:
        example = endpoint.example.get(name, "")
        text = ",".join(map(str, example)) if isinstance(example, list) else "false" if example is False else str(example)
        label = escape(language.text("web.value-of", name=name, path=path))
        attributes = 'autocomplete="off" spellcheck="false"'
        value = f'<td><input name="{escape(name)}" value="{escape(text)}" aria-label="{label}" {attributes}></td>'
    about = escape(parameter.get("description", ""))
    return f'<tr><th scope="row"><code>{escape(name)}</code></th>{value}<td>{about}</td></tr>'


def _form(path: str, table: str, language: Language) -> str:
    """Return a form that sends the request to an endpoint and displays the reply, which needs the page's script."""
    send = escape(language.text("web.send-request"))
    button = '<button type="submit" class="quiet"'
    buttons = "".join(f'{button} value="{ending}">{send} ({word})</button> ' for ending, word in FORMATS)
    reply = '<p class="soft" data-status></p><pre tabindex="0" data-reply hidden></pre>'
    return f'<form method="get" action="{escape(path)}" data-try>{table}<p class="needs-js">{buttons}</p>{reply}</form>'
