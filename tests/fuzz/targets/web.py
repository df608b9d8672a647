"""What comes in over the network: queries and bodies of the REST endpoints, addresses of pages, headers of either side."""

from __future__ import annotations

import json
from collections.abc import Hashable
from urllib.parse import urlencode

from hypothesis import strategies as st

from tests.fuzz.target import Rude, Target, each
from tests.fuzz.targets.draws import NAMES, TEXTS, objects, scalars, texts
from whichgpu.base.messages import english
from whichgpu.catalog.live.http import _date, _retry_after
from whichgpu.surface.web.command_replies import HttpReply
from whichgpu.surface.web.page import read_state, unknown_parameters, view_named
from whichgpu.surface.web.reader_language import language_choices, language_in, preferred
from whichgpu.surface.web.rest import parameters
from whichgpu.surface.web.rest.endpoints import ENDPOINTS, fields
from whichgpu.surface.web.server.gate import _host
from whichgpu.surface.web.views import PAGES
from whichgpu.surface.web.worker_answers import ANSWERS

# Those whose answers take seconds are only read here; the others are answered, too.
LONG = ("recommend", "plan", "estimate", "buy", "catalog/history")
KNOWN = sorted({name for endpoint in ENDPOINTS for name in fields(endpoint)} | {"lang"})
STATUSES = (200, 400, 404, 422)


def _query(data: bytes) -> Hashable:
    """The first byte chooses the endpoint; the rest is a query."""
    endpoint = ENDPOINTS[(data[0] if data else 0) % len(ENDPOINTS)]
    query = data[1:].decode("latin-1")
    if endpoint.path in LONG:
        return endpoint.path, len(parameters.request_of(endpoint, parameters.from_query(query)))
    return endpoint.path, *_outcome(ANSWERS["rest"]({"endpoint": endpoint.path, "query": query}, english(), None))


def _body(data: bytes) -> Hashable:
    """The same with a JSON body."""
    endpoint = ENDPOINTS[(data[0] if data else 0) % len(ENDPOINTS)]
    if endpoint.path in LONG:
        return endpoint.path, len(parameters.request_of(endpoint, parameters.from_body(data[1:])))
    return endpoint.path, *_outcome(ANSWERS["rest"]({"endpoint": endpoint.path, "query": "", "body": data[1:]}, english(), None))


def _page(data: bytes) -> Hashable:
    """The state of a page, from its address."""
    name = list(PAGES)[(data[0] if data else 0) % len(PAGES)]
    view, query = view_named(name), data[1:].decode("latin-1")
    unknown_parameters(view, query)
    return name, bool(read_state(view, query))


def _header(data: bytes) -> Hashable:
    """Headers and queries as servers and clients hand them on: a character of each byte."""
    return _headers(data.decode("latin-1").encode())


def _outcome(reply: HttpReply) -> tuple[Hashable, ...]:
    if reply.status not in STATUSES:
        raise Rude(f"status {reply.status}: {reply.body[:200]!r}")
    document = json.loads(reply.body)
    error = document.get("error") if isinstance(document, dict) else None
    return reply.status, error["kind"] if isinstance(error, dict) else None


values = scalars.map(str) | st.sampled_from(
    NAMES + TEXTS + ("-memory", "memory", "true", "no", "llama", "hf:a/b", "/etc/passwd", "python:os:system")
)
queries = st.lists(st.tuples(st.sampled_from(KNOWN), values), max_size=5).map(
    lambda pairs: urlencode(pairs, errors="replace").encode()
)
heads = st.integers(0, len(ENDPOINTS) - 1).map(lambda number: bytes([number]))
bodies = objects(KNOWN).map(lambda value: json.dumps(value).encode())
_headers = each((preferred, language_in, lambda text: language_choices(text, "en"), _host, _retry_after, _date))
WORDS = tuple(f"{name}=".encode() for name in KNOWN)

TARGETS = (
    Target("queries", _query, st.builds(bytes.__add__, heads, queries), (*WORDS, b"&", b"%00", b"%ff", b"+"), seconds=6.0),
    Target("bodies", _body, st.builds(bytes.__add__, heads, bodies), tuple(f'"{name}":'.encode() for name in KNOWN), seconds=6.0),
    Target("pages", _page, st.builds(bytes.__add__, heads, queries), (*WORDS, b"&", b"%00", b"%ff")),
    Target(
        "headers",
        _header,
        texts("ko-KR;q=0.9", "lang=vi", "[::1]:8080", "120", "Mon, 16 Nov 2026 18:00:00 GMT"),
        (b";q=", b"lang=", b"GMT", b"+0900", b"]:", b"\xb2"),
    ),
)
