"""Names for launch files: a model's repository, file names, and engine releases that still run on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from re import sub
from typing import Any

from whichgpu.catalog.engines.engine import Engine, engine_support
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.model import model_key
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.serve_command import serving_engines
from whichgpu.workload.models import own_name


def repository_of(model: str | Mapping[str, Any], catalog: Catalog, name: str | None = None) -> str:
    """Return the model's Hugging Face repository if the catalog knows one, else its name; `name` is that of the request."""
    bare = (name or model).removeprefix("hf:") if isinstance(model, str) else own_name(model)
    for row in catalog.models:
        if model_key(bare) in map(model_key, row.names):
            return next((alias for alias in row.aliases if "/" in alias), bare)
    return bare


def file_name(text: str) -> str:
    """Return a text as a name for files and services: lower case letters, digits and dashes.

    >>> file_name("Llama-3.1 8B")
    'llama-3-1-8b'
    """
    return sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def earlier_releases(engines: Sequence[Engine], gpu: Gpu) -> dict[str, str]:
    """Return, by engine, notes on earlier releases that run on a GPU the present release does not support."""
    return {
        one.id: one.note or one.name for one in engines if one.id in serving_engines() and engine_support(one, gpu) == "earlier"
    }


def known_releases(engines: Sequence[Engine], gpu: Gpu) -> dict[str, str]:
    """Return, of the engines that need an earlier release on a GPU, the latest release that runs there, if it is known."""
    earlier = earlier_releases(engines, gpu)
    releases = {engine: engine_record(engine).serve.releases.get(gpu.compute_capability or "") for engine in earlier}
    return {engine: release for engine, release in releases.items() if release}
