"""The page of one model: memory by precision and context, the GPUs that hold it, and the best machines to run it on."""

from __future__ import annotations

from typing import Any

from whichgpu.api.facts.fit_grid import context_lines, contexts_of, fit_line, is_generative
from whichgpu.api.facts.models import models as model_facts
from whichgpu.api.recommend.recommend_verb import recommend
from whichgpu.api.request.field import Field
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.units import format_memory
from whichgpu.catalog.find import find_gpu
from whichgpu.catalog.model import Model
from whichgpu.surface.web.command_replies import catalog, client_error
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.recommendation_panel import common_unit, rows
from whichgpu.surface.web.panels.subjects import HIDDEN_FACTS, facts, fit_rows, instance_url
from whichgpu.surface.web.views.fit import DEFAULT_GPUS
from whichgpu.surface.web.views.shared import context_of, lookup_cache, near_content, page_words
from whichgpu.workload.kinds import ModelValue
from whichgpu.workload.models import unknown_model

REFERENCE_GPU = "h100-sxm"  # The GPU on which memory by context is stated; others differ by their CUDA context only.
TASK_OF_KIND = {"vision": "train", "recommendation": "train", "diffusion": "batch"}  # Task of the best machines; else serving.
MAX_CANDIDATES = 10  # Machines in the table of the best ones.


@view("model", extra={"model": Field(ModelValue())}, defaults={"model": "llama-3.1-8b"}, subject="model")
def model(page: Page) -> PageContent:
    """Return the page of one built-in model."""
    language, lookups = page.language, lookup_cache()
    built_in_model = _model(page.state["model"])
    row = model_facts({"names": [built_in_model.id]}, context_of(page)).models[0]
    generative = is_generative(built_in_model.id, lookups)
    task = "serve" if generative else TASK_OF_KIND.get(built_in_model.kind, "embed")
    gpu = find_gpu(catalog(), REFERENCE_GPU)
    contexts = contexts_of(built_in_model.id, lookups) if generative else ()
    context: dict[str, Any] = {
        **page_words(language),
        "model": built_in_model,
        "task": task,
        "facts": facts(row, language, (*HIDDEN_FACTS, "name")),
        "contexts": [f"{tokens:,}" for tokens in contexts],
        "memory": [
            (line.bits, line.precision, [format_memory(one) if one is not None else "" for one in line.needed])
            for line in (context_lines(built_in_model.id, gpu, lookups, contexts) if generative else ())
        ],
        "gpus_that_fit": fit_rows(
            [fit_line(built_in_model.id, find_gpu(catalog(), one), lookups) for one in DEFAULT_GPUS] if generative else []
        ),
        "sources": catalog().cited_sources(built_in_model.sources),
        "instance_link": instance_url,
        **_best(built_in_model.id, task, page),
    }
    return PageContent("model.html", context, ("models", {"names": [built_in_model.id]}))


def _model(name: str) -> Model:
    """Return the built-in model of an id; raise an error if there is none."""
    match = next((model for model in catalog().models if model.id == name), None)
    if match is None:
        raise unknown_model(name[:80], catalog())
    return match


def _best(model: str, task: str, page: Page) -> dict[str, Any]:
    """Return the best machines for a model and the command line that serves it there, or why there are none."""
    request: dict[str, Any] = {"task": task, "model": model, "limit": MAX_CANDIDATES}
    empty: dict[str, Any] = {"best": None, "problem": "", "launch": ""}
    try:
        answer = recommend(request, context_of(page))  # type: ignore[arg-type]
    except WhichGpuError as error:
        return empty | {"problem": client_error(error, page.language)["message"]}
    is_service = answer.kind == "service"
    launch = _launch(request, answer.request["engine"], page)
    near = near_content(answer.evidence, answer.evidence_error, page.language)
    content = {"best": answer, "rows": rows(answer, page.language), "unit": common_unit(answer), "service": is_service}
    return {**empty, **content, "launch": launch, "near": near}


def _launch(request: dict[str, Any], engine: str | None, page: Page) -> str:
    """Return the script that starts the recommended server; empty if the engine does not serve."""
    try:
        files = recommend({**request, "emit": engine}, context_of(page)).emitted  # type: ignore[typeddict-item]
    except WhichGpuError:
        return ""
    return next(iter(files.values()), "")
