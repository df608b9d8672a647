"""Registry of price sources: the bundled ones and those of plug-ins."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.live.rows import PriceSource

GROUP = "whichgpu.price_sources"
OURS = {
    "skypilot": "skypilot:SkyPilot",
    "gpuhunt": "gpuhunt:GpuHunt",
    "azure": "azure:Azure",
    "runpod": "runpod:RunPod",
    "vast": "vast:Vast",
    "lambda": "lambda_cloud:Lambda",
    "gcp": "gcp:Gcp",
    "aws": "aws:Aws",
}


def source_names() -> tuple[str, ...]:
    """Return the names of all price sources, the bundled ones first, then those of plug-ins."""
    return (*OURS, *(name for name in _plugins() if name not in OURS))


def find_source(name: str) -> PriceSource:
    """Return the price source of a name; a plug-in cannot replace a bundled one."""
    if name in OURS:
        module, _, kind = OURS[name].partition(":")
        source: PriceSource = getattr(import_module(f"{__name__}.{module}"), kind)()
        return source
    plugins = _plugins()
    if name not in plugins:
        raise unknown_word("source", name, source_names())
    try:
        loaded: PriceSource = plugins[name].load()()
        if not callable(loaded.batches) or loaded.name != name:
            raise TypeError(f"{plugins[name].value} is no price source named {name}")
    except Exception as problem:  # Any error of a plug-in is reported, and the other sources continue.
        message = msg("error.broken-plugin", name=name, why=f"{type(problem).__name__}: {problem}")
        raise DataError("broken-plugin", message, msg("hint.broken-plugin")) from problem
    return loaded


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
