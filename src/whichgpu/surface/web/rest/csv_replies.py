"""Replies of REST endpoints as CSV: the table of the command, page by page."""

from __future__ import annotations

import csv
import io
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from whichgpu.base.messages import Language
from whichgpu.surface.web.command_replies import HttpReply, command_reply
from whichgpu.surface.web.query import LANGUAGE_PARAMETER
from whichgpu.surface.web.rest import parameters
from whichgpu.surface.web.rest.endpoints import PAGING, PREFIX, Endpoint

LIMITED_COMMANDS = ("offers", "evidence")  # Commands that take the largest number of rows to compute.


def csv_reply(
    endpoint: Endpoint, values: parameters.Values, request: dict[str, Any], language: Language, code: str | None
) -> HttpReply:
    """Return a REST endpoint's answer as CSV; a `Link` header has the URL of the next page. An error is JSON."""
    headers = {"Content-Language": language.code}
    limit, offset = parameters.page(endpoint, values) if endpoint.rows else (None, 0)
    if endpoint.command in LIMITED_COMMANDS and limit is not None:
        request = {**request, "limit": offset + limit + 1}  # One more row shows whether there is a next page.
    reply = command_reply(endpoint.command, request, "csv", language)
    if reply.status != 200 or (limit is None and not offset):
        return replace(reply, headers=headers)
    header, *rows = csv.reader(io.StringIO(reply.body.decode()))
    page = rows[offset:] if limit is None else rows[offset : offset + limit]
    if len(rows) > offset + len(page) and page:
        url = page_url(f"{endpoint.path}.csv", values, code, limit, offset + len(page))
        headers["Link"] = f'<{url}>; rel="next"'
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *page])
    return replace(reply, body=text.getvalue().encode(), headers=headers)


def page_url(path: str, values: parameters.Values, code: str | None, limit: int | None, offset: int) -> str:
    """Return the URL of an endpoint with the same parameters and another page of its rows."""
    pairs = [(name, value) for name, texts in values.items() if name not in PAGING for value in texts]
    pairs += [*([(LANGUAGE_PARAMETER, code)] if code else []), ("limit", limit), ("offset", offset)]
    return f"{PREFIX}/{path}?{urlencode(pairs)}"
