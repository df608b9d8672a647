"""Plan: the cheapest fleet for a day's traffic, or how one server stands under a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whichgpu.api.workloads import estimate_verb as verbs
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.engines.registry import engine_ids
from whichgpu.catalog.offer import TERMS
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.rest.endpoints import BY_PATH
from whichgpu.surface.web.views.fleet_panel import fleets, planned
from whichgpu.surface.web.views.forms import Form, given, problem_of
from whichgpu.surface.web.views.server_panel import served
from whichgpu.surface.web.views.shared_catalog import context_of
from whichgpu.surface.web.views.words import words
from whichgpu.workload.precisions import PRECISIONS

SERVING = ("rate", "seq_in", "seq_out", "ttft_max", "tpot_max", "precision", "engine")
LOAD = ("burstiness", "in_spread", "out_spread", "count", "seed")
FLEET = ("hourly", "in_spread", "out_spread", "gpu", "provider", "region", "term", "budget", "owned", "only_owned")
SERVER_GPU = "H100 SXM"  # where none is named
HOURS = 24


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked: a fleet for traffic, or one server under a load."""

    what: str | None = None  # fleet or server
    model: str = "llama-3.1-8b"
    rate: str = "5/s"
    hourly: str | None = None
    seq_in: str | None = None
    seq_out: str | None = None
    ttft_max: str | None = None
    tpot_max: str | None = None
    gpu: str | None = None
    gpus: str | None = None
    provider: tuple[str, ...] = ()
    region: str | None = None
    term: tuple[str, ...] = ()
    budget: str | None = None
    owned: str | None = None
    only_owned: bool = False
    curve: bool = False
    precision: str | None = None
    engine: str | None = None
    burstiness: str | None = None
    in_spread: str | None = None
    out_spread: str | None = None
    count: str | None = None
    seed: str | None = None
    as_of: str | None = None


@view("plan", State)
def plan(page: Page[State]) -> Shown:
    """The fleet and its bill, or the server and its waits."""
    fleet = fleets() and page.state.what != "server"
    context: dict[str, Any] = {
        "form": _form(page),
        "answer": None,
        "error": None,
        "fleet": fleet,
        "traced": _traced(fleet),
        **words(page.language),
    }
    command = _command(page.state, fleet)
    try:
        shown, charts = _fleet(page) if fleet else _server(page)
    except WhichGpuError as error:
        told, status = problem_of(error, page.language)
        return Shown("plan.html", context | {"error": told}, command, status=status)
    return Shown("plan.html", context | shown, command, charts)


def _traced(fleet: bool) -> str:
    """The command a trace is worked through by, as a job."""
    return "plan" if fleet and "plan" in BY_PATH else "estimate"


def _command(state: State, fleet: bool) -> tuple[str, dict[str, Any]]:
    """The command that answers the same, and its request."""
    if fleet:
        curve = {} if state.curve else {"curve": False}
        return "plan", {**given(state, (*SERVING, *FLEET, "as_of")), **curve, "what": state.model}
    load = given(state, ("gpus", *SERVING, *LOAD))
    return "estimate", {"gpu": state.gpu or SERVER_GPU, **load, "task": "serve", "model": state.model}


def _fleet(page: Page[State]) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
    state = page.state
    traffic = given(state, (*SERVING, "hourly", "in_spread", "out_spread"))
    wishes = given(state, ("gpu", "provider", "region", "term", "budget"))
    return planned(state.model, traffic, wishes, state.owned, state.only_owned, state.curve, state.as_of, page.language)


def _server(page: Page[State]) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
    state = page.state
    answer = verbs.estimate(_command(state, False)[1], context_of())  # type: ignore[arg-type]
    shown: dict[str, Any] = {"answer": answer, "serving": answer.serving, "request": answer.request}
    if answer.serving is None:
        return shown, {}
    told, charts = served(answer.serving, page.language)
    return shown | told, charts


def _form(page: Page[State]) -> dict[str, Any]:
    form = Form(page)
    kinds = ("fleet", "server") if fleets() else ("server",)
    return {
        "what": form.radios("what", kinds, "web.what-"),
        "model": form.field("model", known="models"),
        "gpu": form.field("gpu", known="gpus"),
        "hourly": form.field("hourly", example="1,1,1,2,5,9,10,…"),
        "hours": range(HOURS),
        "work": [
            form.field("rate", example="5/s"),
            form.field("seq_in", example="2048"),
            form.field("seq_out", example="256"),
            form.field("ttft_max", example="500ms"),
            form.field("tpot_max", example="50ms"),
        ],
        "fleet": [
            form.field("provider", known="providers"),
            form.field("region", example="us-east-1"),
            form.field("budget", example="5usd/h"),
            form.field("owned", example="8xV100-SXM-16GB"),
            form.field("as_of", "date"),
        ],
        "term": form.checks("term", TERMS, "term."),
        "only_owned": form.field("only_owned", "switch"),
        "curve": form.field("curve", "switch"),
        "server": [
            form.field("gpus", "number"),
            form.field("burstiness", example="1"),
            form.field("count", example="2000"),
            form.field("seed", example="0"),
        ],
        "more": [
            form.select("precision", PRECISIONS),
            form.select("engine", engine_ids()),
            form.field("in_spread", example="0.5"),
            form.field("out_spread", example="0.5"),
        ],
    }
