"""What all requests of a worker look up: one catalog and its models, read once."""

from __future__ import annotations

from datetime import date
from functools import cache, lru_cache

from whichgpu.api.context import Context
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.surface.web.command_replies import catalog

# Most asked for first; the rest of a list follows by name.
MODELS_FIRST = ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "mistral-7b", "gpt2", "bert-large", "resnet50", "vit-b-16")


def lookups() -> LookupCache:
    """The desk of this worker; models are never traced here, since that runs their code."""
    return _desk(catalog())


def context_of(as_of: date | None = None) -> Context:
    """What a page asks verbs with: this worker's catalog and desk."""
    return Context(catalog(), as_of, lookups=lookups())


@lru_cache(maxsize=1)
def _desk(kept: Catalog) -> LookupCache:
    return lookup_cache(kept, trusting=False)


@cache
def model_names() -> tuple[tuple[str, str], ...]:
    """Id and name of every built-in model."""
    known = {model.id: model.name for model in lookups().catalog.models}
    first = [id for id in MODELS_FIRST if id in known]
    return tuple((id, known[id]) for id in (*first, *sorted(set(known) - set(first))))


@cache
def gpu_names() -> tuple[str, ...]:
    """Every GPU by name."""
    return tuple(sorted(gpu.name for gpu in lookups().catalog.gpus))


@cache
def provider_names() -> tuple[str, ...]:
    """Every provider by id."""
    return tuple(sorted(provider.id for provider in lookups().catalog.providers))
