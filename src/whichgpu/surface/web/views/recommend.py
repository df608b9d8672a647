"""Recommend: say what you want to run; the answer, its reasons, and what else there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whichgpu.api.recommend import recommend_verb as verbs
from whichgpu.api.request.field import fields_of
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.engines.registry import engine_ids
from whichgpu.catalog.offer import TERMS
from whichgpu.decide.constraints import RANKS
from whichgpu.decide.requirements import Requirements
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.views.forms import Field, Form, day_of, given, names_of, problem_of
from whichgpu.surface.web.views.recommendation_panel import cards, front_picture, is_service, rows, terms_picture
from whichgpu.surface.web.views.shared_catalog import context_of
from whichgpu.surface.web.views.words import words
from whichgpu.workload.precisions import PRECISIONS
from whichgpu.workload.tasks import RUN_TASKS

# Which fields of the form a task uses; what another task left behind is not asked.
WORK = {
    "serve": ("rate", "seq_in", "seq_out", "ttft_max", "tpot_max"),
    "batch": ("seq_in", "seq_out", "samples"),
    "embed": ("seq_in", "samples"),
    "finetune": ("seq_in", "batch", "epochs", "samples", "lora_rank", "qlora"),
    "train": ("batch", "seq_in", "image", "epochs", "samples", "tokens"),
}


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked: the fields of a request, and wishes."""

    task: str = "serve"
    model: str = "llama-3.1-8b"
    any_model: bool = False
    rate: str | None = None
    seq_in: str | None = None
    seq_out: str | None = None
    ttft_max: str | None = None
    tpot_max: str | None = None
    batch: str | None = None
    epochs: str | None = None
    samples: str | None = None
    tokens: str | None = None
    image: str | None = None
    lora_rank: str | None = None
    qlora: bool = False
    precision: str | None = None
    engine: str | None = None
    rank: str | None = None
    budget: str | None = None
    deadline: str | None = None
    gpu: tuple[str, ...] = ()
    gpus: str | None = None
    min_memory: str | None = None
    needs: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    near: str | None = None
    max_latency: str | None = None
    term: tuple[str, ...] = ()
    currency: str | None = None
    duration: str | None = None
    owned: str | None = None
    buy: bool = False
    why_not: str | None = None
    as_of: str | None = None


CONSTRAINTS = tuple(name for name in names_of(State) if name in Requirements.__dataclass_fields__)


@view("recommend", State)
def recommend(page: Page[State]) -> Shown:
    """The answer, or why there is none, beside the form."""
    state = page.state
    request: dict[str, Any] = {**_work(state), **given(state, CONSTRAINTS), "task": state.task}
    if not state.any_model:
        request["model"] = state.model
    command = "recommend", {**request, **given(state, ("as_of",))}
    context: dict[str, Any] = {"form": _form(page), **words(page.language), "answer": None, "error": None}
    try:
        answer = verbs.recommend(request, context_of(day_of(state.as_of)))  # type: ignore[arg-type]
    except WhichGpuError as error:
        told, status = problem_of(error, page.language)
        return Shown("recommend.html", context | {"error": told}, command, status=status)
    charts = {"front": front_picture(answer, page.language)}
    if len(answer.terms) > 1:
        charts["terms"] = terms_picture(answer, page.language)
    shown = {
        "answer": answer,
        "service": is_service(answer),
        "cards": cards(answer, page.language),
        "rows": rows(answer, page.language),
        "each": page.language.text("web.column-tokens" if answer.answer.cost_per_million_tokens else "web.column-samples"),
        "rejected": [
            (page.language.text(f"rejected.{why}", n=count), f"{count:,}") for why, count in answer.rejected.reasons.items()
        ],
    }
    return Shown("recommend.html", context | shown, command, charts)


def _work(state: State) -> dict[str, str]:
    """The request's fields that its task uses."""
    return given(state, (*WORK.get(state.task, ()), "precision", "engine"))


def _form(page: Page[State]) -> dict[str, Any]:
    form = Form(page)
    only: dict[str, list[str]] = {}
    for task, names in WORK.items():
        for name in names:
            only.setdefault(name, []).append(task)

    def box(name: str, **more: Any) -> Field:
        return form.field(name, example=fields_of(RecommendRequest)[name].example, only=" ".join(only.get(name, ())), **more)

    return {
        "task": form.radios("task", RUN_TASKS, "web.task-"),
        "model": form.field("model", known="models"),
        "any_model": form.field("any_model", "switch"),
        "work": [
            form.field(name, "switch", only="finetune") if name == "qlora" else box(name)
            for name in dict.fromkeys(name for names in WORK.values() for name in names)
        ],
        "how": [form.select("precision", PRECISIONS), form.select("engine", engine_ids())],
        "rank": form.radios("rank", RANKS, "web.rank-"),
        "limits": [box("budget"), box("deadline"), box("duration"), form.field("as_of", "date"), box("currency")],
        "machines": [
            form.field("gpu", known="gpus"), box("gpus"), box("min_memory"), box("needs"), form.field("why_not", known="gpus"),
        ],
        "offers": [form.field("provider", known="providers"), box("region"), box("near"), box("max_latency")],
        "term": form.checks("term", TERMS, "term."),
        "owned": box("owned"),
        "buy": form.field("buy", "switch"),
    }  # fmt: skip
