"""The page that lists the endpoints with their parameters and an example, derived from the OpenAPI document."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from whichgpu.base.messages import Language
from whichgpu.surface.web.rendering import render_framed
from whichgpu.surface.web.rest.endpoints import BY_PATH, PREFIX
from whichgpu.surface.web.rest.openapi import document


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
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(one["name"])}</code></th><td>{escape(one.get("description", ""))}</td></tr>'
        for one in operation.get("parameters", ())
    )
    if not rows:
        return head
    caption = escape(language.text("web.parameters", path=path))
    columns = "".join(f'<th scope="col">{escape(language.text(id))}</th>' for id in ("web.parameter", "web.meaning"))
    table = f"<table><caption>{caption}</caption><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>"
    return f"{head}<details><summary>{caption}</summary>{table}</details>"
