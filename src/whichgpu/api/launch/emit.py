"""Attach to an answer the files that launch it with the target of `--emit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.launch.from_answers import candidate_plan, estimate_plan, fit_plan, fleet_plan
from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.request.read import read
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.fit import FitAnswer
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.launch.targets import LaunchPlan, launch_files
from whichgpu.decide.plan.plan_answer import PlanAnswer
from whichgpu.workload.tasks import TASK_TRAITS

Answer = TypeVar("Answer", FitAnswer, EstimateAnswer, RecommendAnswer, PlanAnswer)


def with_launch_files(answer: Answer, request: Mapping[str, Any], context: Context) -> Answer:
    """Return an answer with the files of the request's target (`emit`); unchanged if nothing fits."""
    name = read(EstimateRequest, request, context.spell, ("emit",))["emit"]
    plan = _launch_plan(answer, request, context, name)
    return replace(answer, emitted=launch_files(name, plan)) if plan else answer


def _launch_plan(
    answer: FitAnswer | EstimateAnswer | RecommendAnswer | PlanAnswer, request: Mapping[str, Any], context: Context, target: str
) -> LaunchPlan | None:
    if isinstance(answer, PlanAnswer):
        return fleet_plan(answer)
    _check_task(answer.request, target)
    day = (context.as_of or context.today).isoformat()
    if isinstance(answer, RecommendAnswer):
        return candidate_plan(answer, context.catalog)
    if isinstance(answer, FitAnswer):
        return fit_plan(answer, context.catalog, day)
    if answer.request["gpu"] is None:
        raise UsageError("emit-gpu", msg("error.emit-gpu", target=target), msg("hint.emit-gpu"))
    return estimate_plan(answer, context.catalog, request, day) if answer.fits != "no" else None


def _check_task(request: Mapping[str, Any], target: str) -> None:
    """Raise an error unless the target can run the request's task and model: inference of a language model."""
    if TASK_TRAITS[request["task"]].training or request["seq_in"] is None:
        message = msg("error.emit-task", target=target, task=request["task"], model=str(request["model"])[:80])
        raise UsageError("emit-task", message, msg("hint.emit-task"))
