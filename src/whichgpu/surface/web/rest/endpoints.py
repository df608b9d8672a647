"""The REST endpoints: each answers one command and takes the fields of its request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from whichgpu.api.request.field import Field
from whichgpu.base.kinds import Whole
from whichgpu.surface.commands.command import Command, command_named

PREFIX = "/api/v1"
DRAFT_FIELD = "speculative"  # It may name a draft model.
MODEL_FIELDS = ("model", "what")  # Fields that may name only models that `model_guard` permits.
MAX_ROWS = 5000  # Largest number of rows in one reply.
PAGING = {"limit": Whole(1, MAX_ROWS), "offset": Whole(0, 10**9)}
MAX_NAMES, MAX_NUMBERS = 200, 10_000  # Largest number of items in a list of names and in one of numbers.


class Endpoint(msgspec.Struct, frozen=True, eq=False):
    """A REST endpoint: path, command, example of a query, and the name of the list that its reply splits into pages, if any."""

    path: str
    command: str
    example: dict[str, Any]
    rows: str | None = None
    page: int | None = None  # rows per reply if the request sets no limit


ENDPOINTS = (
    Endpoint("gpus", "gpus", {"name": "H100", "sort": "-memory_bandwidth"}, "gpus"),
    Endpoint("instances", "instances", {"provider": "aws", "gpu": "A100"}, "instances"),
    Endpoint("cpus", "cpus", {"sort": "cores"}, "cpus"),
    Endpoint("regions", "regions", {"provider": "gcp"}, "regions"),
    Endpoint("models", "models", {"name": "llama-3.1-8b"}, "models"),
    Endpoint("engines", "engines", {"name": "vllm"}, "engines"),
    Endpoint("compare", "compare", {"name": ["H100 SXM", "A100-SXM-80GB"]}),
    Endpoint("offers", "offers", {"gpu": "H100", "term": "on-demand", "limit": 20}, "offers", 500),
    Endpoint("fit", "fit", {"model": "llama-3.1-8b", "gpu": "RTX 4090", "precision": "int4"}),
    Endpoint("estimate", "estimate", {"task": "decode", "model": "llama-3.1-8b", "gpu": "H100 SXM", "batch": 8}),
    Endpoint("explain", "explain", {"text": "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192", "gpu": "L4"}),
    Endpoint("check", "check", {"text": "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192", "gpu": "L4"}),
    Endpoint("recommend", "recommend", {"task": "serve", "model": "llama-3.1-8b", "rate": "5/s"}),
    Endpoint("plan", "plan", {"what": "llama-3.1-8b", "rate": "5/s", "tpot_max": "50ms", "curve": False}),
    Endpoint("buy", "buy", {"name": "RTX 4090", "price": "RTX 4090=1800usd"}),
    Endpoint("evidence", "evidence", {"words": ["B200", "gpt-oss"], "engine": "vllm"}, "evidence", 100),
    Endpoint("accuracy", "accuracy", {"gpu": "H100", "by": "engine"}),
    Endpoint("catalog/status", "catalog status", {}),
    Endpoint("catalog/history", "catalog history", {"gpu": "A100 SXM 80GB"}, "history", 500),
    Endpoint("catalog/sources", "catalog sources", {}),
)
BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
ALIASES = {"history": "catalog/history", "sources": "catalog/sources", "status": "catalog/status"}


@cache
def fields(endpoint: Endpoint) -> Mapping[str, Field]:
    """Return the parameters of an endpoint by name, in the order of its command's help, without those that name server files."""
    command = command_of(endpoint)
    left_out = ("as_of",) if command.undated else ()
    allowed = [field for name, field in command.fields.items() if not field.is_local and name not in left_out]
    fields_by_name = {parameter_name(field): field for field in allowed}
    if endpoint.rows:
        fields_by_name |= {name: Field(kind, "N", f"option.web-{name}", name=name) for name, kind in PAGING.items()}
    return fields_by_name


@cache
def by_any_name(endpoint: Endpoint) -> Mapping[str, Field]:
    """Return the parameters of a REST endpoint by each of their names, aliases included."""
    fields_by_name = dict(fields(endpoint))
    for field in fields(endpoint).values():
        fields_by_name |= dict.fromkeys((field.name, *field.aliases), field)
    return fields_by_name


def parameter_name(field: Field) -> str:
    """Return the URL parameter of a field: `names` becomes `name`, which may be repeated."""
    return "name" if field.name == "names" else field.name


def command_of(endpoint: Endpoint) -> Command:
    """Return the declared command that answers a REST endpoint."""
    return command_named(endpoint.command)


def max_items(field: Field) -> int:
    """Return the largest number of items that a REST client may send in a list field: fewer names than numbers."""
    return MAX_NUMBERS if field.metavar.startswith("N,") else MAX_NAMES
