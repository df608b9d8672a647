"""The verb `models`: built-in models and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.request.catalog import ModelsRequest
from whichgpu.api.request.read import read
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer, UnknownName, WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest, squash, words
from whichgpu.catalog.host import Source
from whichgpu.catalog.model import Model
from whichgpu.catalog.select import sort_rows
from whichgpu.catalog.store import Catalog
from whichgpu.workload.denoisers import denoiser
from whichgpu.workload.models import find_model, library_model, library_names, library_record
from whichgpu.workload.shapes import Transformer


class ModelRow(msgspec.Struct, frozen=True):
    """A built-in model; layers, widths and longest context are None unless it is a transformer."""

    id: str
    name: str
    aliases: tuple[str, ...]
    kind: str
    denoiser: str | None
    publisher: str
    license: str | None
    released: str | None
    parameters: int
    active_parameters: int
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    experts: int | None
    max_context: int | None
    sources: tuple[str, ...]
    recorded: str
    checked: str
    precision: str | None = None  # with `fits`: the highest precision in which it fits on the GPU
    needed: int | None = None  # with `fits`: bytes that the GPU must have free
    throughput: Figure | None = None  # with `fits`: output tokens a second of one user
    tier: str | None = None  # with `fits`: how close the nearest measurements are to that speed


class LocalRow(msgspec.Struct, frozen=True):
    """A model on this disk: the name to type, where it was found, its file, and its parameters; None if it cannot be read."""

    name: str
    place: str  # where it was found: the cache of Hugging Face, of Ollama or of LM Studio
    path: str
    parameters: int | None  # None if the file cannot be read


class ModelsAnswer(Displayable, msgspec.Struct, frozen=True):
    """Built-in models that match a request."""

    models: tuple[ModelRow, ...]
    local: tuple[LocalRow, ...]  # models on this disk, if requested
    sources: tuple[Source, ...]
    gpu_name: str | None = None  # with `fits`: the GPU that was taken, with their number if the name states one
    calibrated: str | None = None  # with `fits`: the day on which the model of times was fitted


def models(request: ModelsRequest, context: Context) -> ModelsAnswer:
    """Return built-in models by name, by words or the beginning of one (`llama`, `qwen 3`), or by kind."""
    catalog, values = context.catalog, read(ModelsRequest, request, context.spell)
    names = values.get("names", ())
    if not catalog.models:
        raise NoAnswer("no-model", msg("error.no-model"), msg("hint.nothing-known"))
    chosen = _models_by_names(catalog, names) if names else catalog.models
    if values.get("local"):
        return ModelsAnswer((), _local_rows(), ())
    listed = [_row(model, catalog) for model in chosen] if not values.get("fits") else []
    calibrated: str | None = None
    gpu_name: str | None = None
    if name := values.get("fits"):
        from whichgpu.api.facts.fitting_models import first_variant, fitting_models  # Only this question estimates.

        gpu, count = first_variant(catalog, name), lookup_cache(catalog).count(name)
        gpu_name = f"{count}x {gpu.name}" if count else gpu.name
        for fitting in fitting_models(gpu, tuple(chosen), catalog, count or 1):
            facts = {name: getattr(fitting, name) for name in ("precision", "needed", "throughput", "tier")}
            calibrated = calibrated or fitting.calibrated
            listed.append(replace(_row(fitting.model, catalog), **facts))
    rows = tuple(listed) if name and not values.get("sort") else sort_rows(listed, values.get("sort"), ModelRow)
    return ModelsAnswer(rows, (), catalog.cited_sources(*(row.sources for row in rows)), gpu_name, calibrated)


def _local_rows() -> tuple[LocalRow, ...]:
    """Return the models on this disk with the parameters that their config or GGUF header states."""
    from whichgpu.workload.model_files.local import local_models
    from whichgpu.workload.models import shape_at
    from whichgpu.workload.parameters import count_parameters

    rows = []
    for model in local_models():
        try:
            parameters: int | None = count_parameters(shape_at(model.path)).total
        except WhichGpuError:
            parameters = None
        rows.append(LocalRow(model.name, model.place, str(model.path), parameters))
    return tuple(rows)


def _models_by_names(catalog: Catalog, names: Sequence[str]) -> tuple[Model, ...]:
    """Return the models of several names; words that together begin or describe a name (`qwen 3`, `llama 8b`) are one search."""
    own_names = {squash(text) for model in catalog.models for text in model.names}
    if len(names) > 1 and not own_names.issuperset(map(squash, names)) and (matches := _matches(catalog, " ".join(names))):
        return matches
    return tuple({model.id: model for name in names for model in _models_by_name(catalog, name)}.values())


def _matches(catalog: Catalog, name: str) -> tuple[Model, ...]:
    """Return the built-in models of exactly that name, else those whose names begin so, else those with all its words."""
    name_words, joined = set(words(name)), squash(name)
    tests: tuple[Callable[[Model], bool], ...] = (
        lambda model: joined in map(squash, (model.id, model.name, *model.aliases)),
        lambda model: any(squash(text).startswith(joined) for text in (model.id, model.name, *model.aliases)),
        lambda model: name_words <= set(words(f"{model.id} {model.name} {model.kind} {model.publisher}")),
    )
    for test in tests:
        if joined and (matches := tuple(model for model in catalog.models if test(model))):
            return matches
    return ()


def _models_by_name(catalog: Catalog, name: str) -> tuple[Model, ...]:
    if matches := _matches(catalog, name):
        return matches
    if matches := _library_models(catalog, name):
        return matches
    choices = nearest(name, [model.id for model in catalog.models])
    hint = msg("hint.nearest", choices=choices) if choices else msg("hint.list-models")
    raise UnknownName("unknown-model", msg("error.unknown-model", name=name), hint, choices)


def _library_models(catalog: Catalog, name: str) -> tuple[Model, ...]:
    """Return the vision models of timm that have the name or begin with it; they are listed only if asked for."""
    if exact := library_model(name, catalog):
        return (exact,)
    joined = squash(name)
    begun = [library for library in library_names(catalog).values() if joined and squash(library).startswith(joined)]
    return tuple(library_record(library) for library in sorted(begun))


def _row(model: Model, catalog: Catalog) -> ModelRow:
    from whichgpu.workload.parameters import count_parameters

    shape = find_model(model.id, catalog)
    text = shape if isinstance(shape, Transformer) else None
    copied = ("id", "name", "aliases", "kind", "publisher", "license", "released", "parameters", "sources", "recorded", "checked")
    fields: dict[str, Any] = {name: getattr(model, name) for name in copied}
    fields |= {name: getattr(text, name, None) for name in ("hidden", "heads", "kv_heads")}
    return ModelRow(
        **fields,
        denoiser=denoiser(shape) or None,
        active_parameters=count_parameters(shape).active if text and text.experts else model.parameters,
        layers=text.layers + text.encoder_layers if text else None,
        experts=text.experts.count if text and text.experts else None,
        max_context=text.max_context or None if text else None,
    )
