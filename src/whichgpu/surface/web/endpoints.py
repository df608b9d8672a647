"""The REST endpoints, each one a command: its fields are the command's flags, its reply what the command prints with --json."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import click

from whichgpu.surface.cli.frame import FLAGS, Command, Words
from whichgpu.surface.cli.main import root
from whichgpu.surface.values import takes_several

PREFIX = "/api/v1"
FILES = ("FILE", "DIR", "FOLDER")  # flags that name a file of the asker's machine have no meaning here
ASIDE = (*FLAGS, "format", "config", "catalog", "help", "workers", "ray")  # processes and clusters are the server's own affair
MODELS = ("model", "what")  # on the command line also files: here what `guard.permitted` lets pass
PAGED = ("limit", "offset")
MOST_NAMES, MOST_NUMBERS = 200, 10_000  # of one list


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A path below the prefix, the command it asks, an example of its query, and the list its reply holds, where it pages."""

    path: str
    command: tuple[str, ...]
    example: dict[str, Any]
    rows: str | None = None
    page: int | None = None  # rows of a reply where no limit is asked for


ENDPOINTS = (
    Endpoint("gpus", ("gpus",), {"name": "H100", "sort": "-memory_bandwidth"}, "gpus"),
    Endpoint("instances", ("instances",), {"provider": "aws", "gpu": "A100"}, "instances"),
    Endpoint("cpus", ("cpus",), {"sort": "cores"}, "cpus"),
    Endpoint("regions", ("regions",), {"provider": "gcp"}, "regions"),
    Endpoint("models", ("models",), {"name": "llama-3.1-8b"}, "models"),
    Endpoint("engines", ("engines",), {"name": "vllm"}, "engines"),
    Endpoint("compare", ("compare",), {"name": ["H100 SXM", "A100-SXM-80GB"]}),
    Endpoint("offers", ("offers",), {"gpu": "H100", "term": "on-demand", "limit": 20}, "offers", 500),
    Endpoint("fit", ("fit",), {"model": "llama-3.1-8b", "gpu": "RTX 4090", "precision": "int4"}),
    Endpoint("estimate", ("estimate",), {"task": "decode", "model": "llama-3.1-8b", "gpu": "H100 SXM", "batch": 8}),
    Endpoint("recommend", ("recommend",), {"task": "serve", "model": "llama-3.1-8b", "rate": "5/s"}),
    Endpoint("plan", ("plan",), {"what": "llama-3.1-8b", "rate": "5/s", "tpot_max": "50ms", "curve": False}),
    Endpoint("buy", ("buy",), {"name": "RTX 4090", "price": "RTX 4090=1800usd"}),
    Endpoint("catalog/status", ("catalog", "status"), {}),
    Endpoint("catalog/history", ("catalog", "history"), {"gpu": "A100 SXM 80GB"}, "history", 500),
    Endpoint("catalog/sources", ("catalog", "sources"), {}),
)
BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
ALIASES = {"history": "catalog/history", "sources": "catalog/sources", "status": "catalog/status"}


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of an endpoint: the option or argument of the command that takes it."""

    name: str
    flag: str | None  # None: an argument
    negative: str | None = None  # the flag that says no, for switches that have one
    is_switch: bool = False
    many: bool = False  # may be given again and again, or as a list
    most: int = MOST_NAMES  # so many
    required: bool = False
    kind: str = "string"
    choices: tuple[str, ...] = ()
    metavar: str = ""
    help: str = ""


@cache
def fields(endpoint: Endpoint) -> dict[str, Field]:
    """The parameters of an endpoint by name, in the order of its command's help."""
    asked = command(endpoint)
    aside = (*ASIDE, "as_of") if isinstance(asked, Command) and asked.undated else ASIDE
    found = [_field(param) for param in asked.params if param.name not in aside and not _names_a_file(param)]
    known = {field.name: field for field in found}
    if endpoint.rows:
        for name in PAGED:
            known[name] = Field(name, None, kind="integer", help=f"option.web-{name}")
    return known


@cache
def command(endpoint: Endpoint) -> click.Command:
    """The command behind an endpoint."""
    above = click.Context(root, info_name="whichgpu")
    found: click.Command | None = root
    for word in endpoint.command:
        assert isinstance(found, click.Group)
        found = found.get_command(above, word)
    assert found is not None
    return found


def _names_a_file(param: click.Parameter) -> bool:
    return param.name not in MODELS and any(word in (param.metavar or "") for word in FILES)


def _field(param: click.Parameter) -> Field:
    kind = "string"
    choices: tuple[str, ...] = ()
    if isinstance(param.type, Words):
        choices = param.type.known()
    elif isinstance(param.type, click.types.IntParamType):
        kind = "integer"
    elif isinstance(param.type, click.types.FloatParamType):
        kind = "number"
    is_option = isinstance(param, click.Option)
    is_switch = isinstance(param, click.Option) and param.is_flag
    return Field(
        name="name" if param.name == "names" else param.name or "",
        flag=max(param.opts, key=len) if is_option else None,
        negative=max(param.secondary_opts, key=len, default=None) if is_option else None,
        is_switch=is_switch,
        many=takes_several(param),
        most=MOST_NUMBERS if (param.metavar or "").startswith("N,") else MOST_NAMES,
        required=param.required,
        kind="boolean" if is_switch else kind,
        choices=choices,
        metavar=param.metavar or "",
        help=getattr(param, "help", None) or "",
    )
