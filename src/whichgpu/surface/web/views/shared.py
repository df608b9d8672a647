"""Code shared by pages: one catalog and its models per worker, translated words, lists of names, sort orders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cache, lru_cache
from typing import Any, get_args

from whichgpu.api.context import Context
from whichgpu.api.lookup_cache import lookup_cache as make_lookup_cache
from whichgpu.base.dates import parse_as_of
from whichgpu.base.figure import Basis
from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.nearest_evidence import NearMeasurement
from whichgpu.surface.commands.render.evidence import gpus_text, neighbourhood, settings_text
from whichgpu.surface.commands.render.progress import StageShares
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.page import Page

# The commonest models come first; the others follow by name.
FIRST_MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "mistral-7b", "gpt2", "bert-large", "resnet50", "vit-b-16")
VERDICTS = ("fits", "tight", "no")

# Settings of a workload that pages list.
SETTINGS = (
    "precision", "kv_precision", "batch", "micro_batch", "accumulation", "seq_in", "seq_out", "image", "engine", "optimizer",
    "checkpointing", "attention", "gpus", "lora_rank", "qlora",
)  # fmt: skip


def lookup_cache() -> LookupCache:
    """Return this worker's cache of models and GPUs; it never traces a model, since that would run the model's code."""
    return _lookup_cache(catalog())


@lru_cache(maxsize=1)
def _lookup_cache(catalog: Catalog) -> LookupCache:
    return make_lookup_cache(catalog, trusting=False)


def is_set(value: object) -> bool:
    """Return whether the value of a setting says anything: not if it is missing, off or "none"."""
    return value not in (None, False, "none")


def context_of(page: Page, stages: StageShares | None = None) -> Context:
    """Return the catalog, day and lookup cache with which a page calls the API's functions; `stages` are those of a long one."""
    day = page.state.get("as_of")
    as_of, report = parse_as_of(day, date.today()) if day else None, page.progress
    progress = None
    if report is not None and stages is not None:
        progress = lambda stage, done: report(stages[stage][0] + stages[stage][1] * done)  # noqa: E731
    return Context(catalog(), as_of, progress=progress, lookups=lookup_cache())


def page_words(language: Language) -> dict[str, Any]:
    """Return translated words for templates (bases of figures, rental terms, memory verdicts), and names that complete inputs."""
    text = language.text
    return {
        "bases": {word: text(f"web.basis-{word}") for word in get_args(Basis)},
        "terms": {word: text(f"term.{word}") for word in (*TERMS, "owned")},
        "verdicts": {word: text(f"verdict.{word}") for word in VERDICTS},
        **_known_names(),
    }


@cache
def _known_names() -> dict[str, Any]:
    models = {model.id: model.name for model in catalog().models}
    first = [id for id in FIRST_MODELS if id in models]
    return {
        "models": tuple((id, models[id]) for id in (*first, *sorted(set(models) - set(first)))),
        "gpus": tuple(sorted(gpu.name for gpu in catalog().gpus)),
        "providers": tuple(sorted(provider.id for provider in catalog().providers)),
    }


def near_content(evidence: Sequence[NearMeasurement], error: float | None, language: Language) -> dict[str, Any]:
    """Return template values of the measurements nearest to an estimate, and of the model's error around them."""
    rows = [
        {
            "work": f"{row.task} {row.model}", "kind": language.text(f"evidence.kind-{row.kind}"),
            "gpus": language.listed((gpus_text(row.gpus, row.gpu), row.software)), "how": settings_text(row, language),
            "measured": format_seconds(row.measured),
            "estimated": format_seconds(row.estimated) if row.estimated is not None else "–",
            "error": f"{row.error:+.0%}" if row.error is not None else "–", "source": row.source, "date": row.date,
        }
        for row in evidence
    ]  # fmt: skip
    return {"rows": rows, "error": neighbourhood(evidence, error) if error is not None else None}


def sort_order(sort: str | None, *names: str | None) -> str:
    """Return the order of a column for `aria-sort`; `names` are the fields by which the column sorts."""
    if not sort or sort.lstrip("-") not in names:
        return "none"
    return "descending" if sort.startswith("-") else "ascending"
