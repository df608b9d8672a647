"""The recommend page: from a form about the workload to the answer, its reasons, and the other candidates."""

from __future__ import annotations

from typing import Any

from whichgpu.api.recommend import recommend_verb as verbs
from whichgpu.api.request.field import Field
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.kinds import Flag
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.surface.candidate_cells import columns
from whichgpu.surface.charts.front import front_picture, terms_picture
from whichgpu.surface.commands.recommend import alternative_lines, verify_command
from whichgpu.surface.web.failure import error_content, rejection_text
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.recommendation_panel import cards, common_unit, rows
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.launch_panel import launch_content
from whichgpu.surface.web.views.shared import context_of, near_content, page_words
from whichgpu.workload.tasks import RUN_TASKS

# Fields of the form that each task uses; values left from another task are not part of the request.
TASK_FIELDS = {
    "serve": ("mode", "people", "rate", "seq_in", "seq_out", "ttft_max", "tpot_max"),
    "batch": ("seq_in", "seq_out", "samples"),
    "embed": ("seq_in", "samples"),
    "finetune": ("seq_in", "batch", "epochs", "samples", "lora_rank", "qlora"),
    "train": ("batch", "seq_in", "image", "epochs", "samples", "tokens"),
}
LIMIT_REASONS = ("because.keeps", "because.tpot", "because.ttft")  # Reasons that say that a limit is kept.
WORK_FIELDS = tuple(dict.fromkeys(name for names in TASK_FIELDS.values() for name in names))


@view(
    "recommend",
    RecommendRequest,
    extra={"any_model": Field(Flag())},
    defaults={"task": "serve", "model": "llama-3.1-8b"},
)
def recommend(page: Page) -> PageContent:
    """Return the recommend page: the form, and the recommendation or why there is none."""
    task, language = page.state["task"], page.language
    unused = set(WORK_FIELDS) - set(TASK_FIELDS.get(task, ()))
    request = page.request(RecommendRequest, *unused, *(("model",) if page.state["any_model"] else ()))
    command = "recommend", request
    context: dict[str, Any] = {"form": _form(page), **page_words(language), "answer": None, "error": None}
    try:
        page.check()
        answer = verbs.recommend(request, context_of(page))  # type: ignore[arg-type]
    except WhichGpuError as error:
        return error_content("recommend.html", context, error, page, command=command)
    charts = {"front": front_picture(answer, language)}
    if len(answer.terms) > 1:
        charts["terms"] = terms_picture(answer, language)
    context |= {
        "answer": answer,
        "verify": verify_command(answer),
        "verify_gpu": verify_command(answer) != answer.verify,
        "currency": answer.answer.cost.currency,
        "alternatives": alternative_lines(answer),
        "service": answer.kind == "service",
        "cards": cards(answer, language),
        "rows": rows(answer, language),
        "unit": common_unit(answer),
        "keeps": "keeps" in columns(answer),
        "unsure": LIMIT_REASONS if answer.answer.keeps_limits < SAFE_PROBABILITY else (),
        "near": near_content(answer.evidence, answer.evidence_error, language),
        "each": language.text("web.column-tokens" if answer.answer.cost_per_million_tokens else "web.column-samples"),
        "rejected": [(rejection_text(why, count, language), f"{count:,}") for why, count in answer.rejected.reasons.items()],
    }
    context |= launch_content(answer, request, page)
    return PageContent("recommend.html", context, command, charts)


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    tasks = {name: " ".join(task for task, names in TASK_FIELDS.items() if name in names) for name in WORK_FIELDS}
    return {
        "task": form.field("task", choices=RUN_TASKS),
        "model": form.field("model", completions="models"),
        "any_model": form.field("any_model"),
        "work": [form.field(name, only=tasks[name]) for name in WORK_FIELDS],
        "how": form.fields("precision", "engine"),
        "rank": form.field("rank"),
        "risk": form.field("risk"),
        "limits": form.fields("budget", "deadline", "duration", "as_of", "currency", "api_price"),
        "machines": form.fields("gpu", "gpus", "min_memory", "max_power", "pue", "needs", "why_not"),
        "offers": form.fields("provider", "region", "near", "max_latency"),
        "term": form.field("term"),
        "owned": form.field("owned"),
        "buy": form.field("buy"),
    }
