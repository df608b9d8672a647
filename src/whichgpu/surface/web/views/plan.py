"""The plan page: the cheapest fleet for a day's traffic, or one server under a request load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.api.plan import plan_verb
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Names, Plain, Words
from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.request.plan import PlanRequest
from whichgpu.api.workloads import estimate_verb
from whichgpu.base.errors import WhichGpuError
from whichgpu.surface.charts.parts import Spec
from whichgpu.surface.commands.plan import STAGES
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.hide_paths import with_file_name
from whichgpu.surface.web.page import Page, PageContent, page_fields, view
from whichgpu.surface.web.panels.fleet_panel import fleet_charts, fleet_content
from whichgpu.surface.web.panels.server_panel import server_charts, server_content
from whichgpu.surface.web.simulation_limit import check_simulation
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.launch_panel import launch_content
from whichgpu.surface.web.views.shared import context_of, near_content, page_words

DEFAULT_SERVER_GPU = "H100 SXM"
# Fields that an uploaded trace replaces.
TRAFFIC = ("rate", "hourly", "seq_in", "seq_out", "in_spread", "out_spread", "burstiness", "count", "seed")
EXAMPLE_TRACE = "trace.csv"  # Name of an uploaded trace in the line that gives the same answer.
SOLVER_SECONDS = 4.0  # Seconds that a page's plan may take; the optimality gap reached by then is displayed.


@view(
    "plan",
    PlanRequest,
    EstimateRequest,
    extra={"what": Field(Words("kind", ("fleet", "server"))), "gpu": Field(Names("gpus", many=False)), "hourly": Field(Plain())},
    defaults={"model": "llama-3.1-8b", "rate": "5/s", "curve": False},
)
def plan(page: Page) -> PageContent:
    """Return the plan page: the cheapest fleet and its bill, or one server and its latencies under load."""
    is_fleet = page.state["what"] != "server"
    replaced = TRAFFIC if page.files else ()
    fleet_request = page.request(PlanRequest, "what", *replaced) | {"what": page.state["model"]}
    command = ("plan", fleet_request) if is_fleet else ("estimate", _server_request(page, replaced))
    request = {**command[1], **page.files}
    if page.files:
        command = command[0], command[1] | dict.fromkeys(page.files, EXAMPLE_TRACE)
    context: dict[str, Any] = {
        "form": _form(page), "answer": None, "error": None, "fleet": is_fleet, **page_words(page.language),
    }  # fmt: skip
    charts: dict[str, Spec] = {}
    try:
        page.check()
        if not page.files:  # A job may take longer.
            check_simulation(request)
        if is_fleet:
            fleet_answer = plan_verb.plan({**request, "time_limit": SOLVER_SECONDS}, context_of(page, STAGES))  # type: ignore[typeddict-item]
            context |= fleet_content(fleet_answer, page.language)
            context |= launch_content(fleet_answer, fleet_request, page)
            charts = fleet_charts(fleet_answer, page.language)
        else:
            answer = estimate_verb.estimate(request, context_of(page, {"simulating": (0.0, 1.0)}))  # type: ignore[arg-type]
            context |= {"answer": answer, "serving": answer.serving, "request": answer.request}
            context["near"] = near_content(answer.evidence, answer.evidence_error, page.language)
            context |= launch_content(answer, command[1], page)
            if answer.serving is not None:
                context |= server_content(answer.serving, page.language)
                charts = server_charts(answer.serving, page.language)
    except WhichGpuError as error:
        for path in page.files.values():
            error = with_file_name(error, path, EXAMPLE_TRACE)
        return error_content("plan.html", context, error, page, command=command)
    return PageContent("plan.html", context, command, charts)


def _server_request(page: Page, without: Sequence[str]) -> dict[str, Any]:
    """Return the request for the load on one server, without the prices and constraints of a fleet."""
    fleet_only = page_fields(PlanRequest).keys() - page_fields(EstimateRequest).keys()
    return {"gpu": DEFAULT_SERVER_GPU, "task": "serve"} | page.request(EstimateRequest, *fleet_only, *without, "as_of", "task")


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    return {
        "what": form.field("what"),
        "model": form.field("model", completions="models"),
        "gpu": form.field("gpu", completions="gpus", placeholder=DEFAULT_SERVER_GPU if page.state["what"] == "server" else ""),
        "hourly": form.field("hourly"),
        "hours": range(24),
        "work": form.fields("rate", "seq_in", "seq_out", "ttft_max", "tpot_max"),
        "fleet": form.fields("provider", "region", "budget", "owned", "as_of"),
        "term": form.field("term"),
        "only_owned": form.field("only_owned"),
        "curve": form.field("curve"),
        "server": [form.field("gpus", "number"), *form.fields("burstiness", "count", "seed")],
        "more": form.fields("percentile", "precision", "engine", "in_spread", "out_spread"),
    }
